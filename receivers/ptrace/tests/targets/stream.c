/* `stream`: one thread writes numbers in order to a pipe, a MiB with each call and the rest of it where a call was short; another reads them and compares. A third
 * computes. Each line of input is answered with
 *     mebibytes COUNT breaks COUNT failed COUNT work COUNT
 * where a break is a number out of order, and a failed call one with an error. */
#include "common.h"

enum { SIZE = 1 << 20 };

static int ends[2];
static volatile uint64_t mebibytes, breaks, failed, work;

static void *writes(void *unused) {
    static uint64_t numbers[SIZE / 8];
    for (uint64_t next = 0;;) {
        for (int i = 0; i < SIZE / 8; i++)
            numbers[i] = next++;
        for (size_t done = 0; done < SIZE;) {
            ssize_t moved = write(ends[1], (char *)numbers + done, SIZE - done);
            if (moved < 0)
                failed++;
            else
                done += (size_t)moved;
        }
    }
    return unused;
}

static void *compares(void *unused) {
    static uint64_t numbers[SIZE / 8];
    for (uint64_t next = 0;; mebibytes++) {
        for (size_t done = 0; done < SIZE;) {
            ssize_t moved = read(ends[0], (char *)numbers + done, SIZE - done);
            if (moved < 0)
                failed++;
            else
                done += (size_t)moved;
        }
        for (int i = 0; i < SIZE / 8; i++, next = numbers[i - 1] + 1)
            breaks += numbers[i] != next;
    }
    return unused;
}

static void *computes(void *unused) {
    for (;; work++)
        burn(100000);
    return unused;
}

int main(void) {
    must(pipe(ends) == 0, "pipe");
    start_thread(writes, NULL, 0);
    start_thread(compares, NULL, 0);
    start_thread(computes, NULL, 0);
    say("ready");
    for (;;) {
        char line[64], text[160];
        await_line(line, sizeof line);
        snprintf(text, sizeof text, "mebibytes %llu breaks %llu failed %llu work %llu", (unsigned long long)mebibytes,
                 (unsigned long long)breaks, (unsigned long long)failed, (unsigned long long)work);
        say(text);
    }
}
