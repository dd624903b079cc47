/* `coroutines`: a thread switches between eight coroutines with their own stacks (from malloc, unlike the stack of any
 * thread), each of which computes in `in_coroutine` below `coroutine_body`. */
#include "common.h"
#include <ucontext.h>

enum { COROUTINES = 8 };
static ucontext_t contexts[COROUTINES];

NOINLINE static void in_coroutine(void) {
    burn(20000);
    KEEP_FRAME();
}

NOINLINE static void coroutine_body(int me) {
    for (;;) {
        in_coroutine();
        swapcontext(&contexts[me], &contexts[(me + 1) % COROUTINES]);
    }
}

static void *schedule(void *unused) {
    static ucontext_t scheduler;
    for (volatile int i = 0; i < COROUTINES; i++) {
        must(getcontext(&contexts[i]) == 0, "getcontext");
        contexts[i].uc_stack.ss_sp = malloc(64 << 10);
        contexts[i].uc_stack.ss_size = 64 << 10;
        contexts[i].uc_link = &scheduler;
        makecontext(&contexts[i], (void (*)(void))coroutine_body, 1, i);
    }
    swapcontext(&scheduler, &contexts[0]);
    return unused;
}

int main(void) {
    start_thread(schedule, NULL, 0);
    say("ready");
    until_end();
}
