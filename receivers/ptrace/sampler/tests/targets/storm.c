/* `storm`: one thread alternately computes and waits in `epoll_pwait` for short times, and gets a signal every 0.2 to
 * 0.8 ms whose handler was installed without SA_RESTART. The signal is blocked except in the call, so each call either
 * fails with EINTR after exactly one run of the handler, or ends in another way after none. Each line of input is
 * answered with
 *     waits COUNT handled COUNT interrupted COUNT false COUNT swallowed COUNT
 * where a false failure is EINTR without a run of the handler, and a swallowed signal is a run of the handler in a call
 * that did not fail. */
#include "common.h"
#include <sys/epoll.h>

static volatile uint64_t waits, handled, interrupted, false_ones, swallowed;
static pthread_t waiter;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static void *wait_for_it(void *unused) {
    int epoll = epoll_create1(0);
    struct epoll_event got;
    sigset_t mask, none;
    sigemptyset(&none);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    for (;;) {
        uint64_t before = handled;
        errno = 0;
        int failed = epoll_pwait(epoll, &got, 1, 2, &none) < 0 && errno == EINTR;
        uint64_t runs = handled - before;
        waits++;
        interrupted += (uint64_t)failed;
        false_ones += (uint64_t)(failed && runs == 0);
        swallowed += runs > (uint64_t)failed ? runs - (uint64_t)failed : 0;
        burn(2000);
    }
    return unused;
}

static void *raise_them(void *unused) {
    uint64_t x = 88172645463325252ull;
    for (;;) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        struct timespec pause = {0, (long)(200000 + x % 600000)};
        nanosleep(&pause, NULL);
        pthread_kill(waiter, SIGUSR1);
    }
    return unused;
}

int main(void) {
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, NULL);
    waiter = start_thread(wait_for_it, NULL, 0);
    start_thread(raise_them, NULL, 0);
    say("ready");
    for (;;) {
        char line[64], text[256];
        await_line(line, sizeof line);
        snprintf(text, sizeof text, "waits %llu handled %llu interrupted %llu false %llu swallowed %llu", (unsigned long long)waits,
                 (unsigned long long)handled, (unsigned long long)interrupted, (unsigned long long)false_ones, (unsigned long long)swallowed);
        say(text);
    }
}
