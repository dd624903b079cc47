// Functions inlined into each other, to three levels.
#include <stdio.h>
#include <stdlib.h>

static inline __attribute__((always_inline)) int innermost(int x) {
    volatile int y = x * 3;
    return y + 1;
}

static inline __attribute__((always_inline)) int middle(int x) {
    int sum = 0;
    for (int i = 0; i < x; i++)
        sum += innermost(i);
    return sum;
}

__attribute__((noinline)) int outer(int x) {
    int a = middle(x);
    int b = innermost(x);
    return a + b;
}

static __attribute__((noinline)) int alone(int x) {
    return outer(x) + 1;
}

int main(int argc, char **argv) {
    (void)argv;
    printf("%d\n", alone(argc));
    return 0;
}
