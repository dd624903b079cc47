// Other code at one address after a while. Prints the processor time that each of its functions really had, in
// nanoseconds.
//
// replaced compiled, replaced dumped: code is compiled three times at one address, with names in a perf map or in a
// jitdump file.
// replaced moved, replaced mapped: its own text is moved to memory without a file, as for huge pages.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t spend(void (*run)(long), int64_t nanoseconds) {
    int64_t begin = now(), end = begin;
    while ((end = now()) - begin < nanoseconds) run(200000);
    return end - begin;
}

static const int64_t MILLISECOND = 1000000;

// push rbp; mov rbp, rsp; sub rdi, 1; jne; pop rbp; ret
static const unsigned char LOOP[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xef, 0x01, 0x75, 0xfa, 0x5d, 0xc3};

static void name_code(FILE *map, int is_dump, unsigned char *code, const char *name) {
    if (is_dump) {
        uint32_t head[4] = {0, 56 + strlen(name) + 1 + sizeof LOOP, 0, 0};
        uint64_t body[5] = {(uint64_t)getpid() << 32 | getpid(), (uint64_t)code, (uint64_t)code, sizeof LOOP, 1};
        fwrite(head, sizeof head, 1, map);
        fwrite(body, sizeof body, 1, map);
        fwrite(name, strlen(name) + 1, 1, map);
        fwrite(LOOP, sizeof LOOP, 1, map);
    } else {
        fprintf(map, "%lx %zx %s\n", (long)code, sizeof LOOP, name);
    }
    fflush(map);
}

static int compiled(int is_dump) {
    char path[64];
    snprintf(path, sizeof path, is_dump ? "jit-%d.dump" : "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w+");
    unsigned char *code = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!map || code == MAP_FAILED) return 2;
    memcpy(code + 4096, LOOP, sizeof LOOP);
    if (is_dump) {
        uint32_t head[10] = {0x4a695444, 1, 40, 62, 0, getpid(), 0, 0, 0, 0};
        fwrite(head, sizeof head, 1, map);
        fflush(map);
        if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(map), 0) == MAP_FAILED) return 3;
    }
    name_code(map, is_dump, code + 4096, "stays");
    int64_t stays = 0;
    for (int each = 0; each < 3; each++) {
        memset(code, 0xcc, 64);
        memcpy(code, LOOP, sizeof LOOP);
        char name[16];
        snprintf(name, sizeof name, "compiled_%d", each);
        name_code(map, is_dump, code, name);
        int64_t spent = 0;
        for (int round = 0; round < 40; round++) {
            spent += spend((void (*)(long))code, (10 + 5 * each) * MILLISECOND);
            stays += spend((void (*)(long))(code + 4096), 5 * MILLISECOND);
        }
        printf("compiled_%d %lld\n", each, (long long)spent);
    }
    printf("stays %lld\n", (long long)stays);
    unlink(path);
    return 0;
}

extern char __start_moved_text[], __stop_moved_text[];

__attribute__((section("moved_text"), aligned(4096), noinline)) void moved_work(long count) {
    static volatile unsigned long sum;
    for (long each = 0; each < count; each++) sum = sum * 3 + each;
}

__attribute__((section("moved_text"), noinline)) int64_t moved_caller(int64_t nanoseconds) {
    return spend(moved_work, nanoseconds) + 1;
}

// The section has the rest of its last page for itself.
__attribute__((section("moved_text"), aligned(4096), used)) void moved_end(void) {}

static int moved(int by_remap) {
    spend(moved_work, 50 * MILLISECOND);
    char *start = __start_moved_text;
    size_t length = (size_t)((char *)moved_end - start);
    int protection = PROT_READ | PROT_EXEC;
    char *copy = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED || length % 4096) return 2;
    memcpy(copy, start, length);
    if (by_remap) {
        if (mprotect(copy, length, protection)) return 3;
        if (mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, start) != start) return 4;
    } else {
        int fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (mmap(start, length, PROT_READ | PROT_WRITE, fixed, -1, 0) != start) return 3;
        memcpy(start, copy, length);
        if (mprotect(start, length, protection)) return 4;
    }
    printf("moved_work %lld\n", (long long)moved_caller(2000 * MILLISECOND));
    return 0;
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "compiled")) return compiled(0);
    if (count == 2 && !strcmp(arguments[1], "dumped")) return compiled(1);
    if (count == 2 && !strcmp(arguments[1], "moved")) return moved(1);
    if (count == 2 && !strcmp(arguments[1], "mapped")) return moved(0);
    return 1;
}
