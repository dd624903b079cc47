/* `wakes THREADS`: this many threads are woken five times a second each, and sum up how long they were in each of two
 * functions. A line of input with a number starts them for that many seconds; then a line
 *     FUNCTION NANOSECONDS
 * is printed for each function, and "done" follows. */
#include "common.h"

struct own {
    pthread_t handle;
    unsigned seed;
    int64_t took[2];
};

static volatile int64_t end;
static pthread_barrier_t begin;

/* Waits for 50 to 150 % of the given time. */
#define WAITS(name, milliseconds)                                                                                                     \
    NOINLINE static void name(unsigned *seed) {                                                                                       \
        usleep(milliseconds * 500 + rand_r(seed) % (milliseconds * 1000));                                                            \
        KEEP_FRAME();                                                                                                                 \
    }
WAITS(waits_long, 280)
WAITS(waits_short, 120)

static void *runs(void *argument) {
    struct own *own = argument;
    own->seed = (unsigned)syscall(SYS_gettid);
    pthread_barrier_wait(&begin);
    int64_t before = now_nano();
    while (before < end)
        for (int i = 0; i < 2; i++) {
            (i ? waits_short : waits_long)(&own->seed);
            int64_t now = now_nano();
            own->took[i] += now - before;
            before = now;
        }
    return NULL;
}

int main(int count, char **arguments) {
    int threads = count > 1 ? atoi(arguments[1]) : 1;
    struct own *own = calloc((size_t)threads, sizeof *own);
    int64_t took[2] = {0, 0};
    char line[64];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++)
        must(pthread_create(&own[i].handle, &attributes, runs, &own[i]) == 0, "pthread_create");
    say("ready");
    await_line(line, sizeof line);
    end = now_nano() + atoi(line) * 1000000000ll;
    pthread_barrier_wait(&begin);
    for (int i = 0; i < threads; i++) {
        pthread_join(own[i].handle, NULL);
        took[0] += own[i].took[0];
        took[1] += own[i].took[1];
    }
    snprintf(line, sizeof line, "waits_long %lld", (long long)took[0]);
    say(line);
    snprintf(line, sizeof line, "waits_short %lld", (long long)took[1]);
    say(line);
    say("done");
    await_line(line, sizeof line);
    return 0;
}
