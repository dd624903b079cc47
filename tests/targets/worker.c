// A program that is told when it was looked at: it computes until its standard input ends, and half a second of processor time beyond.
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) uint64_t toil(uint64_t x) {
    for (int step = 0; step < 1000000; step++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
    }
    return x;
}

static double used(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

// Whether nothing comes from standard input any more.
static int is_over(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char bytes[64];
    return poll(&input, 1, 0) > 0 && read(0, bytes, sizeof bytes) <= 0;
}

int main(void) {
    puts("ready");
    fflush(stdout);
    uint64_t x = 1;
    while (!is_over()) {
        x = toil(x);
    }
    for (double end = used() + 0.5; used() < end;) {
        x = toil(x);
    }
    printf("%d\n", (int)(x & 1));
    return 0;
}
