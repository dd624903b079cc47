/* `torn_contexts`: two threads that change their contexts. One does nothing else; the other blocks in the middle of
 * each change and after it. All ids of a change are computed from one number: the trace is the number and its
 * complement, the span is 2654435761 times the number (all little-endian). Answers each line of input with
 * `changes N`. */
#include "contexts.h"

SHOWN __thread struct record *otel_thread_ctx_v1;
static __thread struct record own;
static _Atomic uint64_t changes;

static void ids_of(uint64_t number, uint64_t ids[3]) {
    ids[0] = number;
    ids[1] = ~number;
    ids[2] = number * 2654435761u;
}

NOINLINE static void *fast_writer(void *unused) {
    uint64_t ids[3];
    otel_thread_ctx_v1 = &own;
    for (uint64_t number = 1;; number++) {
        ids_of(number, ids);
        write_record(&own, (uint8_t *)ids, NULL);
        atomic_fetch_add_explicit(&changes, 1, memory_order_relaxed);
    }
    return unused;
}

NOINLINE static void *slow_writer(void *unused) {
    uint64_t ids[3];
    otel_thread_ctx_v1 = &own;
    for (uint64_t number = 1;; number++) {
        ids_of(number, ids);
        own.valid = 0;
        atomic_signal_fence(memory_order_seq_cst);
        memcpy(own.trace, ids, 16);
        atomic_signal_fence(memory_order_seq_cst);
        usleep(5000);
        memcpy(own.span, ids + 2, 8);
        atomic_signal_fence(memory_order_seq_cst);
        own.valid = 1;
        usleep(5000);
    }
    return unused;
}

int main(void) {
    show_process("torn");
    start_thread(fast_writer, NULL, 64 << 10);
    start_thread(slow_writer, NULL, 64 << 10);
    while (atomic_load(&changes) < 1000)
        sched_yield();
    say("ready");
    for (;;) {
        char line[64];
        await_line(line, sizeof line);
        snprintf(line, sizeof line, "changes %llu", (unsigned long long)atomic_load(&changes));
        say(line);
    }
}
