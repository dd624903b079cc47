/* `tracer PID`: another tracer. Seizes every thread of the process and traces it, running, until the end of the input.
 * If another tracer has a thread, waits until that detaches. */
#include "common.h"
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <sys/ptrace.h>

int main(int count, char **arguments) {
    must(count == 2, "usage: tracer PID");
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/task", arguments[1]);
    DIR *folder = opendir(path);
    must(folder != NULL, "opendir");
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            while (ptrace(PTRACE_SEIZE, atoi(entry->d_name), NULL, NULL) != 0) {
                must(errno == EPERM, "PTRACE_SEIZE");
                sched_yield();
            }
    closedir(folder);
    say("ready");
    until_end();
}
