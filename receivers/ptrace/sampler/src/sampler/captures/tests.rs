use super::*;
use crate::message::Trust;
use crate::runtime::{self, Executed, Functions, Instance, NativeStack, NativelyNamed, Resolved, ThreadKey};
use crate::sampler::processors::tests::engine;

/// An interpreter with a function that replaces the innermost frame of every stack.
#[derive(Debug)]
struct Everywhere;

impl Instance for Everywhere {
    fn capture(
        &mut self,
        _: ThreadKey,
        _: usize,
        _: Instant,
        _: &mut dyn runtime::TargetMemory,
        _: &mut runtime::Captured,
    ) -> bool {
        false
    }

    fn resolve(
        &mut self,
        _: &runtime::Captured,
        _: bool,
        _: &mut dyn runtime::TargetMemory,
        _: &mut Functions,
        _: &mut Vec<Resolved>,
    ) {
    }

    fn executed(&mut self, _: u64, _: &mut dyn runtime::TargetMemory, _: &mut Functions) -> Option<Executed> {
        None
    }

    fn evaluation(&self) -> Option<std::ops::Range<u64>> {
        None
    }

    fn is_native(&self) -> bool {
        true
    }

    fn name_native(
        &mut self,
        _: NativeStack<'_>,
        _: &mut dyn StackMemory,
        _: &mut dyn runtime::TargetMemory,
        _: &mut Functions,
        named: &mut NativelyNamed,
    ) {
        named.locations.push((0, Location::Interpreted { function: 0, line: 1 }));
        (named.positioned, named.unknown) = (2, 3);
    }
}

/// A stack with nothing but an instruction pointer, as if copied by the kernel from a thread of this process.
fn sampled(process: &Active, pc: u64) -> Captured {
    let mut pieces = StackPieces::default();
    pieces.take(0x1000, &[0; 64]);
    Captured {
        process: process.attached.id,
        thread: std::process::id(),
        registers: Registers::passive(0x1000, pc),
        kernel: Vec::new(),
        at: Instant::now(),
        space_generation: process.attached.space_generation,
        in_call: false,
        blocked: false,
        preempted: None,
        stopped: false,
        read: None,
        period_nano: 1,
        stack: CapturedStack::Copied(pieces),
        interpreted: None,
        proof: Proof::None,
        worked: None,
    }
}

/// Guarantees: the results of naming a stack are counted once, with its observation, even if the stack is unwound again
/// because it ended in unmapped code, or stays incomplete.
#[test]
fn stacks_are_counted_once() {
    let unknown_code = 0x10;
    let known_code = stacks_are_counted_once as fn() as usize as u64;
    let mut engine = engine(std::process::id(), &|| {}, Instant::now(), false);
    let process = &mut engine.processes[0];
    process.attached.interpreters.add(Box::new(Everywhere));
    let (mut captures, mut unwinder, mut locations) = Default::default();
    let counted = |process: &Active| {
        let status = &process.attached.status;
        (status.observations, status.interpreted, status.positioned_frames, status.unknown_functions)
    };
    let finish =
        |process: &mut Active, captures: &mut Captures, unwinder: &mut StackUnwinder, locations: &mut _, pc| {
            let captured = sampled(process, pc);
            captures.finish(process, captured, unwinder, locations);
        };
    finish(process, &mut captures, &mut unwinder, &mut locations, known_code);
    assert_eq!(counted(process), (1, 1, 2, 3));
    // The stack waits, because the code where it ended is not known yet.
    finish(process, &mut captures, &mut unwinder, &mut locations, unknown_code);
    assert_eq!(counted(process), (1, 1, 2, 3));
    let mut waiting = captures.take_unknown(process.attached.id);
    assert_eq!((waiting.len(), waiting[0].trust), (1, Trust::Truncated));
    // Then the code becomes known.
    waiting[0].registers = Registers::passive(0x1000, known_code);
    captures.retry(process, waiting.remove(0), &mut unwinder, &mut locations);
    assert!(captures.unknown.is_empty());
    assert_eq!(counted(process), (2, 2, 4, 6));
    // Alternatively, the batch is sent before the code is known.
    finish(process, &mut captures, &mut unwinder, &mut locations, unknown_code);
    captures.settle_unknown(process);
    assert_eq!(counted(process), (3, 3, 6, 9));
}

/// Guarantees: if a stack is longer than its copy, one frame replaces the rest and is counted, even if the stack is
/// unwound again because it ended in unmapped code.
#[test]
fn stacks_beyond_their_copies() {
    let (unknown_code, known_code) = (0x10, stacks_beyond_their_copies as fn() as usize as u64);
    let mut engine = engine(std::process::id(), &|| {}, Instant::now(), false);
    let process = &mut engine.processes[0];
    let (mut captures, mut unwinder, mut locations) = <(Captures, StackUnwinder, Vec<Location>)>::default();
    let beyond = |pc| Registers::passive(0x1040, pc);
    let captured = Captured { registers: beyond(known_code), ..sampled(process, known_code) };
    captures.finish(process, captured, &mut unwinder, &mut locations);
    let expected = std::mem::take(&mut locations);
    assert_eq!((expected.len(), expected.last()), (2, Some(&Location::CALLERS_NOT_KNOWN)));
    assert_eq!(process.attached.status.missing_callers, 1);
    let captured = Captured { registers: beyond(unknown_code), ..sampled(process, unknown_code) };
    captures.finish(process, captured, &mut unwinder, &mut locations);
    assert!(!locations.contains(&Location::CALLERS_NOT_KNOWN));
    let mut waiting = captures.take_unknown(process.attached.id);
    waiting[0].registers = beyond(known_code);
    captures.retry(process, waiting.remove(0), &mut unwinder, &mut locations);
    assert_eq!(locations, expected);
    assert_eq!(process.attached.status.missing_callers, 2);
}
