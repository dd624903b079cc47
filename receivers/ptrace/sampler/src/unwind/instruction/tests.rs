//! Instructions as assemblers encode them: single ones, and all instructions of the C library.
#![allow(clippy::expect_used, clippy::print_stderr, reason = "these are tests")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;

/// Guarantees: the written value depends on the registers that an instruction names, and on none if their values do not
/// matter.
#[test]
fn sources() {
    let cases: &[(&[u8], u16)] = &[
        (b"\x48\x8b\x14\xd7", 1 << 2 | 1 << 7),         // mov (%rdi,%rdx,8), %rdx
        (b"\x41\x0f\xb7\x57\x02", 1 << 15),             // movzwl 2(%r15), %edx
        (b"\x41\x89\xd1", 1 << 2),                      // mov %edx, %r9d
        (b"\x09\xd0", 1 << 0 | 1 << 2),                 // or %edx, %eax
        (b"\x18\xc0", 0),                               // sbb %al, %al
        (b"\x31\xc9", 0),                               // xor %ecx, %ecx
        (b"\x66\xf7\xd8", 1 << 0),                      // neg %ax
        (b"\x66\x41\xc1\xe9\x08", 1 << 9),              // shr $8, %r9w
        (b"\x0f\xb6\xc4", 1 << 0 | 1 << 4),             // movzbl %ah, %eax
        (b"\x48\x63\x04\x81", 1 << 0 | 1 << 1),         // movslq (%rcx,%rax,4), %rax
        (b"\x42\xff\x24\xe5\x00\x00\x00\x00", 1 << 12), // jmp *0(,%r12,8)
        (b"\x48\x8d\x05\x00\x00\x00\x00", 0),           // lea 0(%rip), %rax
    ];
    for (code, sources) in cases {
        assert_eq!(decode(code).map(|found| found.sources), Some(*sources), "{code:02x?}");
    }
}

/// Guarantees: instructions that move the stack pointer, the frame pointer, or a word between registers and the stack
/// are decoded, with all forms of operands.
#[test]
fn known() {
    let place = |base, distance| MemoryOperand { base: Some(base), distance };
    let cases: &[(&[u8], Effect)] = &[
        (b"\x55", Effect::Push(Some(RBP))),
        (b"\x41\x57", Effect::Push(Some(15))),
        (b"\x68\x00\x01\x00\x00", Effect::Push(None)),
        (b"\x6a\x00", Effect::Push(None)),
        (b"\xff\x74\x24\x08", Effect::Push(None)),
        (b"\x5d", Effect::Pop(Some(RBP))),
        (b"\x41\x5c", Effect::Pop(Some(12))),
        (b"\x48\x89\xe5", Effect::Copy { to: RBP, from: RSP }),
        (b"\x48\x8b\xec", Effect::Copy { to: RBP, from: RSP }),
        (b"\x49\x8b\xe5", Effect::Copy { to: RSP, from: 13 }),
        (b"\x48\x83\xec\x08", Effect::Add { to: RSP, value: -8 }),
        (b"\x48\x81\xec\x80\x00\x00\x00", Effect::Add { to: RSP, value: -128 }),
        (b"\x48\x83\xc4\x10", Effect::Add { to: RSP, value: 16 }),
        (b"\x48\x83\xe4\xf0", Effect::Mask { to: RSP, value: -16 }),
        (b"\x48\x8d\x65\xd8", Effect::Point { to: RSP, at: place(RBP, -40) }),
        (b"\x4c\x8d\x54\x24\x08", Effect::Point { to: 10, at: place(RSP, 8) }),
        (b"\x48\x8d\x64\xcd\x00", Effect::PointBeyond { to: RSP, at: place(RBP, 0) }),
        (b"\x4d\x8d\x54\x42\x02", Effect::PointBeyond { to: 10, at: place(10, 2) }),
        (b"\x48\x8d\x04\x45\x02\x00\x00\x00", Effect::Point { to: 0, at: MemoryOperand { base: None, distance: 2 } }),
        (b"\x48\x89\x6c\x24\x10", Effect::Store { to: place(RSP, 16), from: RBP }),
        (b"\x48\x8b\x65\xf0", Effect::Load { to: RSP, from: place(RBP, -16) }),
        (
            b"\x64\x48\x8b\x04\x25\x00\x00\x00\x00",
            Effect::Load { to: 0, from: MemoryOperand { base: None, distance: 0 } },
        ),
        (b"\x64\x48\x8b\x44\x24\x08", Effect::Load { to: 0, from: MemoryOperand { base: None, distance: 8 } }),
        (b"\x41\x0f\xb6\x42\x14", Effect::Fetch { to: 0, from: place(10, 20) }),
        (b"\x0f\xb7\x04\x24", Effect::Fetch { to: 0, from: place(RSP, 0) }),
        (b"\x0f\xb7\x0d\x19\x48\x55\x00", Effect::Changes(1 << 1)), // movzwl 0x554819(%rip), %ecx
        (b"\x0f\xb6\x04\x08", Effect::Fetch { to: 0, from: MemoryOperand { base: None, distance: 0 } }),
        (b"\x45\x0f\xb6\xf6", Effect::Changes(1 << 14)),
        (b"\xc9", Effect::Leave),
        (b"\xc3", Effect::Return),
        (b"\xf3\xc3", Effect::Return),
        (b"\xe8\x00\x00\x00\x00", Effect::Call),
        (b"\xff\xd1", Effect::Call),
        (b"\xe9\x10\x00\x00\x00", Effect::Jump(16)),
        (b"\xeb\xfe", Effect::Jump(-2)),
        (b"\x74\x05", Effect::Branch(5)),
        (b"\x0f\x87\x01\x00\x00\x00", Effect::Branch(1)),
        (b"\x41\xff\xe5", Effect::JumpThrough(Some(13))),
        (b"\xff\x63\x48", Effect::JumpThrough(None)),
        (b"\x0f\x0b", Effect::End),
        (b"\xf4", Effect::End),
        // Comparisons, stores of one or four bytes, and instructions with vector registers change neither pointer.
        (b"\x49\x3b\xa7\x60\x01\x00\x00", Effect::Changes(0)),
        (b"\x48\x39\xe5", Effect::Changes(0)),
        (b"\x48\x85\xed", Effect::Changes(0)),
        (b"\x89\x84\x24\x00\xc0\xfe\xff", Effect::Changes(0)),
        (b"\xc5\xf8\x77", Effect::Changes(0)),
        (b"\x66\x0f\x6f\xec", Effect::Changes(0)),
        (b"\xc5\xfd\x6f\xec", Effect::Changes(0)),
        (b"\x62\xf1\xfe\x48\x6f\xec", Effect::Changes(0)),
        (b"\x48\x98", Effect::Changes(1)),
        (b"\x48\x99", Effect::Changes(1 << 2)),
        (b"\xb4\x01", Effect::Changes(1)),
        (b"\x88\xe5", Effect::Changes(2)),
        (b"\x31\xed", Effect::Changes(1 << RBP)),
        (b"\xbd\x01\x00\x00\x00", Effect::Changes(1 << RBP)),
        (b"\x48\x0f\x44\xe8", Effect::Changes(1 << RBP)),
        (b"\x48\x29\xc4", Effect::Changes(1 << RSP | 1)),
        (b"\x49\x01\xc2", Effect::AddRegister { to: 10, from: 0 }),
        (b"\x4c\x03\xd0", Effect::AddRegister { to: 10, from: 0 }),
        (b"\x4c\x03\x52\x38", Effect::AddWord { to: 10, from: place(2, 0x38) }),
        (b"\x4c\x01\x52\x38", Effect::Changes(0)),
        (b"\x41\xf7\xda", Effect::Changes(1 << 10)),
        (b"\x49\xf7\xe2", Effect::Changes(1 << 10 | 1 << 2 | 1)),
        (b"\x01\xc2", Effect::Changes(1 << 2 | 1)),
    ];
    for (code, effect) in cases {
        let found = decode(code).map(|found| (found.length, found.effect));
        assert_eq!(found, Some((code.len(), *effect)), "{code:02x?}");
        assert_eq!(decode(&code[..code.len() - 1]).map(|found| found.length < code.len()), None, "{code:02x?} cut off");
    }
}

/// Guarantees: every instruction of the C library has the length that a disassembler shows.
#[test]
fn lengths_of_a_library() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let library = maps.lines().find_map(|line| Some(&line[line.find('/')?..]).filter(|path| path.contains("/libc.so")));
    let listing = library.and_then(|library| {
        let mut command = Command::new("objdump");
        command.args(["-d", "--wide", "-w", "-j", ".text"]).arg(library).stdout(Stdio::piped()).spawn().ok()
    });
    let Some(mut listing) = listing else {
        eprintln!("untested here: there is no objdump, or no C library of its own");
        return;
    };
    let (mut seen, mut wrong) = (0, Vec::new());
    for line in BufReader::new(listing.stdout.take().expect("it is piped")).lines() {
        let line = line.expect("text");
        let mut fields = line.split('\t');
        let (Some(_), Some(bytes), Some(text)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let code: Vec<u8> = bytes.split_whitespace().filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        // 64-bit programs never execute these: they are data between functions, and privileged instructions.
        if text.contains("(bad)") || text.contains("xabort") || text.contains("xbegin") {
            continue;
        }
        seen += 1;
        let found = decode(&code).map(|found| found.length);
        if found != Some(code.len()) {
            wrong.push(line);
        }
    }
    assert!(listing.wait().expect("it ends").success());
    assert!(seen > 100_000 && wrong.len() < seen / 10_000, "{} of {seen}:\n{}", wrong.len(), wrong.join("\n"));
}

proptest! {
    /// Guarantees: no bytes make the decoder panic, and no instruction is longer than its bytes.
    #[test]
    fn attack_any_bytes(code in prop::collection::vec(any::<u8>(), 0..20)) {
        if let Some(found) = decode(&code) {
            prop_assert!((1..=code.len()).contains(&found.length));
        }
    }
}
