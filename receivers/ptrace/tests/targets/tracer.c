/* `tracer PID`: another tracer. Seizes every thread of the process and holds them traced, running, until the input ends. */
#include "common.h"
#include <dirent.h>
#include <sys/ptrace.h>

int main(int count, char **arguments) {
    must(count == 2, "usage: tracer PID");
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/task", arguments[1]);
    DIR *folder = opendir(path);
    must(folder != NULL, "opendir");
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            must(ptrace(PTRACE_SEIZE, atoi(entry->d_name), NULL, NULL) == 0, "PTRACE_SEIZE");
    closedir(folder);
    say("ready");
    until_end();
}
