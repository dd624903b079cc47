/* `leader`: the first thread ends by itself while another one spins in `survivor` and a third waits for the end of the input: the
 * process lives on behind a zombie leader. Says "ready" once the leader is gone. */
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
