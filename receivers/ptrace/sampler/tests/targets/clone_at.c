/* `clone_at PID PROGRAM ARGUMENTS...`: runs the program with this process id (clone3 with set_tid, Linux 5.5), and ends
 * when the program ends. */
#include "common.h"
#include <linux/sched.h>

int main(int count, char **arguments) {
    must(count >= 3, "usage: clone_at PID PROGRAM ARGUMENTS...");
    pid_t wanted = atoi(arguments[1]);
    struct clone_args clone = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&wanted, .set_tid_size = 1};
    long child = syscall(SYS_clone3, &clone, sizeof clone);
    must(child >= 0, "clone3");
    if (child == 0) {
        execv(arguments[2], arguments + 2);
        must(0, "execv");
    }
    waitpid((pid_t)child, NULL, 0);
    return 0;
}
