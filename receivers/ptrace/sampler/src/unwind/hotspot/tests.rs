//! Code as HotSpot generates it, instruction by instruction.

use super::super::UnwindOutcome;
use super::super::made::{ALL, CODE, ROOT, STACK, SyntheticCode, SyntheticThread};
use super::*;
use crate::address_space::AddressSpace;
use crate::message::Trust;
use proptest::prelude::*;

const CALLER: u64 = CODE + 0x400;
const CALLED: u64 = CODE + 0x1000;
const SENDER: u64 = STACK - 0x88;
const RAX: usize = 0;
const RBX: usize = 3;
const RBP: usize = 6;
const RSP: usize = 7;
const R13: usize = 13;

/// An instruction, and its effect on the thread.
type Step = (&'static [u8], fn(&mut SyntheticThread));

fn nothing(_: &mut SyntheticThread) {}

fn pop_frame(thread: &mut SyntheticThread) {
    thread.registers[RBP] = thread.pop();
}

/// A method with a frame: it touches the stack far below, sets up the frame, calls a function, removes the frame, and
/// polls for a safepoint.
const METHOD: &[Step] = &[
    (b"\x89\x84\x24\x00\xc0\xfe\xff", nothing),
    (b"\x55", |thread| thread.push(thread.registers[RBP])),
    (b"\x48\x8b\xec", |thread| thread.registers[RBP] = thread.registers[RSP]),
    (b"\x48\x83\xec\x20", |thread| thread.room(32)),
    (b"\x41\x81\x7f\x20\x01\x00\x00\x00", nothing),
    (b"\x0f\x85\x80\x00\x00\x00", nothing),
    (b"\xe8\x00\x08\x00\x00", nothing),
    (b"\xc5\xf8\x77", nothing),
    (b"\x48\x83\xc4\x20", |thread| thread.registers[RSP] += 32),
    (b"\x5d", pop_frame),
    (b"\x49\x3b\xa7\x60\x01\x00\x00", nothing),
    (b"\x0f\x87\x01\x00\x00\x00", nothing),
    (b"\xc3", nothing),
];

/// A method without calls, which follows the comparison of its object's class.
const LEAF: &[Step] = &[
    (b"\x44\x8b\x56\x08", nothing),
    (b"\x4c\x3b\xd0", nothing),
    (b"\x0f\x85\x40\x00\x00\x00", nothing),
    (b"\x66\x90", nothing),
    (b"\x48\x81\xec\x18\x00\x00\x00", |thread| thread.room(24)),
    (b"\x48\x89\x6c\x24\x10", |thread| thread.write(thread.registers[RSP] + 16, thread.registers[RBP])),
    (b"\x48\x8b\xec", |thread| thread.registers[RBP] = thread.registers[RSP]),
    (b"\x48\x83\xc5\x10", |thread| thread.registers[RBP] += 16),
    (b"\x48\x0f\xaf\xc3", nothing),
    (b"\x48\x83\xc4\x10", |thread| thread.registers[RSP] += 16),
    (b"\x5d", pop_frame),
    (b"\x4d\x8b\x97\x50\x01\x00\x00", nothing),
    (b"\x41\x85\x02", nothing),
    (b"\xc3", nothing),
];

/// The start of an interpreted method, which pops the return address to reserve space for variables below the
/// arguments.
const INTERPRETED: &[Step] = &[
    (b"\x48\x8b\x53\x10", nothing),
    (b"\x58", |thread| thread.registers[RAX] = thread.pop()),
    (b"\x4c\x8d\x74\xcc\xf8", nothing),
    (b"\x6a\x00", |thread| thread.push(0)),
    (b"\xff\xca", nothing),
    (b"\x0f\x8f\xf6\xff\xff\xff", nothing),
    (b"\x50", |thread| thread.push(thread.registers[RAX])),
    (b"\x55", |thread| thread.push(thread.registers[RBP])),
    (b"\x48\x8b\xec", |thread| thread.registers[RBP] = thread.registers[RSP]),
    (b"\x41\x55", |thread| thread.push(thread.registers[R13])),
    (b"\x6a\x00", |thread| thread.push(0)),
    (b"\x41\x0f\xb6\x5d\x00", nothing),
    (b"\x41\xff\x24\xda", nothing),
];

/// The end of an interpreted method: it jumps to its caller.
const LEAVING: &[Step] = &[
    (b"\x48\x8b\x5d\xf8", |thread| thread.registers[RBX] = SENDER),
    (b"\xc9", |thread| {
        thread.registers[RSP] = thread.registers[RBP];
        pop_frame(thread);
    }),
    (b"\x41\x5d", |thread| thread.registers[R13] = thread.pop()),
    (b"\x48\x8b\xe3", |thread| thread.registers[RSP] = thread.registers[RBX]),
    (b"\x41\xff\xe5", nothing),
];

/// Stubs that look up an interface method, and that move arguments from the stack to registers: they end with a jump to
/// the method.
const DISPATCH: &[Step] = &[
    (b"\x4c\x8b\x56\x08", nothing),
    (b"\x49\x8b\x9a\xc8\x01\x00\x00", nothing),
    (b"\x48\x85\xdb", nothing),
    (b"\x0f\x84\x10\x00\x00\x00", nothing),
    (b"\xff\x63\x48", nothing),
];
const ADAPTER: &[Step] = &[
    (b"\x58", |thread| thread.registers[RAX] = thread.pop()),
    (b"\x4c\x8b\xec", |thread| thread.registers[R13] = thread.registers[RSP]),
    (b"\x48\x83\xec\x10", |thread| thread.room(16)),
    (b"\x48\x83\xe4\xf0", |thread| thread.registers[RSP] &= !15),
    (b"\x50", |thread| thread.push(thread.registers[RAX])),
    (b"\x49\x8b\x75\x08", nothing),
    (b"\x41\xff\xe3", nothing),
];

/// Code at which a caller continues: first code after a call, then code that is entered only by a return.
const ENTRIES: [&[u8]; 9] = [
    b"\x0f\x1f\x84\x00\x44\x01\x00\x00",
    b"\x48\x8b\x65\xf0\x48\xc7\x45\xf0\x00\x00\x00\x00\x4c\x8b\x6d\xc0",
    b"\x48\x8b\x4d\xf0\x48\x8d\x64\xcd\x00\x48\xc7\x45\xf0\x00\x00\x00\x00",
    b"\x48\xc7\x45\xf0\x00\x00\x00\x00\x4c\x8b\x6d\xc0\x4c\x8b\x75\xd0",
    b"\xe8\x00\x00\x00\x00\x48\x83\x2c\x24\x05\xe9\x00\x00\x00\x00",
    b"\x4c\x8d\x15\xf9\xff\xff\xff\x41\x52\xe9\x00\x00\x00\x00",
    b"\x41\x85\x02\x48\x8b\xf0",
    b"\x85\x05\x00\x10\x00\x00",
    b"\x49\x8b\xa7\x28\x05\x00\x00\x50\x48\x83\xec\x10",
];

fn made(called: &[Step], entry: usize) -> SyntheticCode {
    let mut made = SyntheticCode::new();
    // The caller's call of `called`, unless the caller is entered by a return only.
    if entry == 0 {
        made.put(CALLER - 5, &[0xe8]);
        made.put(CALLER - 4, &((CALLED - CALLER) as u32).to_le_bytes());
    }
    made.put(CALLER, ENTRIES[entry]);
    let mut place = CALLED;
    for (code, _) in called {
        made.put(place, code);
        place += code.len() as u64;
    }
    made
}

/// The address space of a Java program with this code.
fn java(made: &SyntheticCode) -> AddressSpace {
    let mut space = made.space();
    space.hotspot = true;
    space
}

/// A thread whose first function, called from the C library, has a frame and called (or jumped to) the second function.
fn thread(entered: bool) -> SyntheticThread {
    let mut thread = SyntheticThread::new();
    thread.push(ROOT);
    thread.frame();
    thread.room(0x80);
    thread.push(CALLER);
    if !entered {
        thread.frame();
        // The interpreter stores its caller's stack pointer there.
        thread.push(SENDER);
        thread.room(0x40);
    }
    thread
}

/// Guarantees: at each instruction of HotSpot's code, the found caller is the true one, none is left out or invented,
/// whatever code the caller continues at; the stack is complete.
#[test]
fn at_each_instruction() {
    let codes =
        [(METHOD, true), (LEAF, true), (INTERPRETED, true), (LEAVING, false), (DISPATCH, true), (ADAPTER, true)];
    for (code, entered) in codes {
        for (entry, goes_on) in ENTRIES.iter().enumerate() {
            let mut space = made(code, entry).space();
            space.hotspot = true;
            let (mut thread, mut pc) = (thread(entered), CALLED);
            for (bytes, step) in code {
                let found = thread.unwind(&space, pc, ALL);
                assert_eq!(found, (vec![pc, CALLER, ROOT], UnwindOutcome::default()), "{bytes:02x?} {goes_on:02x?}");
                step(&mut thread);
                pc += bytes.len() as u64;
            }
        }
    }
}

/// Guarantees: from a Java frame on, frame pointers lead through several frames.
#[test]
fn callers_by_frame_pointers() {
    let mut made = made(METHOD, 1);
    made.put(CALLER + 0x100, ENTRIES[3]);
    let space = java(&made);
    let mut thread = SyntheticThread::new();
    thread.push(ROOT);
    for _ in 0..5 {
        thread.frame();
        thread.room(0x48);
        thread.push(CALLER);
        thread.frame();
        thread.room(0x18);
        thread.push(CALLER + 0x100);
    }
    let (frames, outcome) = thread.unwind(&space, CALLED, ALL);
    let pair = [CALLER + 0x100, CALLER];
    let expected = [&[CALLED][..], &pair.repeat(5), &[ROOT]].concat();
    assert_eq!((frames, outcome), (expected, UnwindOutcome::default()));
}

/// Guarantees: if there is no return address next to the frame pointer, the stack is not complete, and all frames
/// shown are on the stack.
#[test]
fn no_return_address() {
    let space = java(&made(METHOD, 0));
    let mut thread = SyntheticThread::new();
    thread.push(ROOT);
    thread.frame();
    thread.push(CALLER + 1);
    thread.frame();
    thread.room(0x20);
    let (frames, outcome) = thread.unwind(&space, CALLED + 23, ALL);
    assert_ne!(outcome.trust, Trust::Complete);
    assert!(!frames.contains(&(CALLER + 1)), "{frames:x?}");
}

/// Guarantees: code that only Java enters by a return does not count as a return address in processes without Java.
#[test]
fn only_in_java() {
    let space = made(METHOD, 1).space();
    let (_, outcome) = thread(false).unwind(&space, CALLED + 23, ALL);
    assert_ne!(outcome.trust, Trust::Complete);
}

/// Guarantees: if the virtual machine compiles methods without frame pointers, stacks through its code are guessed,
/// but still follow the frame pointer.
#[test]
fn without_frame_pointers() {
    for room in [&b"\x48\x83\xec\x30"[..], b"\x48\x81\xec\x90\x00\x00\x00"] {
        let mut made = made(METHOD, 0);
        let method = [b"\x89\x84\x24\x00\xc0\xfe\xff\x55", room].concat();
        made.put(CALLED - 0x100, &method);
        let space = java(&made);
        let (frames, outcome) = thread(true).unwind(&space, CALLED, ALL);
        assert_eq!(frames, [CALLED, CALLER, ROOT]);
        assert_eq!(outcome, UnwindOutcome { trust: Trust::Guessed, ..UnwindOutcome::default() });
    }
    assert!(!has_method_without_frame_pointer(b"\x89\x84\x24\x00\xc0\xfe\xff\x55\x48\x8b\xec\x48\x83\xec\x30"));
    assert!(!has_method_without_frame_pointer(b"\x89\x84\x24\x00\xc0\xfe\xff\x55\x48\x83"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Guarantees: whatever Java's code and the stack are, unwinding terminates and does not panic, and gives the same
    /// result with an empty and with a filled cache.
    #[test]
    fn attack_any_code(
        code in prop::collection::vec(any::<u8>(), 0..600),
        words in prop::collection::vec((any::<u64>(), 0u8..4), 0..100),
        at in 0u64..600,
    ) {
        let mut made = made(METHOD, 1);
        made.put(CALLED, &code);
        let space = java(&made);
        let mut thread = SyntheticThread::new();
        for (word, kind) in words {
            thread.push(match kind {
                0 => word,
                1 => CALLED + word % 600,
                2 => CALLER,
                _ => STACK - word % 800,
            });
        }
        thread.frame();
        let first = thread.unwind(&space, CALLED + at, ALL);
        prop_assert!(first.0.len() <= super::super::MAX_FRAMES);
        prop_assert_eq!(first, thread.unwind(&space, CALLED + at, ALL));
    }
}
