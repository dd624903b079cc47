/* `busy BUSY IDLE [unlink]`: BUSY threads spin in outer > middle > leaf, and IDLE threads wait forever. The main thread
 * answers lines of its input: `gaps` with all gaps since the last time, as `gaps NANOSECONDS...`, and any other line
 * with `work ITERATIONS`. A gap is a time in which a busy thread did not run: more than 2 us between two readings of
 * the time stamp counter. With `unlink` the program removes its own executable first. */
#include "common.h"
#include <x86intrin.h>

enum { GAPS = 1 << 15, MOST = 64 };

struct worker {
    _Alignas(64) volatile uint64_t iterations;
    volatile uint64_t gaps;
    volatile uint32_t nano[GAPS];
};
static struct worker workers[MOST];
static double nano_per_tick;
static pthread_barrier_t started;

NOINLINE static void record(struct worker *me, uint64_t ticks) {
    double nano = (double)ticks * nano_per_tick;
    me->nano[me->gaps % GAPS] = nano < 4e9 ? (uint32_t)nano : 4000000000u;
    me->gaps++;
}

NOINLINE static void leaf(struct worker *me, uint64_t rounds) {
    uint64_t threshold = (uint64_t)(2000.0 / nano_per_tick);
    uint64_t x = 88172645463325252ull, last = __rdtsc();
    for (uint64_t i = 0; i < rounds; i++) {
        for (int j = 0; j < 64; j++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            __asm__ volatile("" : "+r"(x));
        }
        uint64_t now = __rdtsc();
        if (now - last > threshold)
            record(me, now - last);
        last = now;
        me->iterations++;
    }
}

NOINLINE static void middle(struct worker *me, uint64_t rounds) {
    leaf(me, rounds);
    KEEP_FRAME();
}

NOINLINE static void outer(struct worker *me) {
    for (;;)
        middle(me, 10000000);
}

static void *busy(void *me) {
    pthread_barrier_wait(&started);
    outer(me);
    return NULL;
}

NOINLINE static void wait_forever(void) {
    /* Waits like an idle thread of a pool, with the same frames: the condition is never signalled. */
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    for (;;)
        pthread_cond_wait(&never, &mutex);
}

static void *idle(void *unused) {
    (void)unused;
    pthread_barrier_wait(&started);
    wait_forever();
    return NULL;
}

static void answer_work(int threads) {
    uint64_t iterations = 0;
    char text[64];
    for (int i = 0; i < threads; i++)
        iterations += workers[i].iterations;
    snprintf(text, sizeof text, "work %llu", (unsigned long long)iterations);
    say(text);
}

static void answer_gaps(int threads) {
    static uint64_t told[MOST];
    printf("gaps");
    for (int i = 0; i < threads; i++) {
        uint64_t gaps = workers[i].gaps;
        if (gaps - told[i] > GAPS)
            told[i] = gaps - GAPS;
        for (; told[i] < gaps; told[i]++)
            printf(" %u", workers[i].nano[told[i] % GAPS]);
    }
    printf("\n");
    fflush(stdout);
}

int main(int count, char **arguments) {
    must(count >= 3, "usage: busy BUSY IDLE [unlink]");
    int busy_threads = atoi(arguments[1]), idle_threads = atoi(arguments[2]);
    must(busy_threads <= MOST, "too many threads");
    if (count > 3)
        must(unlink(arguments[0]) == 0, "unlink");
    int64_t start = now_nano();
    uint64_t ticks = __rdtsc();
    while (now_nano() - start < 20000000) {
    }
    nano_per_tick = (double)(now_nano() - start) / (double)(__rdtsc() - ticks);
    pthread_barrier_init(&started, NULL, (unsigned)(busy_threads + idle_threads + 1));
    for (int i = 0; i < busy_threads; i++)
        start_thread(busy, &workers[i], 64 << 10);
    for (int i = 0; i < idle_threads; i++)
        start_thread(idle, NULL, 64 << 10);
    pthread_barrier_wait(&started);
    say("ready");
    char line[64];
    for (;;) {
        await_line(line, sizeof line);
        if (strcmp(line, "gaps") == 0)
            answer_gaps(busy_threads);
        else
            answer_work(busy_threads);
    }
}
