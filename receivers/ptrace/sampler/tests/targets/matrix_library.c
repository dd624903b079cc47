/* The calls of `matrix.c` one by one, for threads of a program that loads this: `matrix_begin`, `matrix_call` on a thread for
 * each, `matrix_wake`, and `matrix_say` when all have come back. */
#define main matrix_main
#include "matrix.c"
#undef main

/* Returns how many calls there are, each of so many milliseconds. */
int matrix_begin(long milliseconds) {
    length_nano = milliseconds * 1000000;
    length = (struct timespec){length_nano / 1000000000, length_nano % 1000000000};
    length_micro = (struct timeval){length.tv_sec, length.tv_nsec / 1000};
    prepare();
    pthread_barrier_init(&together, NULL, CALLS + 1);
    return CALLS;
}

/* Makes one call, when all threads are there. */
void matrix_call(int index) {
    calls[index].thread = pthread_self();
    run(&calls[index]);
}

/* Lets all begin, and ends what does not end by itself. */
void matrix_wake(void) {
    pthread_barrier_wait(&together);
    await_and_wake();
}

void matrix_say(void) { clean_up_and_say(); }
