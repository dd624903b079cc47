/* `switches WORK_MICROSECONDS`: two threads on one processor take turns: each works for so long, wakes the other through a pipe and waits for it,
 * so that the processor is switched with each turn. Each line of input is answered with
 *     turns COUNT cpu NANOSECONDS
 * since the start, the processor time being the process's. */
#include "common.h"

static int there[2], back[2];
static volatile uint64_t turns;
static uint64_t rounds;

static int64_t nano(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *take_turns(void *first) {
    int from = first ? back[0] : there[0], to = first ? there[1] : back[1];
    char turn = 0;
    for (;;) {
        if (read(from, &turn, 1) != 1)
            _exit(5);
        burn(rounds);
        turns++;
        if (write(to, &turn, 1) != 1)
            _exit(5);
    }
    return first;
}

int main(int count, char **arguments) {
    must(count == 2, "usage: switches WORK_MICROSECONDS");
    enum { TRIAL = 200000 };
    burn(TRIAL);
    int64_t before = nano(CLOCK_THREAD_CPUTIME_ID);
    burn(TRIAL);
    rounds = (uint64_t)((double)TRIAL * atof(arguments[1]) * 1000 / (double)(nano(CLOCK_THREAD_CPUTIME_ID) - before));
    must(pipe(there) == 0 && pipe(back) == 0, "pipe");
    /* Threads start on the processors that the one that starts them may use. */
    cpu_set_t all, one;
    must(sched_getaffinity(0, sizeof all, &all) == 0, "sched_getaffinity");
    int last = CPU_SETSIZE - 1;
    while (last > 0 && !CPU_ISSET(last, &all))
        last--;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    must(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
    start_thread(take_turns, NULL, 0);
    start_thread(take_turns, there, 0);
    must(write(there[1], "x", 1) == 1, "write");
    must(sched_setaffinity(0, sizeof all, &all) == 0, "sched_setaffinity");
    say("ready");
    for (;;) {
        char line[64], text[96];
        await_line(line, sizeof line);
        snprintf(text, sizeof text, "turns %llu cpu %lld", (unsigned long long)turns, (long long)nano(CLOCK_PROCESS_CPUTIME_ID));
        say(text);
    }
}
