/* `registers`: a thread keeps a different value in every general register but the stack pointer and in every vector
 * register while it computes for millions of rounds in `marked`, which changes none of them, and then compares them,
 * again and again. Each line of input is answered with
 *     rounds COUNT changed COUNT
 * where `changed` counts registers whose value at the end was not the one at the beginning. */
#include "common.h"

enum { GENERAL = 15, VECTOR = 16, ALL = GENERAL + VECTOR };

/* In the order of the registers in the code below. */
__attribute__((used)) static volatile uint64_t before[ALL], after[ALL], left;
static volatile uint64_t rounds, changed;

/* Loads the registers from `before`, counts `left` down to 0, and stores them in `after`. The registers that a function
 * must preserve are on the stack meanwhile. The code has unwind tables, so that it can be sampled with its callers. */
void marked(void);
__asm__(".text\n"
        ".type marked, @function\n"
        "marked:\n"
        ".cfi_startproc\n"
#define PUSH(register) "push %" register "\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %" register ", 0\n"
#define POP(register) "pop %" register "\n.cfi_adjust_cfa_offset -8\n.cfi_restore %" register "\n"
        PUSH("rbx") PUSH("rbp") PUSH("r12") PUSH("r13") PUSH("r14") PUSH("r15")
#define EACH_GENERAL(move)                                                                                            \
    move("rax", "0") move("rbx", "8") move("rcx", "16") move("rdx", "24") move("rsi", "32") move("rdi", "40")         \
        move("rbp", "48") move("r8", "56") move("r9", "64") move("r10", "72") move("r11", "80") move("r12", "88")     \
            move("r13", "96") move("r14", "104") move("r15", "112")
#define EACH_VECTOR(move)                                                                                             \
    move("xmm0", "120") move("xmm1", "128") move("xmm2", "136") move("xmm3", "144") move("xmm4", "152")               \
        move("xmm5", "160") move("xmm6", "168") move("xmm7", "176") move("xmm8", "184") move("xmm9", "192")           \
            move("xmm10", "200") move("xmm11", "208") move("xmm12", "216") move("xmm13", "224") move("xmm14", "232")  \
                move("xmm15", "240")
#define FILL(register, at) "movq before+" at "(%rip), %" register "\n"
#define KEEP(register, at) "movq %" register ", after+" at "(%rip)\n"
        EACH_VECTOR(FILL) EACH_GENERAL(FILL)
        "1: decq left(%rip)\n"
        "jnz 1b\n"
        EACH_GENERAL(KEEP) EACH_VECTOR(KEEP)
        POP("r15") POP("r14") POP("r13") POP("r12") POP("rbp") POP("rbx")
        "ret\n"
        ".cfi_endproc\n"
        ".size marked, .-marked\n");

NOINLINE static void mark_again(void) {
    for (int i = 0; i < ALL; i++)
        before[i] = (rounds + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)i * 0x0101010101010101ull;
    left = 20000000;
    marked();
    for (int i = 0; i < ALL; i++)
        changed += before[i] != after[i];
    rounds++;
    KEEP_FRAME();
}

static void *mark(void *unused) {
    for (;;)
        mark_again();
    return unused;
}

int main(void) {
    start_thread(mark, NULL, 0);
    say("ready");
    for (;;) {
        char line[64], text[96];
        await_line(line, sizeof line);
        snprintf(text, sizeof text, "rounds %llu changed %llu", (unsigned long long)rounds,
                 (unsigned long long)changed);
        say(text);
    }
}
