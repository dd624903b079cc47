//! Recognizes the x86-64 instructions that matter in code without call frame information.
//!
//! Source of the encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CALL, RET, PUSH,
//! MOV. The sequences that return from signal handlers are those of glibc, musl and Go; debuggers recognize them in the
//! same way as this file does.

use super::instruction::{Effect, Instruction, RBP, RSP, decode};
use super::simulation::{KEPT, SimulatedValue, Simulation, ValueOrigin};

/// A call instruction that precedes a return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// A call of this address.
    Direct(u64),
    /// A call of the address stored here, which is how libraries are called without a procedure linkage table.
    Stored(u64),
    /// A call through a register or memory.
    Indirect,
}

/// How many bytes are read before a return address: the longest call without prefixes.
pub(super) const CALL_LENGTH: usize = 7;
/// How many bytes of code are read from an address on.
pub(super) const LOOK_AHEAD: usize = 16;

/// The call that ends at `end`; `before` are the bytes before it.
pub(super) fn call_before(end: u64, before: &[u8; CALL_LENGTH]) -> Option<Call> {
    if before[2] == 0xe8 {
        let distance = i32::from_le_bytes([before[3], before[4], before[5], before[6]]);
        return Some(Call::Direct(end.wrapping_add_signed(i64::from(distance))));
    }
    if before[1..3] == [0xff, 0x15] {
        let distance = i32::from_le_bytes([before[3], before[4], before[5], before[6]]);
        return Some(Call::Stored(end.wrapping_add_signed(i64::from(distance))));
    }
    let is_call = |code: &[u8]| {
        let is_it = |found: Instruction| found.effect == Effect::Call && found.length == code.len();
        code[0] == 0xff && decode(code).is_some_and(is_it)
    };
    (2..=CALL_LENGTH).any(|length| is_call(&before[CALL_LENGTH - length..])).then_some(Call::Indirect)
}

/// Whether the code returns from a signal handler: `mov $15, %eax; syscall` (`rt_sigreturn`).
pub(super) fn returns_from_signal(code: &[u8]) -> bool {
    const GLIBC_AND_GO: &[u8] = b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05";
    const MUSL: &[u8] = b"\xb8\x0f\x00\x00\x00\x0f\x05";
    code.starts_with(GLIBC_AND_GO) || code.starts_with(MUSL)
}

/// Whether the code ends the thread with the return value of a function: `mov %eax, %edi; exit`. Only the first
/// function of a thread does that.
pub(super) fn ends_thread(code: &[u8]) -> bool {
    const GLIBC: &[u8] = b"\x89\xc7\xb8\x3c\x00\x00\x00\x0f\x05";
    const MUSL: &[u8] = b"\x89\xc7\x31\xc0\xb0\x3c\x0f\x05";
    code.starts_with(GLIBC) || code.starts_with(MUSL)
}

/// Whether this is the code to which a coroutine's first function returns: glibc's `__start_context` restores the
/// parameters from the stack (`mov %rbx, %rsp`), checks for shadow stacks if it supports them, and switches to the
/// next context.
pub(super) fn ends_coroutine(code: &[u8]) -> bool {
    let rests: [&[u8]; 3] = [b"\x48\x8b\x3c\x24\x48\x85\xff", b"\x5f\x48\x85\xff", b"\x64\xf7\x04\x25"];
    code.strip_prefix(b"\x48\x89\xdc").is_some_and(|code| rests.iter().any(|rest| code.starts_with(rest)))
}

/// How far a function has set up or removed its stack frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Only the return address is on the stack: at the first instruction, or at the last.
    Bare,
    /// The caller's frame pointer is on the stack, but the function has not set up its own yet, or has already removed
    /// it.
    Pushed,
    /// The frame pointer is set up.
    Framed,
}

/// The state of a function that is about to execute `code`; `before` are the preceding bytes.
pub(super) fn progress(before: &[u8], code: &[u8]) -> Progress {
    const MOVES: [&[u8]; 2] = [b"\x48\x89\xe5", b"\x48\x8b\xec"];
    // A function may start with `endbr64`, and Go may store results before it returns.
    let code = skip_stores(code.strip_prefix(b"\xf3\x0f\x1e\xfa").unwrap_or(code));
    match code {
        [0xc3, ..] | [0xc2, ..] => Progress::Bare,
        // Go first compares the stack pointer with the goroutine's limit, and grows the stack if necessary.
        [0x49, 0x3b, 0x66, 0x10, ..] | [0x4c, 0x8d, 0x64, 0x24, _, 0x4d, 0x3b, 0x66, 0x10, ..] => Progress::Bare,
        [0x76, _, rest @ ..] | [0x0f, 0x86, _, _, _, _, rest @ ..] if rest.starts_with(b"\x55\x48\x89\xe5") => {
            Progress::Bare
        }
        [0x55, rest @ ..] if MOVES.iter().any(|moves| rest.starts_with(moves)) => Progress::Bare,
        // `pop %rbp; ret`
        [0x5d, 0xc3, ..] | [0x5d, 0xc2, ..] => Progress::Pushed,
        _ if before.last() == Some(&0x55) && MOVES.iter().any(|moves| code.starts_with(moves)) => Progress::Pushed,
        _ => Progress::Framed,
    }
}

/// The target of code that only jumps: entries of the procedure linkage table, thunks. `address` is that of the code.
pub(super) fn jump(address: u64, code: &[u8]) -> Option<Call> {
    let rest = code.strip_prefix(b"\xf3\x0f\x1e\xfa").unwrap_or(code);
    // Linkers put `bnd` before the jump on request.
    let rest = rest.strip_prefix(b"\xf2").unwrap_or(rest);
    let distance = |at: usize| Some(i32::from_le_bytes(*rest.get(at..)?.first_chunk()?));
    let target = |length: usize, distance: i32| {
        let end = address.wrapping_add((code.len() - rest.len() + length) as u64);
        end.wrapping_add_signed(i64::from(distance))
    };
    match rest {
        [0xff, 0x25, ..] => Some(Call::Stored(target(6, distance(2)?))),
        [0xe9, ..] => Some(Call::Direct(target(5, distance(1)?))),
        _ => None,
    }
}

/// The number of bytes examined for a prologue: setting up the frame pointer, pushing five registers and a word for
/// alignment, and reserving space for variables.
pub(super) const PROLOGUE_LENGTH: usize = 40;

/// Analyses a function that starts by setting up its frame pointer (`push %rbp; mov %rsp, %rbp`). Returns the distance
/// from the stack pointer to the frame pointer after it has pushed registers and reserved space in one step, and the
/// number of registers it saves for its caller, without the frame pointer. `None` if the function starts differently.
pub(super) fn prologue(code: &[u8]) -> Option<(u64, usize)> {
    let mut rest = code.strip_prefix(b"\xf3\x0f\x1e\xfa").unwrap_or(code);
    let mut state = Simulation::at_start(false);
    let mut saved = 0;
    while let Some(Instruction { length, effect, .. }) = decode(rest) {
        let is_last = match effect {
            Effect::Push(Some(register)) => {
                saved += usize::from(register != RBP && KEPT & 1 << register != 0);
                false
            }
            Effect::Copy { to: RBP, from: RSP } => false,
            Effect::Add { to: RSP, value } if value < 0 => true,
            _ => break,
        };
        state.step(effect, ValueOrigin::word);
        rest = &rest[length..];
        if is_last {
            break;
        }
    }
    let frame = state.get(RBP)?;
    let is_set = frame.distance_from(RSP) == Some(-8) && state.saved(RBP) == Some(frame);
    let size = state.get(RSP)?.distance_to(frame)?.cast_unsigned();
    is_set.then_some((size, saved))
}

/// Skips `mov %eax, N(%rsp)` and `mov %rax, N(%rsp)`: Go's functions in assembly have one or two of them before `ret`.
fn skip_stores(code: &[u8]) -> &[u8] {
    let mut rest = code;
    for _ in 0..2 {
        match rest {
            [0x89, 0x44, 0x24, _, more @ ..] | [0x48, 0x89, 0x44, 0x24, _, more @ ..] => rest = more,
            _ => break,
        }
    }
    if rest.first() == Some(&0xc3) { rest } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(bytes: &[u8]) -> [u8; CALL_LENGTH] {
        let mut padded = [0x90; CALL_LENGTH];
        padded[CALL_LENGTH - bytes.len()..].copy_from_slice(bytes);
        padded
    }

    /// Guarantees: every form of a near call is recognized, as an assembler writes it.
    #[test]
    fn calls() {
        assert_eq!(call_before(0x1005, &before(b"\xe8\xfb\x0f\x00\x00")), Some(Call::Direct(0x2000)));
        assert_eq!(call_before(0x1005, &before(b"\xe8\xfb\xff\xff\xff")), Some(Call::Direct(0x1000)));
        assert_eq!(call_before(0x1006, &before(b"\xff\x15\x00\x10\x00\x00")), Some(Call::Stored(0x2006)));
        let indirect: [&[u8]; 8] = [
            b"\xff\xd0",                     // call *%rax
            b"\x41\xff\xd4",                 // call *%r12
            b"\xff\x13",                     // call *(%rbx)
            b"\xff\x14\xc3",                 // call *(%rbx,%rax,8)
            b"\xff\x53\x08",                 // call *8(%rbx)
            b"\xff\x54\x24\x08",             // call *8(%rsp)
            b"\xff\x90\x00\x10\x00\x00",     // call *0x1000(%rax)
            b"\xff\x14\xc5\x00\x10\x00\x00", // call *0x1000(,%rax,8)
        ];
        for bytes in indirect {
            assert_eq!(call_before(0x1000, &before(bytes)), Some(Call::Indirect), "{bytes:02x?}");
        }
    }

    /// Guarantees: jumps, pushes from memory and other instructions are not mistaken for calls.
    #[test]
    fn no_calls() {
        let others: [&[u8]; 6] = [
            b"\xff\xe0",                 // jmp *%rax
            b"\xff\x30",                 // push (%rax)
            b"\xe9\x00\x10\x00\x00",     // jmp
            b"\x48\x89\xe5",             // mov %rsp,%rbp
            b"\xff\x25\x00\x10\x00\x00", // jmp *0x1000(%rip)
            b"\xff\xc0",                 // inc %eax
        ];
        for bytes in others {
            assert_eq!(call_before(0x1000, &before(bytes)), None, "{bytes:02x?}");
        }
    }

    /// Guarantees: the first and the last instructions of a function with a frame pointer are distinguished from the
    /// others.
    #[test]
    fn how_far() {
        assert_eq!(progress(b"\x90", b"\x55\x48\x89\xe5"), Progress::Bare);
        assert_eq!(progress(b"\x90", b"\xf3\x0f\x1e\xfa\x55\x48\x89\xe5"), Progress::Bare);
        assert_eq!(progress(b"\x55", b"\x48\x89\xe5\x90"), Progress::Pushed);
        assert_eq!(progress(b"\xe5", b"\x5d\xc3"), Progress::Pushed);
        assert_eq!(progress(b"\x5d", b"\xc3"), Progress::Bare);
        assert_eq!(progress(b"\x90", b"\x49\x3b\x66\x10\x76\x2b"), Progress::Bare);
        assert_eq!(progress(b"\x10", b"\x76\x2b\x55\x48\x89\xe5"), Progress::Bare);
        assert_eq!(progress(b"\x05", b"\x89\x44\x24\x28\xc3"), Progress::Bare);
        assert_eq!(progress(b"\x05", b"\x89\x44\x24\x28\x90"), Progress::Framed);
        assert_eq!(progress(b"\x90", b"\x48\x83\xec\x10"), Progress::Framed);
    }

    /// Guarantees: the stack space of a function is computed for the prologues that compilers write, and functions with
    /// another start have no result.
    #[test]
    fn prologues() {
        let found = prologue;
        assert_eq!(found(b"\x55\x48\x89\xe5\x41\x57\x41\x56\x53\x50\x49\x89\xfe"), Some((32, 3)));
        assert_eq!(found(b"\x55\x48\x89\xe5\x41\x56\x53\x48\x83\xec\x20\x90"), Some((48, 2)));
        assert_eq!(found(b"\xf3\x0f\x1e\xfa\x55\x48\x89\xe5\x48\x81\xec\x00\x20\x00\x00"), Some((0x2000, 0)));
        assert_eq!(found(b"\x55\x48\x89\xe5"), Some((0, 0)));
        assert_eq!(found(b"\x55\x53\x48\x83\xec\x20"), None);
        assert_eq!(found(b""), None);
    }

    /// Guarantees: the targets of procedure linkage table entries are found.
    #[test]
    fn jumps() {
        assert_eq!(jump(0x1000, b"\xff\x25\x00\x10\x00\x00"), Some(Call::Stored(0x2006)));
        assert_eq!(jump(0x1000, b"\xf3\x0f\x1e\xfa\xf2\xff\x25\x00\x10\x00\x00"), Some(Call::Stored(0x200b)));
        assert_eq!(jump(0x1000, b"\xe9\xfb\xff\xff\xff"), Some(Call::Direct(0x1000)));
        assert_eq!(jump(0x1000, b"\xe9\xfb"), None);
        assert_eq!(jump(0x1000, b"\xe8\xfb\xff\xff\xff"), None);
    }
}
