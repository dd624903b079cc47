//! Programs whose callers are known from their source.

use profbridge_sampler::elf::ObjectCache;
use profbridge_sampler::message::Trust;
use profbridge_sampler::unwind::{Frame, MAX_FRAMES, StackCopy, UnwindOutcome};

use crate::snapshot::{Snapshot, UnwoundProcess};
use crate::target::{ComputingTarget, compile};

const FAST: &[&str] = &["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-ipa-ra"];
/// No function of the program is longer than this, in bytes.
const LONGEST: u64 = 1024;

struct SeenStack {
    snapshot: Snapshot,
    frames: Vec<Frame>,
    outcome: UnwindOutcome,
    /// The addresses of the functions that the stack must have, innermost first.
    expected: Vec<u64>,
    process: UnwoundProcess,
    _target: ComputingTarget,
}

/// Runs the program until it spins, and unwinds the spinning thread.
fn look(flags: &[&str], arguments: &[&str]) -> SeenStack {
    let program = compile("known.c", &arguments.join("-").replace('/', ""), flags);
    let target = ComputingTarget::start(&program, arguments);
    std::fs::remove_file(&program).expect("the program is there");
    let expected: Vec<u64> =
        target.lines.iter().map(|line| u64::from_str_radix(line, 16).expect("an address")).collect();
    let mut process = UnwoundProcess::open(target.pid(), &mut ObjectCache::default());
    loop {
        let thread = *target.threads().last().expect("a thread");
        let (snapshot, frames, outcome) = process.look(thread);
        if outcome.unknown_code.is_some() {
            process.reload(&mut ObjectCache::default());
        } else if within(frames[0].pc, expected[0]) {
            return SeenStack { snapshot, frames, outcome, expected, process, _target: target };
        }
        std::thread::yield_now();
    }
}

fn within(pc: u64, function: u64) -> bool {
    (function..function + LONGEST).contains(&pc)
}

/// Asserts that the stack begins with these functions, each called by the next one.
fn assert_calls(seen: &SeenStack, functions: &[u64]) {
    for (at, function) in functions.iter().enumerate() {
        assert!(within(seen.frames[at].pc, *function), "frame {at} of {:x?}, expected {functions:x?}", seen.frames);
    }
}

/// Guarantees: callers in code without frame pointers are found in order, up to the program's first function, and none
/// is missing between; without unwind tables, too, by analysis of the code. The program's file is deleted before its
/// process is unwound.
#[test]
fn without_frame_pointers() {
    let bare = [FAST, &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]].concat();
    for (flags, arguments) in [(FAST, &["plain"][..]), (&bare, &["plain", "4"])] {
        let seen = look(flags, arguments);
        assert_calls(&seen, &seen.expected);
        assert_eq!(seen.outcome, UnwindOutcome { trust: Trust::Complete, ..UnwindOutcome::default() });
        // Besides the expected functions, which end with main: __libc_start_call_main, __libc_start_main, _start.
        assert_eq!(seen.frames.len(), seen.expected.len() + 3);
        let main = seen.frames[3].location.mapping().expect("main is in a file");
        let mapping = &seen.process.space.mappings()[main as usize];
        assert!(mapping.main && mapping.file.is_some() && mapping.htlhash.is_some());
        assert!((mapping.start..mapping.end).contains(&seen.frames[3].location.address()));
    }
}

/// Guarantees: a program with a statically linked C library is unwound as well; a thread's stack ends where the thread
/// was started, by the unwind rule of the C library's `clone`; a function that realigns its stack, and extends it while
/// running, is unwound by the expressions in its table.
#[test]
fn to_the_root() {
    let (fixed, aligned) = ([FAST, &["-static"]].concat(), [FAST, &["-mavx"]].concat());
    for (flags, arguments) in
        [(&fixed[..], &["plain", "3"][..]), (FAST, &["thread"]), (&aligned, &["realigned", "100"])]
    {
        let seen = look(flags, arguments);
        assert_calls(&seen, &seen.expected);
        assert_eq!(seen.outcome.trust, Trust::Complete, "{arguments:?}");
    }
}

/// Guarantees: deep recursion is unwound to its root within the limit of frames; beyond the limit the stack is
/// truncated, never complete.
#[test]
fn deep_recursion() {
    let seen = look(FAST, &["deep", "900"]);
    let deep = [&seen.expected[..1], &[seen.expected[1]; 901], &seen.expected[2..]].concat();
    assert_calls(&seen, &deep);
    assert_eq!(seen.outcome.trust, Trust::Complete);

    let seen = look(FAST, &["deep", "3000"]);
    assert_eq!(seen.frames.len(), MAX_FRAMES);
    assert_eq!(seen.outcome, UnwindOutcome { trust: Trust::Truncated, ..UnwindOutcome::default() });
}

/// Guarantees: a stack is unwound through the kernel's signal frame, on the same stack and on an alternate one, into
/// the interrupted function, whose address is used unchanged: it is not a return address, from which 1 would be
/// subtracted.
#[test]
fn signal_handlers() {
    for (mode, raised) in [("fault", false), ("fault-alternate", false), ("signal", true), ("signal-alternate", true)] {
        let seen = look(FAST, &[mode]);
        let [spin, handler, interrupted, main] = seen.expected[..] else { panic!("{:x?}", seen.expected) };
        assert_calls(&seen, &[spin, handler]);
        let place =
            seen.frames.iter().position(|frame| within(frame.pc, interrupted)).expect("the interrupted function");
        assert_eq!(seen.outcome.trust, Trust::Complete, "{mode}");
        let [frame, caller] = [seen.frames[place], seen.frames[place + 1]];
        assert!(within(caller.pc, main));
        if raised {
            assert!(place > 3, "raise() and what the C library calls in it lie between: {:x?}", seen.frames);
            continue;
        }
        assert_eq!(place, 3, "only the code that returns from the signal lies between: {:x?}", seen.frames);
        let bias = seen.process.space.find(frame.pc).expect("known code").bias;
        assert_eq!(frame.location.address(), frame.pc - bias, "{mode}");
        assert_eq!(caller.location.address(), caller.pc - bias - 1);
        assert_eq!(seen.snapshot.stack.second_bytes.is_empty(), mode == "fault");
    }
}

/// Guarantees: with only the stack pointer and the instruction pointer (which are all that is known of a blocked
/// thread) the same complete stack is found: where unwind tables need no other register, where the frame pointer has to
/// be searched for, and where a function realigns its stack.
#[test]
fn passive() {
    const FRAMED: &[&str] = &["-O2", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-ipa-ra"];
    const SIMPLE: &[&str] = &["-O0", "-fno-omit-frame-pointer"];
    let aligned = [FAST, &["-mavx"]].concat();
    for (place, (flags, arguments)) in [
        (FAST, ["plain", "5"]),
        (FRAMED, ["plain", "5"]),
        (SIMPLE, ["plain", "5"]),
        (FRAMED, ["deep", "50"]),
        (&aligned, ["realigned", "10"]),
    ]
    .into_iter()
    .enumerate()
    {
        let unique = format!("{}{place}", arguments[1]);
        let seen = look(flags, &[arguments[0], &unique]);
        let (same, outcome) = unwind_passive(seen);
        assert_eq!((same, outcome.trust), (true, Trust::Complete), "{place}");
    }
}

/// Guarantees: if only the contents of the stack show the frame pointer (the function reserves stack space in steps,
/// and is called through a register), the stack is correct here, but never trusted more than guessed.
#[test]
fn passive_without_proof() {
    let seen = look(&["-O2", "-fno-omit-frame-pointer"], &["indirect", "100"]);
    assert_calls(&seen, &seen.expected);
    assert_eq!(seen.outcome.trust, Trust::Complete);
    let (same, outcome) = unwind_passive(seen);
    assert_eq!((same, outcome), (true, UnwindOutcome { trust: Trust::Guessed, ..UnwindOutcome::default() }));
}

/// Whether unwinding with two registers finds the same frames, and its outcome.
fn unwind_passive(mut seen: SeenStack) -> (bool, UnwindOutcome) {
    let (frames, outcome) = seen.process.unwind_passive(&mut seen.snapshot);
    (frames == seen.frames, outcome)
}

/// Guarantees: wherever the copy of the stack ends, the frames found are the beginning of the whole stack, the result
/// is never complete, and it names the address from which more memory is needed.
#[test]
fn copy_that_ends_early() {
    let mut seen = look(FAST, &["plain", "6"]);
    let whole = seen.snapshot.stack.clone();
    let mut frames = Vec::new();
    let mut shorter = 0;
    for length in (0..whole.bytes.len().min(8192)).step_by(8) {
        let mut copy = StackCopy { start: whole.start, bytes: whole.bytes[..length].to_vec(), ..StackCopy::default() };
        let space = &seen.process.space;
        let outcome = seen.process.unwinder.unwind(space, &seen.snapshot.registers, &mut copy, &mut frames);
        assert!(seen.frames.starts_with(&frames));
        if frames.len() < seen.frames.len() {
            shorter += 1;
            assert_eq!(outcome.trust, Trust::Truncated);
            let needed = outcome.needs_memory.expect("memory is missing");
            assert!(needed >= seen.snapshot.registers.stack_pointer() && needed <= whole.start + length as u64 + 65536);
        }
    }
    assert!(shorter > 10);
}
