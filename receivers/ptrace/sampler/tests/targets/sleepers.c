/* `sleepers`: three threads and the first one, all of which wait since before "ready" and never run. Each prints
 * `thread ID POINTER`: its id and its `pthread_t`. */
#include "common.h"

static pthread_barrier_t said;

static void introduce(void) {
    char text[64];
    snprintf(text, sizeof text, "thread %ld %llu", syscall(SYS_gettid), (unsigned long long)pthread_self());
    say(text);
}

static void *sleeper(void *unused) {
    (void)unused;
    introduce();
    pthread_barrier_wait(&said);
    for (;;)
        pause();
    return NULL;
}

int main(void) {
    pthread_barrier_init(&said, NULL, 4);
    for (int i = 0; i < 3; i++)
        start_thread(sleeper, NULL, 64 << 10);
    introduce();
    pthread_barrier_wait(&said);
    say("ready");
    until_end();
}
