/* `late_libraries LIBRARY...`: on a line of input, starts a thread for each library, some milliseconds apart, which
 * loads the library and waits in it forever. Then prints "waiting". */
#include "common.h"
#include <dlfcn.h>

static void *wait_in(void *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    must(library != NULL, "dlopen");
    void (*function)(void) = (void (*)(void))(uintptr_t)dlsym(library, "wait_in_library");
    must(function != NULL, "dlsym");
    function();
    KEEP_FRAME();
    return NULL;
}

int main(int count, char **arguments) {
    char line[64];
    say("ready");
    await_line(line, sizeof line);
    for (int i = 1; i < count; i++) {
        start_thread(wait_in, arguments[i], 0);
        struct timespec pause = {0, 12000000};
        nanosleep(&pause, NULL);
    }
    say("waiting");
    await_line(line, sizeof line);
    return 0;
}
