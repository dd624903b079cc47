/* `churn`: one thread spins in `steady`; four others create threads as fast as they can, each of which computes briefly
 * in `brief` and ends. Answers each line of input with `created COUNT failed COUNT`. */
#include "common.h"

static volatile uint64_t created[4], failed[4];

NOINLINE static void steady(void) {
    for (;;)
        burn(1000000);
}

static void *spin(void *unused) {
    steady();
    return unused;
}

NOINLINE static void brief(void) {
    burn(20000);
    KEEP_FRAME();
}

static void *work(void *unused) {
    brief();
    return unused;
}

static void *creator(void *number) {
    int me = (int)(intptr_t)number;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, work, NULL) == 0) {
            pthread_join(thread, NULL);
            created[me]++;
        } else {
            failed[me]++;
        }
    }
    return NULL;
}

int main(void) {
    start_thread(spin, NULL, 0);
    for (intptr_t i = 0; i < 4; i++)
        start_thread(creator, (void *)i, 0);
    say("ready");
    for (;;) {
        char line[64], text[128];
        await_line(line, sizeof line);
        snprintf(text, sizeof text, "created %llu failed %llu",
                 (unsigned long long)(created[0] + created[1] + created[2] + created[3]),
                 (unsigned long long)(failed[0] + failed[1] + failed[2] + failed[3]));
        say(text);
    }
}
