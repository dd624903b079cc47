//! Functions as compilers generate them, and code that no compiler generates.

use proptest::prelude::*;

use super::super::made::{CODE, SyntheticCode};
use super::super::row::{Cfa, RecoveryRules, UnwindRow};
use super::*;

const START: u64 = CODE + 0x100;
const MOST: u32 = 4096;

/// The expected rules: a register, its offset to the canonical frame address; the saved registers and their offsets
/// from that address.
type RowParts = ((u8, i64), Vec<(u8, i32)>);

fn parts(row: &UnwindRow) -> RowParts {
    let Cfa::Register { register, offset } = row.cfa else { panic!("{row:?}") };
    let RecoveryRules::Saved { count, registers, offsets } = &row.rules else { panic!("{row:?}") };
    let saved = registers.iter().copied().zip(offsets.iter().copied()).take(usize::from(*count));
    ((register, offset), saved.collect())
}

/// An instruction, and the expected distance to the end of the return address from the stack pointer or (`true`) from
/// the frame pointer.
type InstructionCase = (&'static [u8], Option<(bool, i64)>);

fn check(code: &[InstructionCase]) -> (AddressSpace, Vec<u64>) {
    let mut made = SyntheticCode::new();
    let (mut place, mut places) = (START, Vec::new());
    for (bytes, _) in code {
        made.put(place, bytes);
        places.push(place);
        place += bytes.len() as u64;
    }
    let space = made.space();
    for (place, (bytes, expected)) in places.iter().zip(code) {
        let found = rules(&space, START, *place, MOST).0.map(|row| parts(&row).0);
        let expected = expected.map(|(frame, offset)| (if frame { FRAME_POINTER } else { STACK_POINTER }, offset));
        assert_eq!(found, expected, "{bytes:02x?}");
    }
    (space, places)
}

/// Guarantees: pushed registers, space reserved in steps, arguments on the stack, and joining paths are followed; saved
/// registers are found where they were pushed, but not in the function's last instructions, after they were popped.
#[test]
fn pushes_and_room() {
    let at = |offset| Some((false, offset));
    let (space, places) = check(&[
        (b"\x55", at(8)),                  // push %rbp
        (b"\x89\xf5", at(16)),             // mov %esi, %ebp
        (b"\x53", at(16)),                 // push %rbx
        (b"\x48\x89\xfb", at(24)),         // mov %rdi, %rbx
        (b"\x48\x83\xec\x18", at(24)),     // sub $24, %rsp
        (b"\x74\x0b", at(48)),             // je 1f
        (b"\x6a\x01", at(48)),             // push $1
        (b"\xe8\x00\x01\x00\x00", at(56)), // call
        (b"\x48\x83\xc4\x08", at(56)),     // add $8, %rsp
        (b"\x89\xe8", at(48)),             // 1: mov %ebp, %eax
        (b"\x48\x83\xc4\x18", at(48)),     // add $24, %rsp
        (b"\x5b", at(24)),                 // pop %rbx
        (b"\x5d", at(16)),                 // pop %rbp
        (b"\xc3", at(8)),                  // ret
        (b"\x90", None),                   // another function
    ]);
    let saved = |place: usize| rules(&space, START, places[place], MOST).0.map(|row| parts(&row).1);
    assert_eq!(saved(0), Some(vec![(16, -8)]));
    assert_eq!(saved(9), Some(vec![(3, -24), (FRAME_POINTER, -16), (16, -8)]));
    assert_eq!(saved(12), Some(vec![(FRAME_POINTER, -16), (16, -8)]));
    assert_eq!(saved(13), Some(vec![(16, -8)]));
    // The same rules result from following the paths to the returns.
    for place in &places[4..14] {
        let to_return = rules_to_return(&space, *place, MOST).0.first().map(|row| parts(row).0);
        assert_eq!(to_return, rules(&space, START, *place, MOST).0.map(|row| parts(&row).0), "{place:x}");
    }
}

/// Guarantees: if space of unknown size is reserved, the return address is found by the frame pointer; without a frame
/// pointer it is not found.
#[test]
fn room_of_any_size() {
    let (at, framed) = (|offset| Some((false, offset)), Some((true, 16)));
    check(&[
        (b"\x55", at(8)),              // push %rbp
        (b"\x48\x89\xe5", at(16)),     // mov %rsp, %rbp
        (b"\x53", at(16)),             // push %rbx
        (b"\x48\x29\xc4", at(24)),     // sub %rax, %rsp
        (b"\xff\xd2", framed),         // call *%rdx
        (b"\x48\x8d\x65\xf8", framed), // lea -8(%rbp), %rsp
        (b"\x5b", at(24)),             // pop %rbx
        (b"\xc9", at(16)),             // leave
        (b"\xc3", at(8)),              // ret
    ]);
    check(&[(b"\x48\x29\xc4", at(8)), (b"\xff\xd2", None), (b"\xc3", None)]);
}

/// Guarantees: code reached only through a jump table has the stack frame of the jump; code reached by a tail call has
/// the caller's.
#[test]
fn tables_and_last_jumps() {
    let at = |offset| Some((false, offset));
    check(&[
        (b"\x48\x83\xec\x28", at(8)),  // sub $40, %rsp
        (b"\xff\xe0", at(48)),         // jmp *%rax
        (b"\x48\x83\xc4\x28", at(48)), // add $40, %rsp
        (b"\xc3", at(8)),              // ret
        (b"\x31\xc0", at(48)),         // xor %eax, %eax
        (b"\x48\x83\xc4\x28", at(48)), // add $40, %rsp
        (b"\xeb\x01", at(8)),          // jmp 1f
        (b"\xf4", at(48)),
        (b"\x53", at(8)), // 1: push %rbx
        (b"\xc3", at(16)),
    ]);
}

/// Guarantees: if paths to a return differ in the place of the return address, all results are returned, the one
/// without calls first.
#[test]
fn ways_that_differ() {
    let mut made = SyntheticCode::new();
    // je 1f; call; ret; 1: add $8, %rsp; ret
    made.put(START, b"\x74\x06\xe8\x00\x01\x00\x00\xc3\x48\x83\xc4\x08\xc3");
    let answers = rules_to_return(&made.space(), START, MOST).0;
    let answers: Vec<_> = answers.iter().map(|row| parts(row).0).collect();
    assert_eq!(answers, [(STACK_POINTER, 16), (STACK_POINTER, 8)]);
}

/// Guarantees: the program's first function is found in the start code of a static and of a position-independent
/// program.
#[test]
fn first_function() {
    let mut made = SyntheticCode::new();
    made.put(START, b"\x31\xed\x49\x89\xd1\x5e\x48\xc7\xc7\x00\x02\x10\x00\x67\xe8\x00\x00\x00\x00\xf4");
    made.put(START + 0x40, b"\xf3\x0f\x1e\xfa\x31\xed\x48\x8d\x3d\x00\x01\x00\x00\xff\x15\x00\x00\x00\x00\xf4");
    let space = made.space();
    assert_eq!(main_function(&space, START), Some(0x10_0200));
    assert_eq!(main_function(&space, START + 0x40), Some(START + 0x40 + 13 + 0x100));
    assert_eq!(main_function(&space, START + 0x80), None);
    assert_eq!(main_function(&space, u64::MAX - 3), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Guarantees: whatever the code is, following it terminates within its limit and does not panic.
    #[test]
    fn attack_any_code(
        pieces in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 1..8),
            prop::sample::select(vec![
                b"\x53".to_vec(), b"\x5b".to_vec(), b"\x48\x83\xec\x18".to_vec(), b"\x48\x81\xc4\xff\xff\xff\x7f".to_vec(),
                b"\x48\x89\xe5".to_vec(), b"\xc9".to_vec(), b"\x74\x10".to_vec(), b"\xeb\xf0".to_vec(), b"\xff\xe0".to_vec(),
                b"\xe8\x00\x00\x00\x00".to_vec(), b"\xc3".to_vec(), b"\x48\x8d\x64\x24\x80".to_vec(),
            ]),
        ], 0..200),
        goal in 0u64..0x600,
    ) {
        let mut made = SyntheticCode::new();
        made.put(START, &pieces.concat());
        let space = made.space();
        prop_assert!(rules(&space, START, START + goal, 500).1 <= 500);
        prop_assert!(rules_to_return(&space, START + goal, 500).1 <= 500);
        main_function(&space, START);
    }
}
