/* `vfork`: one thread spins in `unaffected`; another starts one child after the other by vfork, and is in state D until
 * the child ends, which it does on a line of input. Prints "ready" in each child. */
#include "common.h"

static int to_child[2];

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
        char c;
        say("ready");
        /* The child must have no writing end of the pipe, so that it ends with its parent, too. */
        close(to_child[1]);
        while (read(to_child[0], &c, 1) < 0 && errno == EINTR) {
        }
        _exit(0);
    }
    must(child > 0 && waitpid(child, NULL, 0) == child, "vfork");
}

static void *starts(void *unused) {
    for (;;)
        wait_in_vfork();
    return unused;
}

int main(void) {
    must(pipe(to_child) == 0, "pipe");
    start_thread(spin, NULL, 0);
    start_thread(starts, NULL, 0);
    for (;;) {
        char line[64];
        await_line(line, sizeof line);
        must(write(to_child[1], "x", 1) == 1, "write");
    }
}
