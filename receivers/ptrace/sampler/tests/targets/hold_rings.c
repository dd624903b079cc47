/* `hold_rings`: maps ring buffers of perf events until the kernel allows no more locked memory for them, and keeps
 * them. Prints `refused` instead of `ready` if events are not permitted, and `unlimited` if there is no limit. */
#include "common.h"
#include <linux/perf_event.h>
#include <sys/mman.h>

int main(void) {
    struct perf_event_attr attributes = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attributes,
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_period = 1000000000,
        .disabled = 1,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (int maps = 0; maps < 500; maps++) {
        int event = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
        if (event < 0) {
            say("refused");
            until_end();
        }
        size_t pages = 64;
        while (pages && mmap(NULL, (pages + 1) * page, PROT_READ | PROT_WRITE, MAP_SHARED, event, 0) == MAP_FAILED)
            pages /= 2;
        if (!pages) {
            say("ready");
            until_end();
        }
    }
    say("unlimited");
    until_end();
}
