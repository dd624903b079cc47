/* Makes the calls of `matrix.c` one by one, for the threads of a program that loads this library: `matrix_begin`,
 * `matrix_call` in one thread for each call, `matrix_wake`, and `matrix_say` when all calls have returned. */
#define main matrix_main
#include "matrix.c"
#undef main

/* Prepares calls of this duration, and returns their number. */
int matrix_begin(long milliseconds) {
    length_nano = milliseconds * 1000000;
    length = (struct timespec){length_nano / 1000000000, length_nano % 1000000000};
    length_micro = (struct timeval){length.tv_sec, length.tv_nsec / 1000};
    prepare();
    pthread_barrier_init(&together, NULL, CALLS + 1);
    return CALLS;
}

/* Makes one call, as soon as all threads have reached this function. */
void matrix_call(int index) {
    calls[index].thread = pthread_self();
    run(&calls[index]);
}

/* Starts all calls, and ends those that do not end by themselves. */
void matrix_wake(void) {
    pthread_barrier_wait(&together);
    await_and_wake();
}

void matrix_say(void) { clean_up_and_say(); }
