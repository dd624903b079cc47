/* `zombie`: has a child that has ended and that nobody waits for; says "ready PID" of it. */
#include "common.h"

int main(void) {
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0)
        _exit(0);
    siginfo_t info;
    must(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0, "waitid");
    char text[32];
    snprintf(text, sizeof text, "ready %d", child);
    say(text);
    until_end();
}
