// Threads that take turns of a few milliseconds: some compute, one sleeps, and the first writes through a pipe as well.
// Arguments: seconds, and the number of threads.
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sum;
static double end;
static int ends[2];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void compute(double seconds) {
    for (double until = now() + seconds; now() < until;)
        for (int i = 0; i < 300; i++) sum += i * i;
}

#define TURN(name, seconds) __attribute__((noinline)) void name(void) { compute(seconds); sum++; }
TURN(eight, .008)
TURN(five, .005)
TURN(three, .003)
TURN(two, .002)

__attribute__((noinline)) void rest(void) {
    usleep(4000);
    sum++;
}

__attribute__((noinline)) void through_pipe(void) {
    static char bytes[60000];
    for (int i = 0; i < 8; i++)
        if (write(ends[1], bytes, sizeof bytes) < 0 || read(ends[0], bytes, sizeof bytes) < 0) abort();
    sum++;
}

static void *take_turns(void *is_first) {
    void (*turns[])(void) = {eight, five, three, two, rest};
    while (now() < end) {
        for (int i = 0; i < 5; i++) turns[i]();
        if (is_first) through_pipe();
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count < 3 || pipe(ends)) return 1;
    int threads = atoi(arguments[2]);
    end = now() + atof(arguments[1]);
    pthread_t all[64];
    for (int i = 0; i < threads && i < 64; i++) pthread_create(&all[i], 0, take_turns, i ? 0 : &all);
    for (int i = 0; i < threads && i < 64; i++) pthread_join(all[i], 0);
}
