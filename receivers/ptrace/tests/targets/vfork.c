/* `vfork`: one thread spins in `unaffected`; another starts children by vfork, each of which sleeps for a second before it ends, so that
 * the thread spends its life in state D. Each line of input is answered with `children COUNT`. */
#include "common.h"

static volatile uint64_t children;

NOINLINE static void unaffected(void) {
    for (;;)
        burn(1000000);
}

static void *spin(void *unused) {
    unaffected();
    return unused;
}

NOINLINE static void wait_in_vfork(void) {
    pid_t child = vfork();
    if (child == 0) {
        struct timespec second = {1, 0};
        nanosleep(&second, NULL);
        _exit(0);
    }
    must(child > 0 && waitpid(child, NULL, 0) == child, "vfork");
    children++;
}

static void *starts(void *unused) {
    for (;;)
        wait_in_vfork();
    return unused;
}

int main(void) {
    start_thread(spin, NULL, 0);
    start_thread(starts, NULL, 0);
    say("ready");
    for (;;) {
        char line[64], text[64];
        await_line(line, sizeof line);
        snprintf(text, sizeof text, "children %llu", (unsigned long long)children);
        say(text);
    }
}
