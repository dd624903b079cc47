/* `exec_chain N [PROGRAM]`: spins in `link_of_chain` on more threads than there are CPUs. On a line of input a thread
 * that is not the leader executes the same program (or PROGRAM, as the last link) with N - 1. Each link prints "link
 * N". The last one spins until the end of its input. */
#include "common.h"

enum { SPINNERS = 16 };

static char *program;
static char *arguments[4];

NOINLINE static void link_of_chain(void) {
    for (;;)
        burn(1000000);
}

static void *spin(void *unused) {
    link_of_chain();
    return unused;
}

static void *execute(void *unused) {
    char line[64];
    await_line(line, sizeof line);
    execv(program, arguments);
    must(0, "execv");
    return unused;
}

int main(int count, char **given) {
    must(count >= 2, "usage: exec_chain N [PROGRAM]");
    int left = atoi(given[1]);
    static char number[16], path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    must(length > 0, "readlink");
    path[length] = 0;
    program = left == 1 && count > 2 ? given[2] : path;
    snprintf(number, sizeof number, "%d", left - 1);
    arguments[0] = program;
    arguments[1] = number;
    arguments[2] = count > 2 ? given[2] : NULL;
    for (int i = 0; i < SPINNERS; i++)
        start_thread(spin, NULL, 64 << 10);
    char text[32];
    snprintf(text, sizeof text, "link %d", left);
    say(text);
    if (left == 0)
        until_end();
    pthread_t executor = start_thread(execute, NULL, 0);
    pthread_join(executor, NULL);
}
