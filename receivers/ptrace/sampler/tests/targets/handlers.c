/* `handlers plain|alternate`: a thread spins in `interrupted_work`. SIGALRM arrives every 4 ms, and its handler spins
 * for 3 ms in `inside_handler`, on the thread's own stack or on an alternate one. */
#include "common.h"
#include <stdatomic.h>
#include <sys/time.h>

NOINLINE static void inside_handler(int64_t until) {
    while (now_nano() < until)
        burn(1000);
    KEEP_FRAME();
}

NOINLINE static void handler(int number) {
    (void)number;
    int saved = errno;
    inside_handler(now_nano() + 3000000);
    errno = saved;
}

/* The signals start when this is set: an earlier one would interrupt the code that unblocks it, again and again on a
 * busy machine. */
static atomic_int at_work;

NOINLINE static void interrupted_work(void) {
    atomic_store(&at_work, 1);
    for (;;)
        burn(100000);
}

NOINLINE static void caller_of_work(void) {
    interrupted_work();
    KEEP_FRAME();
}

static int alternate;

static void *spin(void *unused) {
    if (alternate) {
        stack_t stack = {.ss_sp = malloc(64 << 10), .ss_size = 64 << 10};
        must(stack.ss_sp && sigaltstack(&stack, NULL) == 0, "sigaltstack");
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    caller_of_work();
    return unused;
}

int main(int count, char **arguments) {
    alternate = count > 1 && strcmp(arguments[1], "alternate") == 0;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | (alternate ? SA_ONSTACK : 0)};
    must(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    start_thread(spin, NULL, 0);
    while (!atomic_load(&at_work))
        usleep(1000);
    struct itimerval timer = {{0, 4000}, {0, 4000}};
    must(setitimer(ITIMER_REAL, &timer, NULL) == 0, "setitimer");
    say("ready");
    until_end();
}
