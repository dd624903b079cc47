/* `unequal SELDOM ALWAYS`: SELDOM threads that compute in `seldom` for about 1 ms of every 100 ms, and, started after
 * them, ALWAYS threads that only compute, in `always`. */
#include "common.h"

NOINLINE static void seldom(void) {
    int64_t end = now_nano() + 1000000;
    while (now_nano() < end)
        burn(1000);
    KEEP_FRAME();
}

static void *now_and_then(void *unused) {
    for (;;) {
        seldom();
        usleep(99000);
    }
    return unused;
}

NOINLINE static void *always(void *unused) {
    for (;;)
        burn(100000);
    return unused;
}

int main(int count, char **arguments) {
    must(count == 3, "usage: unequal SELDOM ALWAYS");
    for (int i = 0; i < atoi(arguments[1]); i++)
        start_thread(now_and_then, NULL, 64 << 10);
    for (int i = 0; i < atoi(arguments[2]); i++)
        start_thread(always, NULL, 64 << 10);
    say("ready");
    until_end();
}
