/* A library that `loader` loads and unloads. It is built twice, with SPIN as `spin_a` and `spin_b`: both have the same
 * layout and are therefore loaded at the same addresses. `late_libraries` waits in libraries of the same kind. */
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
