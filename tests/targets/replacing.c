// A library of which there are two that differ in a name alone.
static volatile unsigned long sum;

__attribute__((noinline)) void NAME(long count) {
    for (long each = 0; each < count; each++) sum = sum * 3 + each;
}

void run(long count) {
    NAME(count);
    sum++;
}
