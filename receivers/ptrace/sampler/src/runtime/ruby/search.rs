//! Finds what no symbol tells: the virtual machine, the names of symbols, and the functions that execute Ruby.
//!
//! Libraries that hide their own symbols still export `rb_cObject`, and all of the interpreter's variables are near it.
//! What a variable points to says by its content what it is: the virtual machine points to a thread that points back,
//! and the names of symbols have that of `+` at a known place.
//!
//! Instructions are addresses within the function that executes them (`vm_exec_core`). What calls that function sets a
//! mark on the native stack before (`struct rb_vm_tag` with its `__builtin_setjmp` buffer), which tells where it is.

use std::ops::Range;

use super::capture::{Mark, Saved, Scratch, capture};
use super::layout::Layout;
use super::objects::is_symbols;
use super::place::{Around, Place};
use crate::arch::USER;
use crate::runtime::target::{Allowance, Bounded, Target, word, word_at};
use crate::runtime::{Captured, MAX_FRAMES};

/// How much of the variables is looked at at once, in bytes, and in how many such slices the others are looked for.
const SLICE: usize = 1024;
pub(super) const SLICES: u64 = 128;
/// What may be read for one slice: each word of it may be where something is that has to be looked at.
const OF_SLICE: Allowance = Allowance { reads: 1500, bytes: 256 << 10 };
/// What may be read of code.
const OF_CODE: Allowance = Allowance { reads: 64, bytes: 640 << 10 };
/// Where the virtual machine has its main thread, and a thread its virtual machine, in all versions.
pub(super) const MAIN_THREAD: u64 = 40;
pub(super) const MACHINE_OF_THREAD: u64 = 32;
const RACTOR_OF_THREAD: u64 = 24;
const MAIN_RACTOR: u64 = 32;
/// The longest function of which the next one does not tell the end, in bytes.
const MAX_FUNCTION: u64 = 64 << 10;
/// How far from the executing function its callers are looked for, and how much code is read at once, in bytes.
const NEAR: u64 = 128 << 10;
const CODE_STEP: usize = 16 << 10;
/// The most functions that may be what calls it, the most calls in each, and the most marks that are compared with
/// them.
const MAX_OUTERS: usize = 16;
const MAX_INSIDE: usize = 512;
const MAX_COMPARED: usize = 64;
/// How far below a mark its function's stack pointer is at most, in bytes.
const FAR_BELOW: u64 = 1024;
/// A call of a function at a distance (Intel SDM, CALL), and its length.
const CALL: (u8, usize) = (0xe8, 5);

/// Where an interpreter's data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Located {
    /// The virtual machine, 0 while unknown.
    pub(super) machine: u64,
    /// The variable with the array of the names of symbols, 0 while unknown.
    pub(super) symbols: u64,
}

impl Located {
    /// Whether nothing is left to be found.
    pub(super) fn is_whole(self) -> bool {
        self.machine != 0 && self.symbols != 0
    }
}

/// Finds an interpreter's data, as far as it is there by now. Reads up to thousands of words.
pub(super) fn locate(place: &Place, target: &mut dyn Target) -> Located {
    let mut located = place.located;
    for slice in 0..SLICES {
        if located.is_whole() {
            break;
        }
        look(place, slice, &mut located, target);
    }
    located
}

/// Looks for an interpreter's data in one of the [`SLICES`] of its variables.
pub(super) fn look(place: &Place, slice: u64, located: &mut Located, target: &mut dyn Target) {
    let Some(Around { marker, machine: pointer }) = place.around else { return };
    let mut target = Bounded::new(target, OF_SLICE);
    let target: &mut dyn Target = &mut target;
    if located.machine == 0 {
        let machine = pointer.and_then(|at| word(target, at)).filter(|at| is_machine(*at, target));
        located.machine = machine.unwrap_or(0);
    }
    // From the marker outwards, in turns below and above.
    let distance = (slice / 2 + slice % 2).wrapping_mul(SLICE as u64);
    let middle = marker & !(SLICE as u64 - 1);
    let start = if slice.is_multiple_of(2) { middle.wrapping_add(distance) } else { middle.wrapping_sub(distance) };
    let mut bytes = [0; SLICE];
    if !target.read(start, &mut bytes) {
        return;
    }
    for at in (0..SLICE).step_by(8) {
        let value = word_at(&bytes, at);
        if value & 7 != 0 || !USER.contains(&value) {
            continue;
        }
        if located.machine == 0 && is_machine(value, target) {
            located.machine = value;
        } else if located.symbols == 0 && is_symbols(&place.layout, target, value) {
            located.symbols = start.wrapping_add(at as u64);
        }
        if located.is_whole() {
            return;
        }
    }
}

/// Whether this is the virtual machine: its main thread says so, and is of its main ractor.
fn is_machine(address: u64, target: &mut dyn Target) -> bool {
    let thread = word(target, address.wrapping_add(MAIN_THREAD));
    let Some(thread) = thread.filter(|thread| thread & 7 == 0 && USER.contains(thread)) else { return false };
    word(target, thread.wrapping_add(MACHINE_OF_THREAD)) == Some(address)
        && word(target, thread.wrapping_add(RACTOR_OF_THREAD)) == word(target, address.wrapping_add(MAIN_RACTOR))
}

/// The functions that execute Ruby.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Executors {
    /// What executes instructions.
    pub(super) core: Range<u64>,
    /// What sets the mark and calls that; the same one if the compiler made one of both.
    pub(super) outer: Range<u64>,
    /// How its marks are read.
    pub(super) saved: Saved,
    /// The address that its marks have, where it cannot be read.
    label: Option<u64>,
    /// What executes instructions has the next one in R14 and the frame in R15.
    pub(super) in_registers: bool,
}

impl Executors {
    /// Whether a mark is one of the function that executes Ruby.
    pub(super) fn has_set(&self, mark: &Mark) -> bool {
        self.label.map_or_else(|| self.outer.contains(&mark.label), |label| label == mark.label)
    }
}

/// The code that executes Ruby: what executes instructions, and each function that may be what calls that, with the
/// addresses behind the calls in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Code {
    core: Range<u64>,
    /// It has the next instruction in R14 and the frame in R15.
    in_registers: bool,
    outers: Vec<(Range<u64>, Vec<u64>)>,
}

/// Reads the code by the first instruction of some sequence: hundreds of kilobytes, so not while a thread is stopped.
fn read_code(place: &Place, instruction: u64, target: &mut dyn Target) -> Option<Code> {
    let (object, bias) = place.object.as_ref()?;
    let tables = object.tables()?;
    let function = |address: u64| {
        let start = tables.function(address.wrapping_sub(*bias))?;
        let end = tables.starts().find(|other| *other > start).unwrap_or(start.saturating_add(MAX_FUNCTION));
        Some(start.wrapping_add(*bias)..end.wrapping_add(*bias))
    };
    let core = function(instruction)?;
    // What calls it is of the same source file, and so not far from it.
    let around = core.start.saturating_sub(NEAR)..core.end.saturating_add(NEAR);
    let calls = calls(&around, &mut Bounded::new(target, OF_CODE));
    let callers = calls.iter().filter(|(_, callee)| *callee == core.start).filter_map(|(behind, _)| function(*behind));
    let mut outers: Vec<(Range<u64>, Vec<u64>)> = Vec::new();
    for outer in callers.take(MAX_OUTERS).chain([core.clone()]) {
        if outers.iter().all(|(known, _)| *known != outer) {
            let inside = calls.iter().map(|(behind, _)| *behind).filter(|behind| outer.contains(behind));
            let inside = inside.take(MAX_INSIDE).collect();
            outers.push((outer, inside));
        }
    }
    let in_registers = has_registers(core.start, target);
    Some(Code { core, in_registers, outers })
}

/// Whether code has the next instruction in R14 and the frame in R15, as GCC is told (ruby/ruby `vm_exec.c`,
/// `DECL_SC_REG`): near its beginning it takes the one from the other, and jumps.
fn has_registers(start: u64, target: &mut dyn Target) -> bool {
    // mov (%r15), %r14; close behind that jmp *(%r14), or mov (%r14), %rax and jmp *%rax (Intel SDM).
    const TAKES: &[u8] = &[0x4d, 0x8b, 0x37];
    const JUMPS: [&[u8]; 2] = [&[0x41, 0xff, 0x26], &[0x49, 0x8b, 0x06, 0xff, 0xe0]];
    // Where an instruction for something else was put between the two.
    const BETWEEN: usize = 16;
    let mut bytes = [0; 256];
    target.read(start, &mut bytes)
        && (0..bytes.len()).any(|at| {
            let behind = bytes[at..].strip_prefix(TAKES);
            let near = behind.into_iter().flat_map(|behind| (0..BETWEEN.min(behind.len())).map(|gap| &behind[gap..]));
            near.into_iter().any(|code| JUMPS.iter().any(|jump| code.starts_with(jump)))
        })
}

/// Reads the code by the sequences that a thread executes.
pub(super) fn code(place: &Place, captured: &Captured, target: &mut dyn Target) -> Option<Code> {
    let sequence = captured.frames.iter().find(|frame| frame.instruction != 0)?.code;
    let body = word(target, sequence.wrapping_add(16))?;
    let words = word(target, body.wrapping_add(8))?;
    let instruction = word(target, words)?;
    read_code(place, instruction, target)
}

/// Reads the code by what the main thread executes, if it has begun.
pub(super) fn main_code(place: &Place, target: &mut dyn Target) -> Option<Code> {
    let machine = Some(place.located.machine).filter(|machine| *machine != 0)?;
    let thread = word(target, machine.wrapping_add(MAIN_THREAD))?;
    let context = word(target, thread.wrapping_add(u64::from(place.layout.thread_context)))?;
    let (mut scratch, mut captured) = (Scratch::default(), Captured::default());
    capture(&place.layout, context, MAX_FRAMES, target, &mut scratch, &mut captured);
    code(place, &captured, target)
}

/// Finds the functions by a thread's marks, read in this way.
pub(super) fn executors(code: &Code, saved: Saved, marks: &[Mark]) -> Option<Executors> {
    let marks = marks.get(..MAX_COMPARED).unwrap_or(marks);
    code.outers.iter().find_map(|(outer, inside)| {
        let label = match saved {
            Saved::Builtin => marks.iter().any(|mark| outer.contains(&mark.label)).then_some(None),
            Saved::Library => {
                let mut pairs = inside.iter().flat_map(|behind| marks.iter().map(move |mark| (*behind, mark)));
                pairs.find(|(behind, mark)| was_set_at(mark, *behind)).map(|(_, mark)| Some(mark.label))
            }
        };
        let (core, outer) = (code.core.clone(), outer.clone());
        Some(Executors { core, outer, saved, label: label?, in_registers: code.in_registers })
    })
}

/// Whether the C library saved this address in a mark. It combines what it saves with a secret number of the process
/// and rotates it (glibc `sysdeps/unix/sysv/linux/x86_64/pointer_guard.h`), so that two such words tell what both are
/// combined; and the stack pointer is known to be not far below the mark.
fn was_set_at(mark: &Mark, address: u64) -> bool {
    let combined = mark.label.rotate_right(17) ^ mark.pointer.rotate_right(17);
    let pointer = combined ^ address;
    pointer & 15 == 0 && pointer <= mark.address && mark.address - pointer < FAR_BELOW
}

/// The calls of functions at a distance in some code: the address behind each, and what it calls.
fn calls(code: &Range<u64>, target: &mut dyn Target) -> Vec<(u64, u64)> {
    let mut calls = Vec::new();
    let mut bytes = vec![0; CODE_STEP + CALL.1 - 1];
    // A file may say of a function that it ends anywhere.
    for start in (code.start..code.end).step_by(CODE_STEP).take(OF_CODE.reads as usize) {
        if !target.read(start, &mut bytes) {
            continue;
        }
        for (at, bytes) in bytes.windows(CALL.1).enumerate().filter(|(_, bytes)| bytes[0] == CALL.0) {
            let distance = bytes[1..].first_chunk().map_or(0, |distance| i32::from_le_bytes(*distance));
            let behind = start.wrapping_add((at + CALL.1) as u64);
            calls.push((behind, behind.wrapping_add_signed(i64::from(distance))));
        }
    }
    calls
}

/// The array of the names of symbols.
pub(super) fn names(located: Located, layout: &Layout, target: &mut dyn Target) -> Option<u64> {
    let names = word(target, located.symbols).filter(|_| located.symbols != 0)?;
    is_symbols(layout, target, names).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Recording;
    use crate::runtime::recording::Counted;

    /// Guarantees: code that takes the next instruction into R14 from the frame in R15 and jumps is known, in both ways
    /// that GCC writes the jump and with another instruction between, and other code is not.
    #[test]
    fn registers() {
        let has = |code: &[u8]| {
            let mut recording = Recording::default();
            let mut bytes = vec![0x90; 300];
            bytes[40..40 + code.len()].copy_from_slice(code);
            recording.add(0x1000, &bytes);
            has_registers(0x1000, &mut recording)
        };
        assert!(has(&[0x4d, 0x8b, 0x37, 0x41, 0xff, 0x26]));
        assert!(has(&[0x4d, 0x8b, 0x37, 0x49, 0x8b, 0x06, 0xff, 0xe0]));
        assert!(has(&[0x4d, 0x8b, 0x37, 0x48, 0x89, 0x5c, 0x24, 0x08, 0x41, 0xff, 0x26]));
        // Another register, no jump, and nothing.
        assert!(!has(&[0x4d, 0x8b, 0x2f, 0x41, 0xff, 0x26]));
        assert!(!has(&[0x4d, 0x8b, 0x37, 0xc3]));
        assert!(!has(&[]));
        assert!(!has_registers(0x1000, &mut Recording::default()));
    }

    /// Guarantees: code that a file says to be endless costs as many reads as are allowed.
    #[test]
    fn attack_endless_code() {
        for code in [0..u64::MAX, 0x1000..u64::MAX - NEAR] {
            let mut recording = Recording::default();
            let mut counted = Counted { recording: &mut recording, reads: 0 };
            assert_eq!(calls(&code, &mut counted), []);
            assert_eq!(counted.reads, OF_CODE.reads);
        }
    }

    /// Guarantees: the virtual machine and the variable with the names of symbols are found among variables below and
    /// above the marker by what they point to, slice by slice, and what points to memory of another kind is passed
    /// over.
    #[test]
    fn variables() {
        let bytes: &[u8] = include_bytes!("../../../tests/recordings/ruby-3.1.bin");
        let mut recording = Recording::parse(bytes).unwrap();
        let (machine, symbols) = (recording.runtime, recording.pointer);
        let names = word(&mut recording, symbols).unwrap();
        let marker = 0x5000_0000u64;
        recording.add(marker - (64 << 10), &vec![0; 128 << 10]);
        // The recording does not have what only the search reads.
        let thread = word(&mut recording, machine + MAIN_THREAD).unwrap_or(marker + 0x9000);
        recording.add(machine + MAIN_THREAD, &thread.to_le_bytes());
        recording.add(thread + RACTOR_OF_THREAD, &marker.to_le_bytes());
        recording.add(thread + MACHINE_OF_THREAD, &machine.to_le_bytes());
        recording.add(machine + MAIN_RACTOR, &marker.to_le_bytes());
        recording.add(marker - 0x3008, &machine.to_le_bytes());
        recording.add(marker + 0x4010, &names.to_le_bytes());
        recording.add(marker + 0x10, &marker.to_le_bytes());
        let mut place = Place::at(0, 0, recording.version).unwrap();
        place.around = Some(Around { marker, machine: None });
        let found = Located { machine, symbols: marker + 0x4010 };
        assert_eq!(locate(&place, &mut recording), found);
        let mut located = Located::default();
        let slices = (0..SLICES).find(|slice| {
            look(&place, *slice, &mut located, &mut recording);
            located.is_whole()
        });
        assert_eq!((located, slices), (found, Some(32)));
    }
}
