/* `long_calls [gated]`: six threads that only move tens of MiB with each system call: `read` and `pread64` of
 * /dev/zero, `write` to a pipe, `send` to a socket, `sendfile` from a file to a socket, and `getrandom`. Other threads
 * receive what these send.
 * With `gated` one thread computes in `own_code` until a line of input arrives, and reads /dev/zero from then on.
 * Each line of input is answered with
 *     least COUNT calls COUNT short COUNT
 * where `least` is the number of calls of the slowest thread, and a short call is one that moved fewer bytes than
 * requested. */
#include "common.h"
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

enum { KINDS = 6, SIZE = 32 << 20, RANDOM = 4 << 20 };

static volatile uint64_t calls[KINDS], shorter[KINDS];
static volatile int reads;

static void *take(void *from) {
    char *bytes = malloc(1 << 20);
    while (read((int)(intptr_t)from, bytes, 1 << 20) != 0) {
    }
    return NULL;
}

static int taken_pipe(void) {
    int ends[2];
    must(pipe(ends) == 0, "pipe");
    start_thread(take, (void *)(intptr_t)ends[0], 0);
    return ends[1];
}

static int taken_socket(void) {
    int ends[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    start_thread(take, (void *)(intptr_t)ends[0], 0);
    return ends[1];
}

NOINLINE static void own_code(void) {
    while (!reads)
        burn(100000);
}

static void *work(void *number) {
    int kind = (int)(intptr_t)number, file = -1, to = -1;
    char *bytes = malloc(SIZE);
    memset(bytes, 1, SIZE);
    switch (kind) {
    case 0:
    case 1:
        file = open("/dev/zero", O_RDONLY);
        break;
    case 2:
        to = taken_pipe();
        break;
    case 3:
        to = taken_socket();
        break;
    case 4:
        file = memfd_create("file", 0);
        must(write(file, bytes, SIZE) == SIZE, "write");
        to = taken_socket();
        break;
    }
    if (kind == 0)
        own_code();
    for (;;) {
        ssize_t moved = 0, wanted = kind == 5 ? RANDOM : SIZE;
        off_t offset = 0;
        switch (kind) {
        case 0:
            moved = read(file, bytes, SIZE);
            break;
        case 1:
            moved = pread(file, bytes, SIZE, 0);
            break;
        case 2:
            moved = write(to, bytes, SIZE);
            break;
        case 3:
            moved = send(to, bytes, SIZE, 0);
            break;
        case 4:
            moved = sendfile(to, file, &offset, SIZE);
            break;
        case 5:
            moved = getrandom(bytes, RANDOM, 0);
            break;
        }
        calls[kind]++;
        if (moved != wanted)
            shorter[kind]++;
    }
    return NULL;
}

int main(int count, char **arguments) {
    (void)arguments;
    reads = count == 1;
    for (intptr_t kind = 0; kind < (reads ? KINDS : 1); kind++)
        start_thread(work, (void *)kind, 0);
    say("ready");
    for (;;) {
        char line[64], text[128];
        uint64_t least = UINT64_MAX, all = 0, sum = 0;
        await_line(line, sizeof line);
        if (strcmp(line, "read") == 0)
            reads = 1;
        for (int kind = 0; kind < KINDS; kind++) {
            if (calls[kind] < least)
                least = calls[kind];
            all += calls[kind];
            sum += shorter[kind];
        }
        snprintf(text, sizeof text, "least %llu calls %llu short %llu", (unsigned long long)least, (unsigned long long)all,
                 (unsigned long long)sum);
        say(text);
    }
}
