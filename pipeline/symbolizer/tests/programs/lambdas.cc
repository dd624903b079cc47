// Lambdas and methods of local classes, which have no symbols where they are inlined.
volatile unsigned long sink;

template <class F> static inline void each(F f) {
    for (int x = 0; x < 100; x++)
        f(x);
}

__attribute__((noinline)) void several(int count) {
    each([](int x) { sink = sink * 3 + x; });
    each([=](int x) { sink = sink * 5 + x + count; }); each([](int x) { sink = sink * 7 + x; });
    struct Local {
        int seed;
        inline void run(int x) const { sink = sink * 11 + x + seed; }
    };
    Local local = {count};
    each([&](int x) { local.run(x); });
}

int main(int count, char **arguments) {
    (void)arguments;
    several(count);
    return 0;
}
