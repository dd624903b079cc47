/* `fork_storm`: two threads fork children that end at once, and wait for them; a third spins in `parent_work`. Answers
 * each line of input with `forks COUNT wrong COUNT`: the number of children, and the number of forks or waits that
 * failed or returned another exit code than the child's. */
#include "common.h"

static volatile uint64_t forks[2], wrong[2];

NOINLINE static void parent_work(void) {
    for (;;)
        burn(1000000);
}

static void *spin(void *unused) {
    parent_work();
    return unused;
}

static void *storm(void *number) {
    int me = (int)(intptr_t)number;
    for (;;) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            _exit(7);
        forks[me]++;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
            wrong[me]++;
    }
    return NULL;
}

int main(void) {
    start_thread(spin, NULL, 0);
    for (intptr_t i = 0; i < 2; i++)
        start_thread(storm, (void *)i, 0);
    say("ready");
    for (;;) {
        char line[64], text[128];
        await_line(line, sizeof line);
        snprintf(text, sizeof text, "forks %llu wrong %llu", (unsigned long long)(forks[0] + forks[1]),
                 (unsigned long long)(wrong[0] + wrong[1]));
        say(text);
    }
}
