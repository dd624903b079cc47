//! Evaluation functions as compilers generate them, and code that no compiler generates.

use proptest::prelude::*;

use super::super::instruction::RSP;
use super::super::made::{CODE, SyntheticCode};
use super::*;

const START: u64 = CODE + 0x100;
const SLOT: u64 = 0x5010;

/// The results for code with these registers (by number in the encoding); SP is 0x5000, and the stack frame has one
/// word, `slot`.
fn found(code: &[u8], registers: &[(u8, u64)], slot: u64) -> Vec<FetchPlace> {
    let mut made = SyntheticCode::new();
    made.put(START, code);
    let mut known = Registers::default();
    for (register, value) in registers.iter().chain(&[(RSP, 0x5000)]) {
        known.set(DWARF[usize::from(*register)], *value);
    }
    let ways = fetches(&made.space(), START, &mut HoldingRegisters::default());
    let read = |address| (address == SLOT).then_some(slot);
    ways.fetches.iter().filter_map(|fetch| fetch.resolve(&known, read)).collect()
}

/// The end of the code of an instruction, as GCC compiles it in CPython 3.12:
/// `movzbl 2(%r10), %eax; add $2, %r10; movzbl 1(%r10), %r14d; mov (%rdi,%rax,8), %rax; jmp *%rax`.
const DISPATCH: &[u8] = b"\x41\x0f\xb6\x42\x02\x49\x83\xc2\x02\x45\x0f\xb6\x72\x01\x48\x8b\x04\xc7\xff\xe0";

fn before_dispatch(code: &[u8]) -> Vec<u8> {
    [code, DISPATCH].concat()
}

/// Guarantees: the address is found in a register, also if a constant or a multiple of another register is added to it
/// on the path, which stays in the same function.
#[test]
fn in_a_register() {
    let at = |code: &[u8]| found(&before_dispatch(code), &[(10, 0x7000)], 0);
    assert_eq!(at(b""), [FetchPlace::At(0x7002)]);
    assert_eq!(at(b"\x49\x83\xc2\x08"), [FetchPlace::At(0x700a)]); // add $8, %r10
    assert_eq!(at(b"\xf7\xd8\x48\x98\x4d\x8d\x54\x42\x02"), [FetchPlace::At(0x7004)]); // neg; cltq; lea 2(%r10,%rax,2), %r10
    let other = found(&before_dispatch(b"\x4c\x8d\x51\x04"), &[(1, 0x7000), (10, 0x9000)], 0); // lea 4(%rcx), %r10
    assert_eq!(other, [FetchPlace::At(0x7006)]);
}

/// Guarantees: after a call, registers that the call may change are not used, but the stack word that holds the address
/// is; a word written on the path has the written value.
#[test]
fn across_calls() {
    // call; mov 0x10(%rsp), %r10
    let kept = before_dispatch(b"\xe8\x00\x01\x00\x00\x4c\x8b\x54\x24\x10");
    assert_eq!(found(&kept, &[(10, 0x9000)], 0x7000), [FetchPlace::At(0x7002)]);
    assert_eq!(found(&before_dispatch(b"\xe8\x00\x01\x00\x00"), &[(10, 0x9000)], 0x7000), []);
    // mov %r10, 0x10(%rsp) before it
    let written = [&b"\x4c\x89\x54\x24\x10"[..], &kept].concat();
    assert_eq!(found(&written, &[(10, 0x8000)], 0x7000), [FetchPlace::At(0x8002)]);
}

/// Guarantees: if the address is read from memory outside of the call's stack frame, such as an interpreter frame,
/// that memory is the result.
#[test]
fn in_a_frame() {
    // call; mov 0x38(%rbx), %r10
    let code = before_dispatch(b"\xe8\x00\x01\x00\x00\x4c\x8b\x53\x38");
    assert_eq!(found(&code, &[(3, 0x6000)], 0), [FetchPlace::In(0x6038)]);
    // mov 0x10(%rsp), %rdx; movzwl 0x48(%rdx), %r10d; add %r10, %r10; add 0x38(%rdx), %r10
    let code = before_dispatch(b"\x48\x8b\x54\x24\x10\x44\x0f\xb7\x52\x48\x4d\x01\xd2\x4c\x03\x52\x38");
    assert_eq!(found(&code, &[], 0x6000), [FetchPlace::In(0x6038)]);
}

/// Guarantees: all paths from a branch are followed, and only reads that precede a jump through a table are used.
#[test]
fn by_several_ways() {
    // test %al, %al; je that skips the first jump
    let first = before_dispatch(b"");
    let code = [&[0x84, 0xc0, 0x74, first.len() as u8][..], &first, &before_dispatch(b"\x49\x89\xd2")].concat();
    let both = found(&code, &[(2, 0x7000), (10, 0x8000)], 0);
    assert_eq!(both, [FetchPlace::At(0x8002), FetchPlace::At(0x7002)]);
    assert_eq!(found(b"\x41\x0f\xb6\x42\x02\xc3", &[(10, 0x8000)], 0), []);
}

/// Guarantees: between the read and the jump, the result is the register that holds the address at all jumps.
#[test]
fn between_read_and_jump() {
    let mut made = SyntheticCode::new();
    made.put(START, DISPATCH);
    let space = made.space();
    let mut kept = HoldingRegisters::default();
    let mut registers = Registers::default();
    registers.set(DWARF[10], 0x7000);
    let jump = START + 14;
    assert!(fetches(&space, jump, &mut kept).is_read);
    assert_eq!(kept.resolve(&registers).count(), 0);
    assert!(!fetches(&space, START, &mut kept).is_read);
    assert_eq!(kept.resolve(&registers).collect::<Vec<_>>(), [0x7000]);
}

/// The end of the code of an instruction in Debian's shared library of CPython 3.11, which is built for DTrace:
/// `movzwl 2(%r15), %edx; mov 8(%rsp), %rax; movzwl (%rax), %eax; mov %edx, %r9d; shr $8, %r9w; neg %ax; movzwl %r9w,
/// %r9d; sbb %al, %al; or 0xc0(%rsp), %al; or %edx, %eax; movzbl %al, %edx; mov (%rdi,%rdx,8), %rdx; jmp *%rdx`.
const TRACED: &[u8] =
    b"\x41\x0f\xb7\x57\x02\x48\x8b\x44\x24\x08\x0f\xb7\x00\x41\x89\xd1\x66\x41\xc1\xe9\x08\x66\xf7\xd8\x45\
    \x0f\xb7\xc9\x18\xc0\x0a\x84\x24\xc0\x00\x00\x00\x09\xd0\x0f\xb6\xd0\x48\x8b\x14\xd7\xff\xe2";

/// Guarantees: a read between the instruction and the jump that does not decide the jump's target is not mistaken for
/// the instruction; after the read of the instruction, the result says that it was read.
#[test]
fn other_reads_before_the_jump() {
    assert_eq!(found(TRACED, &[(15, 0x7000)], 0), [FetchPlace::At(0x7002)]);
    let mut made = SyntheticCode::new();
    made.put(START, TRACED);
    let (space, mut kept) = (made.space(), HoldingRegisters::default());
    assert!(!fetches(&space, START, &mut kept).is_read);
    assert!(fetches(&space, START + 5, &mut kept).is_read);
    // A jump to the sum of two reads depends on both.
    let both = b"\x41\x0f\xb7\x57\x02\x0f\xb6\x06\x48\x01\xd0\xff\xe0"; // movzbl (%rsi), %eax; add %rdx, %rax; jmp *%rax
    assert_eq!(found(both, &[(15, 0x7000), (6, 0x6000)], 0), [FetchPlace::At(0x7002), FetchPlace::At(0x6000)]);
}

proptest! {
    /// Guarantees: no code causes a panic, and all results are within the limits.
    #[test]
    fn attack_any_code(code in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut made = SyntheticCode::new();
        made.put(START, &code);
        let ways = fetches(&made.space(), START, &mut HoldingRegisters::default());
        prop_assert!(ways.fetches.len() <= MAX_ANSWERS);
    }
}
