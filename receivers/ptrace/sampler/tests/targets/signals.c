/* `signals`: a thread that spins in `worked_on` gets a thousand queued real-time signals a second, each with a number.
 * Each line of input pauses the sending until it is answered with `sent COUNT handled COUNT disordered COUNT`. */
#include "common.h"

static pthread_t target;
static volatile uint64_t sent, handled, disordered;
static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER;

NOINLINE static void worked_on(void) {
    for (;;)
        burn(1000000);
}

NOINLINE static void handle(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    if ((uint64_t)(uintptr_t)info->si_value.sival_ptr != handled)
        disordered++;
    handled++;
}

static void *spin(void *unused) {
    worked_on();
    return unused;
}

static void *send(void *unused) {
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (;;) {
        next.tv_nsec += 1000000;
        if (next.tv_nsec >= 1000000000) {
            next.tv_nsec -= 1000000000;
            next.tv_sec++;
        }
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL) != 0) {
        }
        pthread_mutex_lock(&sending);
        union sigval value = {.sival_ptr = (void *)(uintptr_t)sent};
        if (pthread_sigqueue(target, SIGRTMIN, value) == 0)
            sent++;
        pthread_mutex_unlock(&sending);
    }
    return unused;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART};
    must(sigaction(SIGRTMIN, &action, NULL) == 0, "sigaction");
    target = start_thread(spin, NULL, 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    start_thread(send, NULL, 0);
    say("ready");
    for (;;) {
        char line[64], text[128];
        await_line(line, sizeof line);
        pthread_mutex_lock(&sending);
        while (handled < sent)
            sched_yield();
        snprintf(text, sizeof text, "sent %llu handled %llu disordered %llu", (unsigned long long)sent,
                 (unsigned long long)handled, (unsigned long long)disordered);
        say(text);
        pthread_mutex_unlock(&sending);
    }
}
