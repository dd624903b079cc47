/* `loader LIBRARY_A LIBRARY_B`: a thread loads one library, works in it for 300 ms below `call_a` or `call_b`, unloads it, and loads the
 * other one, over and over. */
#include "common.h"
#include <dlfcn.h>

typedef void (*spin)(int64_t);

NOINLINE static void call_a(spin function) {
    function(now_nano() + 300000000);
    KEEP_FRAME();
}

NOINLINE static void call_b(spin function) {
    function(now_nano() + 300000000);
    KEEP_FRAME();
}

static char **libraries;

static void *load(void *unused) {
    for (int turn = 0;; turn = !turn) {
        void *library = dlopen(libraries[turn], RTLD_NOW | RTLD_LOCAL);
        must(library != NULL, "dlopen");
        spin function = (spin)(uintptr_t)dlsym(library, turn ? "spin_b" : "spin_a");
        must(function != NULL, "dlsym");
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
    say("ready");
    until_end();
}
