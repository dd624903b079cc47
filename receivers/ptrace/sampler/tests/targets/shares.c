/* Known shares of CPU time: one thread spends 70 %, 20 % and 10 % of its CPU time in `seventy`, `twenty` and `ten`
 * (each measures its share with the thread's CPU clock, so that other programs on the machine change nothing), two
 * threads run only in `alone_a` and `alone_b`, one sleeps in `sleeper`, and one recurses fifty calls deep in
 * `recursion`. */
#include "common.h"

static int64_t thread_nano(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#define SPENDER(name)                                                                                                                 \
    NOINLINE static uint64_t name(int64_t until) {                                                                                    \
        volatile uint64_t x = __COUNTER__ + 1; /* Makes all functions differ. */                                                        \
        do {                                                                                                                          \
            for (int i = 0; i < 2000; i++)                                                                                            \
                x = x * 6364136223846793005ull + 1442695040888963407ull;                                                              \
        } while (thread_nano() < until);                                                                                              \
        return x;                                                                                                                     \
    }
SPENDER(seventy)
SPENDER(twenty)
SPENDER(ten)
SPENDER(alone_a)
SPENDER(alone_b)
SPENDER(bottom)

static void *shares(void *unused) {
    (void)unused;
    /* Time is summed over turns: a function that runs too long in one turn runs shorter in its next one. */
    int64_t spent[3] = {0}, wanted[3] = {0};
    static const int64_t share[3] = {7, 2, 1};
    static uint64_t (*const spenders[3])(int64_t) = {seventy, twenty, ten};
    for (;;) {
        for (int i = 0; i < 3; i++) {
            wanted[i] += share[i] * 1300000;
            int64_t before = thread_nano();
            if (spent[i] < wanted[i])
                spenders[i](before + wanted[i] - spent[i]);
            spent[i] += thread_nano() - before;
        }
    }
    return NULL;
}

static void *thread_a(void *unused) {
    alone_a(INT64_MAX);
    return unused;
}

static void *thread_b(void *unused) {
    alone_b(INT64_MAX);
    return unused;
}

NOINLINE static void sleeper(void) {
    struct timespec day = {86400, 0};
    for (;;)
        nanosleep(&day, NULL);
}

static void *asleep(void *unused) {
    sleeper();
    return unused;
}

NOINLINE static void recursion(int depth) {
    if (depth == 0)
        bottom(INT64_MAX);
    else
        recursion(depth - 1);
    KEEP_FRAME();
}

static void *recursive(void *unused) {
    recursion(49);
    return unused;
}

int main(int count, char **arguments) {
    /* `shares all` also starts the threads besides the one with the shares. */
    start_thread(shares, NULL, 0);
    if (count > 1 && strcmp(arguments[1], "all") == 0) {
        start_thread(thread_a, NULL, 0);
        start_thread(thread_b, NULL, 0);
        start_thread(recursive, NULL, 0);
        start_thread(asleep, NULL, 0);
    }
    say("ready");
    until_end();
}
