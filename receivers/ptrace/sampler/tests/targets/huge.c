/* `huge FRAME_KILOBYTES DEPTH`: a thread spins in `at_the_bottom`, called through DEPTH calls of `one_level` by
 * `huge_frame`, whose frame has the given size and is written completely, so that its pages exist. */
#include "common.h"
#include <alloca.h>

static volatile int forever = 1;

NOINLINE static void at_the_bottom(void) {
    while (forever)
        burn(1000000);
}

NOINLINE static void one_level(int depth) {
    if (depth > 0)
        one_level(depth - 1);
    else
        at_the_bottom();
    KEEP_FRAME();
}

NOINLINE static void huge_frame(size_t bytes, int depth) {
    volatile char *room = alloca(bytes + 1);
    for (size_t i = 0; i < bytes; i += 4096)
        room[i] = 1;
    one_level(depth);
    room[0] = 2;
}

static size_t bytes;
static int depth;

static void *spin(void *unused) {
    huge_frame(bytes, depth);
    return unused;
}

int main(int count, char **arguments) {
    must(count == 3, "usage: huge FRAME_KILOBYTES DEPTH");
    bytes = (size_t)atol(arguments[1]) << 10;
    depth = atoi(arguments[2]);
    start_thread(spin, NULL, 16 << 20);
    say("ready");
    until_end();
}
