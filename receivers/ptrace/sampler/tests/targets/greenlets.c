/* `greenlets`: two threads in a function with the name of the one at which the stacks of Python's greenlets begin. One
 * thread runs a greenlet: the stack above that function was overwritten, as by another greenlet, and `in_greenlet` is
 * called by the C library. The other thread is always starting a greenlet: that function calls `still_starting`, and
 * the frame of its caller `starter` is intact. */
#include "common.h"

enum { CALLER_WORDS = 64 };

NOINLINE static int in_greenlet(const void *a, const void *b) {
    (void)a, (void)b;
    burn(20000);
    KEEP_FRAME();
    return 0;
}

NOINLINE static void still_starting(void) {
    burn(20000);
    KEEP_FRAME();
}

NOINLINE void begin_greenlet(int runs) __asm__("_ZN8greenlet12UserGreenlet13g_initialstubEPv");

NOINLINE void begin_greenlet(int runs) {
    if (!runs) {
        still_starting();
        KEEP_FRAME();
        return;
    }
    volatile uint64_t *caller = (uint64_t *)__builtin_frame_address(0) + 1;
    for (int i = 0; i < CALLER_WORDS; i++)
        caller[i] = 0x1111111111111111;
    for (;;) {
        char items[2] = {2, 1};
        qsort(items, sizeof items, 1, in_greenlet);
        KEEP_FRAME();
    }
}

NOINLINE static void *starter(void *runs) {
    /* Reserves the stack space that is overwritten. */
    volatile uint64_t room[2 * CALLER_WORDS];
    room[0] = 0;
    for (;;) {
        begin_greenlet(runs != NULL);
        room[0]++;
    }
}

int main(void) {
    start_thread(starter, (void *)1, 0);
    start_thread(starter, NULL, 0);
    say("ready");
    until_end();
}
