/* `stream [signals]`: one thread writes consecutive numbers to a pipe, a MiB with each call, and the rest of it after a
 * short write; another thread reads and compares them; a third computes. With `signals` the writer computes instead,
 * for so long before each MiB that it is hardly ever in the kernel, and both threads get a signal each millisecond,
 * whose handler was installed without SA_RESTART. Each line of input is answered with
 *     mebibytes COUNT breaks COUNT failed COUNT work COUNT signals COUNT
 * where a break is a number out of order, and a failed call is one with an error (with `signals`: other than EINTR). */
#include "common.h"

enum { SIZE = 1 << 20, COMPUTED = 60000000 };

static int ends[2], with_signals;
static volatile uint64_t mebibytes, breaks, failed, work, signals;

static void on_signal(int number) {
    (void)number;
    __atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED);
}

/* Sends the calling thread a signal each millisecond. */
static void get_signals(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1, ._sigev_un._tid = gettid()};
    struct itimerspec each = {.it_interval.tv_nsec = 1000000, .it_value.tv_nsec = 1000000};
    timer_t timer;
    must(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &each, NULL) == 0, "timer");
}

static void count_failure(void) {
    if (!with_signals || errno != EINTR)
        failed++;
}

static void *writes(void *unused) {
    static uint64_t numbers[SIZE / 8];
    if (with_signals)
        get_signals();
    for (uint64_t next = 0;;) {
        if (with_signals) {
            burn(COMPUTED);
            work++;
        }
        for (int i = 0; i < SIZE / 8; i++)
            numbers[i] = next++;
        for (size_t done = 0; done < SIZE;) {
            ssize_t moved = write(ends[1], (char *)numbers + done, SIZE - done);
            if (moved < 0)
                count_failure();
            else
                done += (size_t)moved;
        }
    }
    return unused;
}

static void *compares(void *unused) {
    static uint64_t numbers[SIZE / 8];
    if (with_signals)
        get_signals();
    for (uint64_t next = 0;; mebibytes++) {
        for (size_t done = 0; done < SIZE;) {
            ssize_t moved = read(ends[0], (char *)numbers + done, SIZE - done);
            if (moved < 0)
                count_failure();
            else
                done += (size_t)moved;
        }
        for (int i = 0; i < SIZE / 8; i++, next = numbers[i - 1] + 1)
            breaks += numbers[i] != next;
    }
    return unused;
}

static void *computes(void *unused) {
    for (;; work++)
        burn(100000);
    return unused;
}

int main(int count, char **arguments) {
    (void)arguments;
    with_signals = count > 1;
    struct sigaction action = {.sa_handler = on_signal};
    must(pipe(ends) == 0 && sigaction(SIGUSR1, &action, NULL) == 0, "pipe");
    start_thread(writes, NULL, 0);
    start_thread(compares, NULL, 0);
    if (!with_signals)
        start_thread(computes, NULL, 0);
    say("ready");
    for (;;) {
        char line[64], text[160];
        await_line(line, sizeof line);
        snprintf(text, sizeof text, "mebibytes %llu breaks %llu failed %llu work %llu signals %llu",
                 (unsigned long long)mebibytes, (unsigned long long)breaks, (unsigned long long)failed,
                 (unsigned long long)work, (unsigned long long)signals);
        say(text);
    }
}
