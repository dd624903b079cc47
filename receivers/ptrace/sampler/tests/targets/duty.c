/* `duty WORK_MICROSECONDS WAIT_MICROSECONDS [woken]`: one thread alternately computes in `work` and waits in
 * `epoll_wait`, for these times. With `woken` it waits for an event that another process raises every
 * WAIT_MICROSECONDS, as a server that answers small requests does. The amount of work for that time is measured at the
 * start with the thread's CPU clock. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

static uint64_t rounds;
static int wait_millis = -1, event = -1;

NOINLINE static void work(uint64_t count) {
    volatile uint64_t x = 88172645463325252ull;
    for (uint64_t i = 0; i < count; i++)
        x = x * 6364136223846793005ull + 1442695040888963407ull;
}

static int64_t thread_nano(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *serve(void *unused) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event got, wanted = {.events = EPOLLIN};
    if (event >= 0)
        must(epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted) == 0, "epoll_ctl");
    for (;;) {
        work(rounds);
        uint64_t raised;
        if (epoll_wait(epoll, &got, 1, wait_millis) == 1)
            must(read(event, &raised, sizeof raised) == sizeof raised, "read");
    }
    return unused;
}

/* Raises the event in a separate process, whose CPU time is not counted as the server's. */
static void wake_up(int64_t each_nano) {
    must(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "PR_SET_PDEATHSIG");
    uint64_t one = 1;
    for (int64_t next = now_nano();;) {
        next += each_nano;
        struct timespec at = {next / 1000000000, next % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
        }
        if (now_nano() > next + 100 * each_nano)
            next = now_nano(); /* After a time without a CPU the missed events are not raised in a burst. */
        if (write(event, &one, sizeof one) != sizeof one)
            _exit(0);
    }
}

int main(int count, char **arguments) {
    must(count >= 3, "usage: duty WORK_MICROSECONDS WAIT_MICROSECONDS [woken]");
    int64_t work_nano = atoll(arguments[1]) * 1000, wait_nano = atoll(arguments[2]) * 1000;
    enum { TRIAL = 2000000 };
    work(TRIAL);
    int64_t before = thread_nano();
    work(TRIAL);
    rounds = (uint64_t)((double)TRIAL * (double)work_nano / (double)(thread_nano() - before));
    if (count > 3) {
        event = eventfd(0, EFD_CLOEXEC);
        must(event >= 0, "eventfd");
        pid_t waker = fork();
        must(waker >= 0, "fork");
        if (waker == 0)
            wake_up(wait_nano);
    } else {
        wait_millis = (int)(wait_nano / 1000000);
    }
    start_thread(serve, NULL, 0);
    say("ready");
    until_end();
}
