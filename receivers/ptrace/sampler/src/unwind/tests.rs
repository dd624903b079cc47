//! Stacks made to mislead the unwinder, and memory that ends in unfortunate places.
#![allow(clippy::expect_used, reason = "these are tests")]

use std::sync::OnceLock;

use proptest::prelude::*;

use super::made::RecordingMemory;
use super::*;
use crate::elf::ObjectCache;
use crate::process_files::ProcessFiles;

fn this_process() -> &'static AddressSpace {
    static SPACE: OnceLock<AddressSpace> = OnceLock::new();
    SPACE.get_or_init(|| {
        let files = ProcessFiles::open(std::process::id()).expect("this process can be opened");
        AddressSpace::load(&files, None, &mut ObjectCache::default()).expect("it loads")
    })
}

/// The maximum average number of stack words read per frame of the longest stack, also for a misleading one. Real
/// stacks need two or three reads per frame, more with an unknown frame pointer, since several candidates are tried.
const READS: usize = 256;

fn some_code() -> u64 {
    some_code as *const () as u64
}

/// Guarantees: words are read from both copied stacks, at any alignment, and not across an end.
#[test]
fn copies() {
    let mut copy =
        StackCopy { start: 100, bytes: (0..16).collect(), second_start: u64::MAX - 7, second_bytes: vec![9; 8] };
    assert_eq!(copy.read_u64(101), Some(0x0807_0605_0403_0201));
    assert_eq!(copy.read_u64(108), Some(0x0f0e_0d0c_0b0a_0908));
    assert_eq!((copy.read_u64(109), copy.read_u64(99), copy.read_u64(u64::MAX)), (None, None, None));
    assert_eq!(copy.read_u64(u64::MAX - 7), Some(0x0909_0909_0909_0909));
}

/// Unwinds a stack whose words are the results of `word`. Returns the frames and the outcome; the number of words read
/// is bounded.
fn unwind(registers: &Registers, mut word: impl FnMut(u64) -> u64) -> (Vec<Frame>, UnwindOutcome) {
    let (mut frames, mut reads) = (Vec::new(), 0);
    let read = |address| {
        reads += 1;
        Some(word(address))
    };
    let outcome =
        Unwinder::new().unwind(this_process(), registers, &mut RecordingMemory(read, Vec::new()), &mut frames);
    assert!((1..=MAX_FRAMES).contains(&frames.len()));
    assert!(reads <= READS * MAX_FRAMES, "{reads} words were read");
    (frames, outcome)
}

/// Guarantees: a stack full of the same return address ends at the limit of frames, is not complete, and only a little
/// of it is read.
#[test]
fn attack_endless_stack() {
    for code in [some_code(), some_code() + 1, this_process().modules()[0].start] {
        let mut registers = Registers::full([0x7000_0000; COUNT]);
        registers.set(INSTRUCTION_POINTER, code);
        let (frames, outcome) = unwind(&registers, |_| code);
        assert_ne!(outcome.trust, Trust::Complete, "{frames:x?}");
    }
}

/// Guarantees: a stack on which every word looks like a frame pointer candidate costs little, and is not complete. The
/// test starts at many places in the code of this process, in which many functions keep frame pointers.
#[test]
fn attack_search() {
    let space = this_process();
    let module = space.find(some_code()).expect("this is code");
    let mut bytes = vec![0; 1 << 16];
    let count = space.read_code(module.start, &mut bytes);
    let call = bytes[..count].windows(code::CALL_LENGTH).enumerate().find_map(|(place, before)| {
        let end = module.start + (place + code::CALL_LENGTH) as u64;
        let target = match code::call_before(end, before.try_into().ok()?)? {
            code::Call::Direct(target) => target,
            _ => return None,
        };
        space.find(target).map(|_| end)
    });
    let returns = call.expect("something is called");
    let functions = space.modules().iter().filter_map(|module| Some((module, module.object.as_ref()?.tables()?)));
    let places = functions.flat_map(|(module, tables)| {
        let starts = tables.starts().step_by(tables.functions() / 40 + 1);
        starts.map(|start| start.wrapping_add(module.bias).wrapping_add(12))
    });
    let mut searched = 0;
    for place in places {
        // Every second word is a frame pointer to a higher address, with a return address after it.
        let ladder = |address: u64| if address.is_multiple_of(16) { address + 16 } else { returns };
        let (frames, outcome) = unwind(&Registers::passive(0x7000_0000, place), ladder);
        // One of the places may be in the program's first function.
        assert!(outcome.trust != Trust::Complete || frames.len() == 1, "{frames:x?}");
        searched += u32::from(outcome.needs_register.is_some() || frames.len() > 2);
    }
    assert!(searched > 3, "{searched}");
}

/// Guarantees: a stack pointer that leads back to itself through fake signal frames is not followed for more than a few
/// rounds.
#[test]
fn attack_circle() {
    let space = this_process();
    let restore = space.modules().iter().find_map(signal_return).expect("the C library has one");
    let mut registers = Registers::passive(0x7000_0000, restore);
    registers.set(FRAME_POINTER, 0x7000_0000);
    // Every register is restored to the stack pointer, and the instruction pointer to the code that returns from
    // signal handlers.
    let circle = |address| if address == 0x7000_0000 + 40 + 8 * 16 { restore } else { 0x7000_0000 };
    let (frames, outcome) = unwind(&registers, circle);
    assert!((2..64).contains(&frames.len()), "{}", frames.len());
    assert_eq!(outcome.trust, Trust::Truncated);
}

/// The code that returns from signal handlers: the first function of a module whose row is marked as a signal frame.
fn signal_return(module: &crate::address_space::Module) -> Option<u64> {
    let tables = module.object.as_ref()?.tables()?;
    let mut context = crate::elf::Context::new_in();
    let address = tables
        .starts()
        .find(|start| tables.row(*start + 1, &mut context).ok().flatten().is_some_and(|found| found.signal))?;
    Some(address.wrapping_add(1).wrapping_add(module.bias))
}

/// Guarantees: unknown code is shown as such, in the leaf and in a caller, and no frames are invented beyond it.
#[test]
fn unknown_code() {
    let unknown =
        |code| UnwindOutcome { trust: Trust::Truncated, unknown_code: Some(code), ..UnwindOutcome::default() };
    let (frames, outcome) = unwind(&Registers::passive(0x7000_0000, 0x10), |_| 0x20);
    let location = Location::Native { mapping: None, address: 0x10 };
    let leaf = Frame { pc: 0x10, sp: 0x7000_0000, location, registers: Registers::default() };
    assert_eq!((frames, outcome), (vec![leaf], unknown(0x10)));
    let (frames, outcome) = unwind(&Registers::passive(0x7000_0000, some_code()), |_| 0x20);
    assert_eq!((frames.len(), outcome), (1, unknown(0x20)));
}

/// Guarantees: a return address of 0 ends a stack, which is complete.
#[test]
fn return_address_zero() {
    let (frames, outcome) = unwind(&Registers::passive(0x7000_0000, some_code()), |_| 0);
    assert_eq!((outcome, frames.len()), (UnwindOutcome::default(), 1));
}

/// The address of an instruction of this process.
fn code_at(index: &prop::sample::Index) -> u64 {
    let modules = this_process().modules();
    let module = &modules[index.index(modules.len())];
    module.start + index.index((module.end - module.start) as usize) as u64
}

/// The words of a stack at address 0x1000: arbitrary words, addresses on the stack, and addresses of code.
fn stack_words() -> impl Strategy<Value = Vec<u64>> {
    let word = (any::<prop::sample::Index>(), any::<u64>(), 0u8..4).prop_map(|(index, word, kind)| match kind {
        0 => word,
        1 => 0x1000 + (word % 640),
        _ => code_at(&index),
    });
    prop::collection::vec(word, 1..80)
}

fn stack_of(words: &[u64]) -> StackCopy {
    StackCopy {
        start: 0x1000,
        bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        ..StackCopy::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Guarantees: whatever the registers and the stack are, and in whatever order stacks come, unwinding ends within
    /// its limits, and caches filled by one stack do not change the result of another.
    #[test]
    fn any_stack(
        pcs in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        words in stack_words(),
        known in any::<u32>(),
    ) {
        let (space, mut copy, mut unwinder) = (this_process(), stack_of(&words), Unwinder::new());
        for pc in &pcs {
            let mut registers = Registers::full([0x1000; COUNT]);
            registers.set(INSTRUCTION_POINTER, code_at(pc));
            registers.known &= known | 1 << STACK_POINTER | 1 << INSTRUCTION_POINTER;
            let (mut warm, mut fresh) = (Vec::new(), Vec::new());
            let outcome = unwinder.unwind(space, &registers, &mut copy, &mut warm);
            prop_assert!((1..=MAX_FRAMES).contains(&warm.len()));
            prop_assert_eq!(outcome, Unwinder::new().unwind(space, &registers, &mut copy, &mut fresh));
            prop_assert_eq!(warm, fresh);
        }
    }

    /// Guarantees: if all words that were recorded as read are unchanged, the stack has the same frames, whatever else
    /// has changed: words that functions saved for their callers may differ if no frame depends on them.
    #[test]
    fn unused_words(
        pc in any::<prop::sample::Index>(),
        words in stack_words(),
        others in prop::collection::vec(0u64..4096, 80),
    ) {
        let space = this_process();
        let mut registers = Registers::full([0x1000; COUNT]);
        registers.set(INSTRUCTION_POINTER, code_at(&pc));
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut copy = stack_of(&words);
        let mut first = RecordingMemory(|address| copy.read_u64(address), Vec::new());
        let outcome = Unwinder::new().unwind(space, &registers, &mut first, &mut before);
        let changed: Vec<_> = (0..).zip(&words).zip(&others).map(|((place, word), other)| {
            let at = 0x1000 + 8 * place;
            // Keep the word: a part of it was recorded as read, or it looks like a return address that was rejected.
            let kept = first.1.iter().any(|read| read.abs_diff(at) < 8) || space.find(word - u64::from(*word > 0)).is_some();
            if kept { *word } else { *other }
        }).collect();
        prop_assert_eq!(outcome, Unwinder::new().unwind(space, &registers, &mut stack_of(&changed), &mut after));
        prop_assert_eq!(before, after);
    }
}
