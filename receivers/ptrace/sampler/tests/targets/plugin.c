/* A library that `loader` loads and unloads. Built twice, with SPIN as `spin_a` and `spin_b`: both have the same layout and so come to
 * lie at the same addresses. `late_libraries` waits in others of its kind. */
#include <stdint.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) void wait_in_library(void) {
    for (;;)
        pause();
}

__attribute__((noinline)) void SPIN(int64_t until) {
    struct timespec t;
    do {
        for (volatile int i = 0; i < 20000; i++) {
        }
        clock_gettime(CLOCK_MONOTONIC, &t);
    } while ((int64_t)t.tv_sec * 1000000000 + t.tv_nsec < until);
    __asm__ volatile("" ::: "memory");
}
