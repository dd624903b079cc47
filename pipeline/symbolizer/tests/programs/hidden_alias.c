/* A function that its own library calls by another name than everybody else, as glibc has them. */
extern int work(int times) __asm__("__GI_work");

__attribute__((noinline)) int work(int times) {
    volatile int sum = 0;
    for (int i = 0; i < times; i++)
        sum += i;
    return sum;
}

extern int known_work(int times) __attribute__((alias("__GI_work")));

int main(int count, char **arguments) {
    (void)arguments;
    return work(count) + known_work(count);
}
