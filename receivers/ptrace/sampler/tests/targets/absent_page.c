/* `absent_page unmapped|written-back`: a thread spins in `below`, fifty calls beneath `above`. One page of its stack
 * between them is missing when the kernel copies the stack: with `unmapped` it is missing for good; with `written-back`
 * it is written to the file that is mapped as the stack, and evicted from memory, again and again. Prints `resident`
 * instead of `ready` if the kernel does not evict it. */
#include "common.h"
#include <sys/mman.h>

enum { STACK = 512 << 10, PAGE = 4096, LEVELS = 50, FRAME = 512 };

static char *volatile absent;
static int file;

NOINLINE static void below(void) {
    absent = (char *)(((uintptr_t)__builtin_frame_address(0) + 2 * PAGE) & ~(uintptr_t)(PAGE - 1));
    while (absent)
        burn(1000000);
}

NOINLINE static void one_level(int left) {
    volatile char room[FRAME];
    room[left % FRAME] = 1;
    if (left > 0)
        one_level(left - 1);
    else
        below();
    room[0] = room[1];
}

NOINLINE static void above(void) {
    one_level(LEVELS - 1);
    KEEP_FRAME();
}

static void *spin(void *unused) {
    above();
    return unused;
}

static void take_out(void) {
    fsync(file);
    madvise(absent, PAGE, MADV_PAGEOUT);
    usleep(1000);
}

static void *take_out_again(void *unused) {
    for (;;)
        take_out();
    return unused;
}

int main(int count, char **arguments) {
    char path[] = "/var/tmp/profbridge-stack-XXXXXX";
    must(count == 2, "usage: absent_page unmapped|written-back");
    file = mkstemp(path);
    must(file >= 0 && unlink(path) == 0 && ftruncate(file, STACK) == 0, "mkstemp");
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must(stack != MAP_FAILED, "mmap");
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    must((errno = pthread_attr_setstack(&attributes, stack, STACK)) == 0, "pthread_attr_setstack");
    must((errno = pthread_create(&thread, &attributes, spin, NULL)) == 0, "pthread_create");
    while (!absent)
        usleep(1000);
    unsigned char there = 0;
    if (strcmp(arguments[1], "unmapped") == 0)
        must(munmap(absent, PAGE) == 0, "munmap");
    else {
        there = 1;
        for (int i = 0; i < 1000 && (there & 1); i++) {
            take_out();
            must(mincore(absent, PAGE, &there) == 0, "mincore");
        }
        start_thread(take_out_again, NULL, 0);
    }
    say(there & 1 ? "resident" : "ready");
    until_end();
}
