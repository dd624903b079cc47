/* `loader LIBRARY_A LIBRARY_B`: a thread loads one library and computes in it below `call_a` or `call_b`. On each line
 * of input it unloads that library and loads the other one. Prints the address of each library's function ("at
 * ADDRESS"). */
#include "common.h"
#include <dlfcn.h>

typedef void (*spin)(int64_t);

static volatile int wanted;

NOINLINE static void call_a(spin function) {
    while (wanted == 0)
        function(now_nano() + 5000000);
    KEEP_FRAME();
}

NOINLINE static void call_b(spin function) {
    while (wanted == 1)
        function(now_nano() + 5000000);
    KEEP_FRAME();
}

static char **libraries;

static void *load(void *unused) {
    for (int turn = 0;; turn = !turn) {
        void *library = dlopen(libraries[turn], RTLD_NOW | RTLD_LOCAL);
        must(library != NULL, "dlopen");
        spin function = (spin)(uintptr_t)dlsym(library, turn ? "spin_b" : "spin_a");
        must(function != NULL, "dlsym");
        char line[64];
        snprintf(line, sizeof line, "at %p", (void *)(uintptr_t)function);
        say(line);
        if (turn)
            call_b(function);
        else
            call_a(function);
        must(dlclose(library) == 0, "dlclose");
    }
    return unused;
}

int main(int count, char **arguments) {
    must(count == 3, "usage: loader LIBRARY_A LIBRARY_B");
    libraries = arguments + 1;
    start_thread(load, NULL, 0);
    for (;;) {
        char line[64];
        await_line(line, sizeof line);
        wanted = !wanted;
    }
}
