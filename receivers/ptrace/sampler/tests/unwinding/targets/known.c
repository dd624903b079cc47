// Functions with known callers, for the unwinder: in each mode the program prints the addresses of the functions
// through which it reaches spin(), innermost first, and then spins there.
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone))
static volatile unsigned count;
static volatile int zero;

FUNCTION void spin(void) {
    for (;;) count++;
}

// Functions without a frame pointer; one changes its frame around its call.
FUNCTION int second(int a, int b) {
    spin();
    return a + b + zero;
}
FUNCTION int first(int a) {
    char room[3000];
    memset(room, a, sizeof room);
    int sum = second(a, room[zero]) + second(a + 1, room[zero + 1]);
    return sum + room[a & 7];
}

// A function that realigns its stack, and extends it by a size that its caller gives.
typedef double wide __attribute__((vector_size(32)));
FUNCTION void fill(void *place) {
    __asm__ volatile("" : : "r"(place) : "memory");
}
FUNCTION int realigned(int n) {
    wide here __attribute__((aligned(64)));
    char *more = alloca(n * 16 + 8);
    memset(more, n, n * 16);
    fill(&here);
    fill(more);
    spin();
    return more[n] + zero;
}

// A function that extends its stack by a size that its caller gives, and is called through a pointer.
FUNCTION int growing(int n) {
    char *more = alloca(n * 16 + 8);
    memset(more, n, n * 16);
    fill(more);
    spin();
    return more[n] + zero;
}
static int (*volatile unnamed)(int) = growing;
FUNCTION int indirect(int n) {
    int (*function)(int) = unnamed;
    __asm__ volatile("" : "+r"(function));
    return function(n) + zero;
}

// A deep recursion that the compiler does not turn into a loop.
FUNCTION int deep(int n) {
    volatile int local = n;
    if (n > 0) return deep(n - 1) + local;
    spin();
    return local;
}

// A signal handler, and code interrupted by a signal: in raise(), and at a fault in a function without calls.
static void handler(int signal) {
    (void)signal;
    spin();
    count++;
}
FUNCTION int interrupted(int n) {
    raise(n);
    return n + zero;
}
FUNCTION int interrupted_loop(void) {
    int *nowhere = (int *)(long)zero;
    return *nowhere + zero;
}

FUNCTION void *thread(void *argument) {
    (void)argument;
    first(1);
    return NULL;
}

static void say(void *function) {
    printf("%lx\n", (unsigned long)function);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    int depth = argc > 2 ? atoi(argv[2]) : 10;
    say((void *)spin);
    if (!strcmp(mode, "plain") || !strcmp(mode, "thread")) {
        say((void *)second);
        say((void *)first);
    } else if (!strcmp(mode, "realigned")) {
        say((void *)realigned);
    } else if (!strcmp(mode, "indirect")) {
        say((void *)growing);
        say((void *)indirect);
    } else if (!strcmp(mode, "deep")) {
        say((void *)deep);
    } else {
        say((void *)handler);
        say((void *)(!strcmp(mode, "fault") || !strcmp(mode, "fault-alternate") ? interrupted_loop : (void *)interrupted));
    }
    say((void *)(!strcmp(mode, "thread") ? (void *)thread : (void *)main));
    puts("");
    fflush(stdout);

    if (strstr(mode, "alternate")) {
        stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
        sigaltstack(&stack, NULL);
    }
    struct sigaction action = {.sa_handler = handler, .sa_flags = strstr(mode, "alternate") ? SA_ONSTACK : 0};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);

    if (!strcmp(mode, "plain")) return first(depth);
    if (!strcmp(mode, "realigned")) return realigned(depth);
    if (!strcmp(mode, "indirect")) return indirect(depth);
    if (!strcmp(mode, "deep")) return deep(depth);
    if (!strncmp(mode, "signal", 6)) return interrupted(SIGUSR1);
    if (!strncmp(mode, "fault", 5)) return interrupted_loop();
    pthread_t other;
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    return 0;
}
