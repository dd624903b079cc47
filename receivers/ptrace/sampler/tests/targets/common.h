/* Shared by all targets. A target prints "ready" once it does what its first comment describes, and ends at the end of
 * its standard input, so that no target outlives its test. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Marks a function that must keep its own frame: it is neither inlined nor merged with an identical function, and ends
 * in no tail call if `KEEP_FRAME` is its last statement. */
#if defined(__clang__)
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone, no_icf))
#endif
#define KEEP_FRAME() __asm__ volatile("" ::: "memory")

static inline void say(const char *line) {
    char text[256];
    int length = snprintf(text, sizeof text, "%s\n", line);
    if (write(1, text, (size_t)length) != length)
        _exit(3);
}

static inline void must(int good, const char *what) {
    if (!good) {
        perror(what);
        _exit(4);
    }
}

static inline int64_t now_nano(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Uses CPU time of the calling thread. */
NOINLINE __attribute__((unused)) static uint64_t burn(uint64_t rounds) {
    volatile uint64_t x = 88172645463325252ull;
    for (uint64_t i = 0; i < rounds; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

/* Reads a line of the standard input; ends the process at its end. */
static inline void await_line(char *line, int size) {
    int length = 0;
    for (;;) {
        char c;
        ssize_t got = read(0, &c, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != 1)
            _exit(0);
        if (c == '\n')
            break;
        if (length + 1 < size)
            line[length++] = c;
    }
    line[length] = 0;
}

/* Blocks until the standard input ends, then ends the process. */
static inline void until_end(void) {
    char line[64];
    for (;;)
        await_line(line, sizeof line);
}

static inline pthread_t start_thread(void *(*body)(void *), void *argument, size_t stack) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack)
        pthread_attr_setstacksize(&attributes, stack);
    must((errno = pthread_create(&thread, &attributes, body, argument)) == 0, "pthread_create");
    pthread_attr_destroy(&attributes);
    return thread;
}
