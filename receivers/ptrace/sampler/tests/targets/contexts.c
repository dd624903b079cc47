/* `contexts [LIBRARY]`: publishes its process context and its threads' contexts, in its own variable or, compiled with
 * `-DLIBRARY`, in the variable of a library. Three threads print `thread ID TRACE SPAN NAME POINTER`: one sleeps, one
 * sleeps and runs by turns, one runs. A fourth publishes nothing and prints `none ID`. On a line `show NAME` the
 * process publishes its context (again) under that name; on `fork` it starts a child that sleeps most of the time, and
 * prints `child ID`; on `exec` it executes itself. With `quiet` as the last argument it publishes the process context
 * only on request. */
#include "contexts.h"
#include <dlfcn.h>

static pthread_barrier_t said;
static void (*set)(const uint8_t *, const char *);

#ifndef LIBRARY
SHOWN __thread struct record *otel_thread_ctx_v1;
static __thread struct record own;

static void set_own(const uint8_t *ids, const char *attribute) {
    write_record(&own, ids, attribute);
    otel_thread_ctx_v1 = &own;
}
#endif

static void introduce(const char *name) {
    uint8_t ids[24];
    char text[256];
    int length = snprintf(text, sizeof text, "thread %ld ", syscall(SYS_gettid));
    must(getentropy(ids, sizeof ids) == 0, "getentropy");
    for (int i = 0; i < 24; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, i == 16 ? " %02x" : "%02x", ids[i]);
    snprintf(text + length, sizeof text - (size_t)length, " %s %llu", name, (unsigned long long)pthread_self());
    set(ids, name);
    say(text);
    pthread_barrier_wait(&said);
}

static void *sleeper(void *unused) {
    introduce("sleeper");
    for (;;)
        pause();
    return unused;
}

static void *blinker(void *unused) {
    introduce("blinker");
    for (;;) {
        struct timespec time = {0, 3000000};
        nanosleep(&time, NULL);
        burn(100000);
    }
    return unused;
}

NOINLINE static void *spinner(void *unused) {
    introduce("spinner");
    for (;;)
        burn(100000);
    return unused;
}

static void *none(void *unused) {
    char text[64];
    snprintf(text, sizeof text, "none %ld", syscall(SYS_gettid));
    say(text);
    pthread_barrier_wait(&said);
    for (;;)
        pause();
    return unused;
}

int main(int count, char **arguments) {
    int quiet = count > 1 && strcmp(arguments[count - 1], "quiet") == 0;
#ifdef LIBRARY
    void *library = dlopen(arguments[1], RTLD_NOW);
    must(library != NULL, "dlopen");
    set = (void (*)(const uint8_t *, const char *))dlsym(library, "set_context");
#else
    set = set_own;
#endif
    pthread_barrier_init(&said, NULL, 5);
    if (!quiet)
        show_process("first");
    void *(*bodies[])(void *) = {sleeper, blinker, spinner, none};
    for (int i = 0; i < 4; i++)
        start_thread(bodies[i], NULL, 64 << 10);
    pthread_barrier_wait(&said);
    say("ready");
    for (;;) {
        char line[64];
        await_line(line, sizeof line);
        if (strncmp(line, "show ", 5) == 0) {
            show_process(line + 5);
            say("shown");
        } else if (strcmp(line, "exec") == 0) {
            execv("/proc/self/exe", arguments);
        } else if (strcmp(line, "fork") == 0) {
            uint8_t ids[24] = {1, [16] = 2};
            set(ids, NULL);
            pid_t child = fork();
            if (child == 0) {
                for (;;)
                    usleep(2000);
            }
            snprintf(line, sizeof line, "child %d", child);
            say(line);
        } else if (strcmp(line, "end") == 0) {
            _exit(0);
        }
    }
}
