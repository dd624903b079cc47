// A program that spends its processor time as its arguments say: `known WHAT SECONDS`.
//
//   shares     70 %, 20 % and 10 % in three functions, in turns
//   sleep      one thread runs, without end, and eight sleep
//   held       as `shares`, until its standard input ends
//
// Ends after SECONDS of processor time (of each thread): how fast the machine is, and what else it does, makes no difference
// to what can be seen of it. `shares` and `held` print what they measured of themselves, function and nanoseconds; `sleep`
// says "ready" when all of its threads sleep. `held` and `sleep` are told by a line on
// standard input that they are sampled, use a second of processor time more, and say "seen".
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;
static uint64_t limit;

// Each step needs the result of the one before it, so that where the loop lies in memory makes no difference.
#define BURN(steps)                                                                                                    \
    do {                                                                                                               \
        uint64_t x = sink;                                                                                             \
        for (uint64_t i = 0; i < (steps); i++)                                                                         \
            x = x * 6364136223846793005u + 1442695040888963407u;                                                       \
        sink = x;                                                                                                      \
    } while (0)

static uint64_t used(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Whether the calling thread has worked for long enough.
static int enough(void) { return used() >= limit; }

// Reads what there is on standard input: whether that ended. A second of processor time after a line came it says "seen".
static int input_ended(void) {
    static uint64_t due = UINT64_MAX;
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, 0) > 0) {
        char line[64];
        if (read(STDIN_FILENO, line, sizeof line) <= 0)
            return 1;
        due = used() + 1000000000u;
    }
    if (used() >= due) {
        puts("seen");
        fflush(stdout);
        due = UINT64_MAX;
    }
    return 0;
}

#define WORK __attribute__((noinline, noclone))

WORK void seventy(uint64_t unit) { BURN(7 * unit); sink++; }
WORK void twenty(uint64_t unit) { BURN(2 * unit); sink++; }
WORK void ten(uint64_t unit) { BURN(unit); sink++; }

// How many milliseconds a function works before the clock is looked at. A kernel that shares a processor out prefers to do
// that at system calls, so if there were many, threads that wait for their turn would be seen there.
#define TURN 40

// How many steps take a millisecond: by the fastest of several attempts, since on a virtual machine any may be held up.
static uint64_t calibrate(void) {
    uint64_t fastest = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        uint64_t start = used();
        BURN(100000);
        uint64_t passed = used() - start;
        if (passed && passed < fastest)
            fastest = passed;
    }
    return 100000ull * 1000000ull / fastest;
}

static void shares(int held) {
    // Long turns: where one ends, the time since the last sample may be taken for the next one's.
    uint64_t unit = calibrate() * (held ? 10 : 200), spent[3] = {0, 0, 0};
    do {
        uint64_t a = used();
        seventy(unit);
        uint64_t b = used();
        twenty(unit);
        uint64_t c = used();
        ten(unit);
        spent[0] += b - a;
        spent[1] += c - b;
        spent[2] += used() - c;
    } while (!(held ? input_ended() : enough()));
    printf("seventy %llu\ntwenty %llu\nten %llu\n", (unsigned long long)spent[0], (unsigned long long)spent[1],
           (unsigned long long)spent[2]);
}

WORK void first_work(uint64_t steps) { BURN(steps); sink++; }

static volatile int dozers[8];

WORK void *doze(void *argument) {
    pthread_setname_np(pthread_self(), "dozer");
    *(volatile int *)argument = gettid();
    pause();
    sink++;
    return argument;
}

WORK void spin(void) {
    uint64_t steps = calibrate() * TURN;
    for (;;) {
        first_work(steps);
        input_ended();
    }
}

// Waits until a thread waits in a system call: `/proc` says "running" where it does not.
static void until_asleep(volatile int *thread) {
    for (int asleep = 0; !asleep;) {
        char path[64], call[16] = "";
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", *thread);
        FILE *file = fopen(path, "r");
        if (file) {
            asleep = fgets(call, sizeof call, file) && call[0] >= '0' && call[0] <= '9';
            fclose(file);
        }
        sched_yield();
    }
}

int main(int count, char **arguments) {
    if (count != 3)
        return 64;
    const char *what = arguments[1];
    limit = (uint64_t)(atof(arguments[2]) * 1e9);
    pthread_t threads[8];
    if (!strcmp(what, "shares") || !strcmp(what, "held")) {
        shares(what[0] == 'h');
    } else if (!strcmp(what, "sleep")) {
        for (int i = 0; i < 8; i++)
            pthread_create(&threads[i], NULL, doze, (void *)&dozers[i]);
        for (int i = 0; i < 8; i++)
            until_asleep(&dozers[i]);
        puts("ready");
        fflush(stdout);
        spin();
    } else {
        return 64;
    }
    return 0;
}
