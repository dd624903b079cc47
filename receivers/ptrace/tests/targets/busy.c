/* `busy BUSY IDLE [unlink]`: BUSY threads that spin in outer > middle > leaf, IDLE threads that wait forever, and a main thread that
 * answers each line of its input with
 *     work ITERATIONS gaps COUNT NANOSECONDS LONGEST BUCKETS...
 * where a gap is time for which a busy thread did not run although it wanted to: more than 2 us between two readings of the time
 * stamp counter, and bucket N counts those of up to 2^N us. With `unlink` it removes its own executable first. */
#include "common.h"
#include <x86intrin.h>

enum { BUCKETS = 24, MOST = 4096 };

struct worker {
    _Alignas(64) volatile uint64_t iterations;
    volatile uint64_t gaps, gap_ticks, longest;
    volatile uint64_t buckets[BUCKETS];
};
static struct worker workers[MOST];
static double nano_per_tick;
static pthread_barrier_t started;

NOINLINE static void record(struct worker *me, uint64_t ticks) {
    uint64_t micro = (uint64_t)((double)ticks * nano_per_tick / 1000.0);
    int bucket = 0;
    while (bucket + 1 < BUCKETS && (1ull << bucket) < micro)
        bucket++;
    me->gaps++;
    me->gap_ticks += ticks;
    if (ticks > me->longest)
        me->longest = ticks;
    me->buckets[bucket]++;
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
    /* A mutex that nobody unlocks: what idle threads of pools do, with the frames of a real one. */
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

static void answer(int threads) {
    uint64_t iterations = 0, gaps = 0, ticks = 0, longest = 0, buckets[BUCKETS] = {0};
    for (int i = 0; i < threads; i++) {
        iterations += workers[i].iterations;
        gaps += workers[i].gaps;
        ticks += workers[i].gap_ticks;
        if (workers[i].longest > longest)
            longest = workers[i].longest;
        workers[i].longest = 0;
        for (int j = 0; j < BUCKETS; j++)
            buckets[j] += workers[i].buckets[j];
    }
    char text[1024];
    int length = snprintf(text, sizeof text, "work %llu gaps %llu %.0f %.0f", (unsigned long long)iterations,
                          (unsigned long long)gaps, (double)ticks * nano_per_tick, (double)longest * nano_per_tick);
    for (int j = 0; j < BUCKETS; j++)
        length += snprintf(text + length, sizeof text - (size_t)length, " %llu", (unsigned long long)buckets[j]);
    text[length++] = '\n';
    must(write(1, text, (size_t)length) == length, "write");
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
        answer(busy_threads);
    }
}
