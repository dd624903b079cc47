/* `own_clock`: four threads on one CPU, which measure how long each of their functions takes. A line of input with a
 * number starts them for that many seconds; then a line
 *     THREAD FUNCTION NANOSECONDS
 * is printed for each function of each thread, and "done" follows. Three functions compute a fixed amount, so a
 * preemption does not change what a thread does next. */
#include "common.h"

#define THREADS 4
#define FUNCTIONS 4

static uint64_t rounds;
static volatile int64_t end;

#define COMPUTES(name, milliseconds)                                                                                                  \
    NOINLINE static void name(void) {                                                                                                 \
        burn(rounds * milliseconds);                                                                                                  \
        KEEP_FRAME();                                                                                                                 \
    }
COMPUTES(computes_long, 8)
COMPUTES(computes_short, 3)
COMPUTES(computes_briefly, 1)

NOINLINE static void sleeps(void) {
    usleep(4000);
    KEEP_FRAME();
}

static void (*const functions[FUNCTIONS])(void) = {computes_long, computes_short, computes_briefly, sleeps};
static const char *const names[FUNCTIONS] = {"computes_long", "computes_short", "computes_briefly", "sleeps"};

struct own {
    pthread_t handle;
    long thread;
    int64_t took[FUNCTIONS];
};

static void *runs(void *argument) {
    struct own *own = argument;
    own->thread = syscall(SYS_gettid);
    int64_t before = now_nano();
    while (before < end)
        for (int i = 0; i < FUNCTIONS; i++) {
            functions[i]();
            int64_t now = now_nano();
            own->took[i] += now - before;
            before = now;
        }
    return NULL;
}

int main(void) {
    static struct own own[THREADS];
    char line[64];
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    must(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
    struct timespec cpu[2];
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[0]);
    burn(4000000);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[1]);
    int64_t took = (cpu[1].tv_sec - cpu[0].tv_sec) * 1000000000 + cpu[1].tv_nsec - cpu[0].tv_nsec;
    rounds = 4000000ull * 1000000 / (uint64_t)took;
    say("ready");
    await_line(line, sizeof line);
    end = now_nano() + atoi(line) * 1000000000ll;
    for (int i = 0; i < THREADS; i++)
        must(pthread_create(&own[i].handle, NULL, runs, &own[i]) == 0, "pthread_create");
    for (int i = 0; i < THREADS; i++)
        pthread_join(own[i].handle, NULL);
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < FUNCTIONS; k++) {
            snprintf(line, sizeof line, "%ld %s %lld", own[i].thread, names[k], (long long)own[i].took[k]);
            say(line);
        }
    say("done");
    await_line(line, sizeof line);
    return 0;
}
