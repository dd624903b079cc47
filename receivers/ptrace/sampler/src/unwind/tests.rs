//! Stacks made to mislead the unwinder, and memory that ends in unfortunate places.
#![allow(clippy::expect_used, reason = "these are tests")]

use std::sync::OnceLock;

use proptest::prelude::*;

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
/// stacks need two or three; those with an unknown frame pointer need more, since several candidates are tried.
const READS: usize = 256;

/// Memory in which every word has this value; counts the reads.
struct Everywhere(u64, usize);

impl StackMemory for Everywhere {
    fn read_u64(&mut self, _: u64) -> Option<u64> {
        self.1 += 1;
        Some(self.0)
    }
}

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

/// Guarantees: a stack full of the same return address ends at the limit of frames, is not complete, and only a little
/// of it is read.
#[test]
fn attack_endless_stack() {
    let space = this_process();
    let mut unwinder = Unwinder::new();
    let mut frames = Vec::new();
    for code in [some_code(), some_code() + 1, space.modules()[0].start] {
        let registers = Registers::full([0x7000_0000; COUNT].map(|value| value & !7));
        let registers = Registers {
            values: {
                let mut values = registers.values;
                values[16] = code;
                values
            },
            ..registers
        };
        let mut memory = Everywhere(code, 0);
        let outcome = unwinder.unwind(space, &registers, &mut memory, &mut frames);
        assert!(frames.len() <= MAX_FRAMES);
        assert_ne!(outcome.trust, Trust::Complete, "{frames:x?}");
        assert!(memory.1 <= READS * MAX_FRAMES, "{} words were read", memory.1);
    }
}

/// Guarantees: a stack on which every word looks like a frame pointer candidate costs little, and is not complete.
/// This is tried from places all over the code of this process, in which many functions keep frame pointers.
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
    /// Memory with a frame pointer to higher addresses at every second word, and a return address in between.
    struct Ladder(u64, usize);
    impl StackMemory for Ladder {
        fn read_u64(&mut self, address: u64) -> Option<u64> {
            self.1 += 1;
            Some(if address.is_multiple_of(16) { address + 16 } else { self.0 })
        }
    }
    let functions = space.modules().iter().filter_map(|module| Some((module, module.object.as_ref()?.tables()?)));
    let places = functions.flat_map(|(module, tables)| {
        let starts = tables.starts().step_by(tables.functions() / 40 + 1);
        starts.map(|start| start.wrapping_add(module.bias).wrapping_add(12))
    });
    let (mut unwinder, mut frames, mut searched) = (Unwinder::new(), Vec::new(), 0);
    for place in places {
        let mut memory = Ladder(returns, 0);
        let outcome = unwinder.unwind(space, &Registers::passive(0x7000_0000, place), &mut memory, &mut frames);
        assert!((1..=MAX_FRAMES).contains(&frames.len()));
        // One of the places is in the program's first function.
        assert!(outcome.trust != Trust::Complete || frames.len() == 1, "{frames:x?}");
        assert!(memory.1 <= READS * MAX_FRAMES, "{} words were read", memory.1);
        searched += u32::from(outcome.needs_register.is_some() || frames.len() > 2);
    }
    assert!(searched > 3, "{searched}");
}

/// Guarantees: a stack pointer that leads back to itself through fake signal frames is abandoned after a few rounds.
#[test]
fn attack_circle() {
    let space = this_process();
    let restore = space.modules().iter().find_map(signal_return).expect("the C library has one");
    // Every register is restored to the stack pointer, and the instruction pointer to the code that returns from
    // signal handlers.
    struct Circle(u64);
    impl StackMemory for Circle {
        fn read_u64(&mut self, address: u64) -> Option<u64> {
            Some(if address == 0x7000_0000 + 40 + 8 * 16 { self.0 } else { 0x7000_0000 })
        }
    }
    let mut registers = Registers::passive(0x7000_0000, restore);
    registers.set(FRAME_POINTER, 0x7000_0000);
    let mut frames = Vec::new();
    let outcome = Unwinder::new().unwind(space, &registers, &mut Circle(restore), &mut frames);
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

/// Guarantees: unknown code is shown as such, in the leaf and in a caller, and no frames are invented behind it.
#[test]
fn unknown_code() {
    let space = this_process();
    let mut frames = Vec::new();
    let mut unwinder = Unwinder::new();
    let outcome = unwinder.unwind(space, &Registers::passive(0x7000_0000, 0x10), &mut Everywhere(0x20, 0), &mut frames);
    assert_eq!(outcome, Outcome { trust: Trust::Truncated, unknown_code: Some(0x10), ..Outcome::default() });
    assert_eq!(
        frames,
        [Frame {
            pc: 0x10,
            sp: 0x7000_0000,
            location: Location::Native { mapping: None, address: 0x10 },
            registers: Registers::default()
        }]
    );
    let outcome =
        unwinder.unwind(space, &Registers::passive(0x7000_0000, some_code()), &mut Everywhere(0x20, 0), &mut frames);
    assert_eq!(outcome, Outcome { trust: Trust::Truncated, unknown_code: Some(0x20), ..Outcome::default() });
    assert_eq!(frames.len(), 1);
}

/// Guarantees: a return address of 0 ends a stack, which is complete.
#[test]
fn return_address_zero() {
    let mut frames = Vec::new();
    let registers = Registers::passive(0x7000_0000, some_code());
    let outcome = Unwinder::new().unwind(this_process(), &registers, &mut Everywhere(0, 0), &mut frames);
    assert_eq!((outcome, frames.len()), (Outcome::default(), 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Guarantees: whatever the registers and the stack are, and in whatever order stacks come, unwinding ends within
    /// its limits, and caches filled by one stack do not change the result of another.
    #[test]
    fn any_stack(
        pcs in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        words in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0u8..4), 1..80),
        known in any::<u32>(),
    ) {
        let space = this_process();
        let code = |index: &prop::sample::Index| {
            let module = &space.modules()[index.index(space.modules().len())];
            module.start + index.index((module.end - module.start) as usize) as u64
        };
        let bytes = words.iter().flat_map(|(index, word, kind)| match kind {
            0 => *word,
            1 => 0x1000 + (word % 640),
            _ => code(index),
        }.to_le_bytes()).collect();
        let mut copy = StackCopy { start: 0x1000, bytes, ..StackCopy::default() };
        let mut unwinder = Unwinder::new();
        for pc in &pcs {
            let mut registers = Registers::full([0x1000; COUNT]);
            registers.set(INSTRUCTION_POINTER, code(pc));
            registers.known &= known | 1 << STACK_POINTER | 1 << INSTRUCTION_POINTER;
            let (mut warm, mut fresh) = (Vec::new(), Vec::new());
            let outcome = unwinder.unwind(space, &registers, &mut copy, &mut warm);
            prop_assert!((1..=MAX_FRAMES).contains(&warm.len()));
            prop_assert_eq!(outcome, Unwinder::new().unwind(space, &registers, &mut copy, &mut fresh));
            prop_assert_eq!(warm, fresh);
        }
    }

    /// Guarantees: a stack with the same values of all words that were recorded as read has the same frames, whatever
    /// else has changed: words that functions saved for their callers may differ if no frame depends on them.
    #[test]
    fn unused_words(
        pc in any::<prop::sample::Index>(),
        words in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0u8..4), 1..80),
        others in prop::collection::vec(0u64..4096, 80),
    ) {
        /// Records what is read.
        struct Noting(StackCopy, Vec<u64>);
        impl StackMemory for Noting {
            fn read_u64(&mut self, address: u64) -> Option<u64> {
                self.1.push(address);
                self.0.read_u64(address)
            }
            fn peek_u64(&mut self, address: u64) -> Option<u64> {
                self.0.read_u64(address)
            }
        }
        let space = this_process();
        let code = |index: &prop::sample::Index| {
            let module = &space.modules()[index.index(space.modules().len())];
            module.start + index.index((module.end - module.start) as usize) as u64
        };
        let words: Vec<_> = words.iter().map(|(index, word, kind)| match kind {
            0 => *word,
            1 => 0x1000 + (word % 640),
            _ => code(index),
        }).collect();
        let memory = |words: &[u64]| {
            let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            Noting(StackCopy { start: 0x1000, bytes, ..StackCopy::default() }, Vec::new())
        };
        let mut registers = Registers::full([0x1000; COUNT]);
        registers.set(INSTRUCTION_POINTER, code(&pc));
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut first = memory(&words);
        let outcome = Unwinder::new().unwind(space, &registers, &mut first, &mut before);
        let changed: Vec<_> = (0..).zip(&words).zip(&others).map(|((place, word), other)| {
            let at = 0x1000 + 8 * place;
            // A part of the word was recorded as read, or it looks like a return address that was rejected.
            let kept = first.1.iter().any(|read| read.abs_diff(at) < 8) || space.find(word - u64::from(*word > 0)).is_some();
            if kept { *word } else { *other }
        }).collect();
        prop_assert_eq!(outcome, Unwinder::new().unwind(space, &registers, &mut memory(&changed), &mut after));
        prop_assert_eq!(before, after);
    }
}
