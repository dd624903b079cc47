// Other code at one address after a while. Prints the processor time that each of its functions really had, in
// nanoseconds.
//
// replaced libraries FIRST SECOND: two libraries with a function `run` come and go, the first for three times as long.
// replaced compiled: code is compiled three times at one address, with names in a perf map.
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

static int libraries(char **names) {
    int64_t spent[2] = {0, 0};
    void *place = NULL;
    for (int round = 0; round < 60; round++) {
        void *library = dlopen(names[round % 2], RTLD_NOW);
        if (!library) return 2;
        void (*run)(long) = (void (*)(long))dlsym(library, "run");
        Dl_info info;
        if (!run || !dladdr((void *)run, &info)) return 3;
        if (place && place != info.dli_fbase) return 4;
        place = info.dli_fbase;
        spent[round % 2] += spend(run, (round % 2 ? 25 : 75) * MILLISECOND);
        dlclose(library);
    }
    for (int each = 0; each < 2; each++) printf("%d %lld\n", each, (long long)spent[each]);
    return 0;
}

// push rbp; mov rbp, rsp; sub rdi, 1; jne; pop rbp; ret
static const unsigned char LOOP[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xef, 0x01, 0x75, 0xfa, 0x5d, 0xc3};

static int compiled(void) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    unsigned char *code = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!map || code == MAP_FAILED) return 2;
    memcpy(code + 4096, LOOP, sizeof LOOP);
    fprintf(map, "%lx %zx stays\n", (long)code + 4096, sizeof LOOP);
    int64_t stays = 0;
    for (int each = 0; each < 3; each++) {
        memset(code, 0xcc, 64);
        memcpy(code, LOOP, sizeof LOOP);
        fprintf(map, "%lx %zx compiled_%d\n", (long)code, sizeof LOOP, each);
        fflush(map);
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
    if (count == 4 && !strcmp(arguments[1], "libraries")) return libraries(arguments + 2);
    if (count == 2 && !strcmp(arguments[1], "compiled")) return compiled();
    if (count == 2 && !strcmp(arguments[1], "moved")) return moved(1);
    if (count == 2 && !strcmp(arguments[1], "mapped")) return moved(0);
    return 1;
}
