/* `leader`: the first thread ends while another one spins in `survivor` and a third waits for the end of the input, so
 * the process continues with a zombie leader. Prints "ready" once the leader has ended. */
#include "common.h"

NOINLINE static void survivor(void) {
    for (;;)
        burn(1000000);
}

static void *spin(void *unused) {
    survivor();
    return unused;
}

static void *watch(void *leader) {
    pthread_join(*(pthread_t *)leader, NULL);
    say("ready");
    until_end();
    return NULL;
}

int main(void) {
    static pthread_t leader;
    leader = pthread_self();
    start_thread(spin, NULL, 0);
    start_thread(watch, &leader, 0);
    pthread_exit(NULL);
}
