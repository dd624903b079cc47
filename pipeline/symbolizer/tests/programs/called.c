/* What `calls.c` calls. */
long first(long x) { return x + 1; }
long second(long x) { return x + 2; }
