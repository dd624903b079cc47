/* Functions of many shapes, for unwinding without tables: with saved registers, with stack space reserved in steps,
 * with calls through pointers and tables, with jumps through tables, with recursion, functions that never return, and
 * functions that end in a jump to another one. */
#include <alloca.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP __attribute__((noinline, noclone))

static volatile uint64_t result;
static jmp_buf again;

KEEP static uint64_t leaf(uint64_t value) {
    for (int i = 0; i < 40; i++) value = value * 31 + (value >> 7);
    return value;
}

KEEP static uint64_t many(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    uint64_t x = leaf(a + h), y = leaf(b ^ g), z = leaf(c + f), w = leaf(d + e);
    return x + y * z - w + a + b + c + d + e + f + g + h;
}

KEEP static uint64_t pushed(uint64_t value) {
    return many(value, value + 1, value + 2, value + 3, value + 4, value + 5, value + 6, value + 7) + leaf(value);
}

KEEP static uint64_t room(uint64_t value) {
    char bytes[3000];
    memset(bytes, (int)value, sizeof bytes);
    return leaf(value) + bytes[value % sizeof bytes] + pushed(value);
}

KEEP static uint64_t variable(uint64_t value) {
    uint64_t count = value % 200 + 10, *words = alloca(count * sizeof *words), sum = 0;
    for (uint64_t i = 0; i < count; i++) words[i] = leaf(value + i);
    for (uint64_t i = 0; i < count; i++) sum += words[i] ^ i;
    return sum + leaf(sum);
}

KEEP static uint64_t jumps_on(uint64_t value) { return value & 1 ? room(value + 1) : variable(value); }

KEEP static uint64_t chosen(uint64_t kind, uint64_t value) {
    switch (kind) {
    case 0: return leaf(value) + 1;
    case 1: value = pushed(value); break;
    case 2: value = room(value) ^ leaf(value); break;
    case 3: value = variable(value) + kind; break;
    case 4: return jumps_on(value);
    case 5: value = leaf(value) - leaf(kind); value ^= leaf(value); break;
    case 6: value += chosen(value % 6, value + 1); break;
    default: value = leaf(value + kind);
    }
    return value + leaf(value);
}

KEEP static uint64_t recursive(uint64_t depth, uint64_t value) {
    if (depth == 0) return chosen(value % 9, value);
    uint64_t first = recursive(depth - 1, value + 1);
    return leaf(first) + first;
}

static int compare(const void *a, const void *b) {
    uint64_t x = leaf(*(const uint64_t *)a), y = leaf(*(const uint64_t *)b);
    return x < y ? -1 : x > y;
}

KEEP static uint64_t sorted(uint64_t value) {
    uint64_t words[50];
    for (int i = 0; i < 50; i++) words[i] = value = value * 6364136223846793005u + 1;
    qsort(words, 50, sizeof *words, compare);
    return words[0];
}

KEEP __attribute__((noreturn)) static void never(uint64_t value) {
    result = leaf(value) + recursive(6, value);
    if (result == 1) exit(1);
    longjmp(again, 1);
}

KEEP static uint64_t through(uint64_t value) {
    if (!setjmp(again)) never(value);
    return result;
}

KEEP static uint64_t deep(uint64_t value) { return recursive(12, value) + 1; }

static uint64_t (*const table[])(uint64_t) = {pushed, room, variable, jumps_on, sorted, through, deep, leaf};

KEEP __attribute__((noreturn)) static void run(uint64_t (*const *functions)(uint64_t)) {
    for (uint64_t round = 1;; round++) result += functions[round % 8](round);
}

int main(void) {
    printf("\n");
    fflush(stdout);
    run(table);
}
