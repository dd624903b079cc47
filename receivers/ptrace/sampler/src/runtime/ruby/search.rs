//! Finds data and functions that have no symbols: the virtual machine, the symbol name table, and the functions that
//! execute Ruby code.
//!
//! Libraries that hide their own symbols still export `rb_cObject`, and the interpreter's other variables are near it.
//! A variable is identified by the object that it points to: the virtual machine points to a thread that points back,
//! and the symbol name table has the name of `+` at a known index.
//!
//! Ruby's instructions are addresses within the native function that executes them (`vm_exec_core`). The caller of that
//! function first puts a tag on the native stack (`struct rb_vm_tag` with its `__builtin_setjmp` buffer), which
//! contains an address in the caller.

use std::ops::Range;

use super::capture::{ContextBuffers, Mark, Saved, capture};
use super::layout::RubyLayout;
use super::objects::is_symbols;
use super::place::{Around, RubyPlace};
use crate::arch::USER;
use crate::runtime::target::{Allowance, Bounded, TargetMemory, word, word_at};
use crate::runtime::{Captured, MAX_FRAMES};

/// The size of a slice of variables, in bytes, and the number of such slices that are searched.
const SLICE: usize = 1024;
pub(super) const SLICES: u64 = 128;
/// The read limit for one slice: each of its words may be a pointer that has to be checked.
const OF_SLICE: Allowance = Allowance { reads: 1500, bytes: 256 << 10 };
/// The read limit for code.
const OF_CODE: Allowance = Allowance { reads: 64, bytes: 640 << 10 };
/// The offset of the main thread in the virtual machine, and of the virtual machine in a thread, in all versions.
pub(super) const MAIN_THREAD: u64 = 40;
pub(super) const MACHINE_OF_THREAD: u64 = 32;
const RACTOR_OF_THREAD: u64 = 24;
const MAIN_RACTOR: u64 = 32;
/// The maximum length of a function whose end is unknown because no symbol follows, in bytes.
const MAX_FUNCTION: u64 = 64 << 10;
/// How far from the executing function its callers may be, and how much code is read at once, in bytes.
const NEAR: u64 = 128 << 10;
const CODE_STEP: usize = 16 << 10;
/// Limits: functions that may be the caller, calls in each of them, and tags that are compared with these calls.
const MAX_OUTERS: usize = 16;
const MAX_INSIDE: usize = 512;
const MAX_COMPARED: usize = 64;
/// How far the stack pointer may be below the tag of a function, in bytes.
const FAR_BELOW: u64 = 1024;
/// The opcode of a near relative call (Intel SDM, CALL), and its length.
const CALL: (u8, usize) = (0xe8, 5);

/// The addresses of an interpreter's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Located {
    /// The virtual machine, 0 while unknown.
    pub(super) machine: u64,
    /// The variable with the symbol name table, 0 while unknown.
    pub(super) symbols: u64,
}

impl Located {
    /// Whether all data has been found.
    pub(super) fn is_whole(self) -> bool {
        self.machine != 0 && self.symbols != 0
    }
}

/// Finds as much of an interpreter's data as exists already. Reads up to thousands of words.
pub(super) fn locate(place: &RubyPlace, target: &mut dyn TargetMemory) -> Located {
    let mut located = place.located;
    for slice in 0..SLICES {
        if located.is_whole() {
            break;
        }
        search_slice(place, slice, &mut located, target);
    }
    located
}

/// Searches one of the [`SLICES`] of an interpreter's variables for its data.
pub(super) fn search_slice(place: &RubyPlace, slice: u64, located: &mut Located, target: &mut dyn TargetMemory) {
    let Some(Around { marker, machine: pointer }) = place.around else { return };
    let mut target = Bounded::new(target, OF_SLICE);
    let target: &mut dyn TargetMemory = &mut target;
    if located.machine == 0 {
        let machine = pointer.and_then(|at| word(target, at)).filter(|at| is_machine(*at, target));
        located.machine = machine.unwrap_or(0);
    }
    // Slices alternate between below and above the known variable, with growing distance.
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

/// Whether this is the virtual machine: its main thread points back to it, and belongs to its main ractor.
fn is_machine(address: u64, target: &mut dyn TargetMemory) -> bool {
    let thread = word(target, address.wrapping_add(MAIN_THREAD));
    let Some(thread) = thread.filter(|thread| thread & 7 == 0 && USER.contains(thread)) else { return false };
    word(target, thread.wrapping_add(MACHINE_OF_THREAD)) == Some(address)
        && word(target, thread.wrapping_add(RACTOR_OF_THREAD)) == word(target, address.wrapping_add(MAIN_RACTOR))
}

/// The functions that execute Ruby code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Executors {
    /// The function that executes instructions.
    pub(super) core: Range<u64>,
    /// The function that sets the tag and calls `core`; equal to `core` if the compiler merged both.
    pub(super) outer: Range<u64>,
    /// How tags store saved registers.
    pub(super) saved: Saved,
    /// The mangled code address in the tags of `outer`, if tags do not contain the plain address.
    label: Option<u64>,
    /// Whether `core` keeps the next instruction in R14 and the frame in R15.
    pub(super) in_registers: bool,
}

impl Executors {
    /// Whether a tag was set by the function that executes Ruby code.
    pub(super) fn has_set(&self, mark: &Mark) -> bool {
        self.label.map_or_else(|| self.outer.contains(&mark.label), |label| label == mark.label)
    }
}

/// The code that executes Ruby: the function that executes instructions, and each function that may call it, with the
/// return addresses of these calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExecutorCode {
    core: Range<u64>,
    /// Whether the code keeps the next instruction in R14 and the frame in R15.
    in_registers: bool,
    outers: Vec<(Range<u64>, Vec<u64>)>,
}

/// Reads the code, given the first instruction of any sequence. This reads hundreds of kilobytes, so it must not be
/// done while a thread is stopped.
fn read_code(place: &RubyPlace, instruction: u64, target: &mut dyn TargetMemory) -> Option<ExecutorCode> {
    let (object, bias) = place.object.as_ref()?;
    let tables = object.tables()?;
    let function = |address: u64| {
        let start = tables.function(address.wrapping_sub(*bias))?;
        let end = tables.starts().find(|other| *other > start).unwrap_or(start.saturating_add(MAX_FUNCTION));
        Some(start.wrapping_add(*bias)..end.wrapping_add(*bias))
    };
    let core = function(instruction)?;
    // The caller is in the same source file, so it is near.
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
    Some(ExecutorCode { core, in_registers, outers })
}

/// Whether code keeps the next instruction in R14 and the frame in R15, as Ruby requests from GCC (ruby/ruby
/// `vm_exec.c`, `DECL_SC_REG`): near its start it loads R14 from the frame and jumps there.
fn has_registers(start: u64, target: &mut dyn TargetMemory) -> bool {
    // mov (%r15), %r14; soon followed by jmp *(%r14), or by mov (%r14), %rax and jmp *%rax (Intel SDM).
    const TAKES: &[u8] = &[0x4d, 0x8b, 0x37];
    const JUMPS: [&[u8]; 2] = [&[0x41, 0xff, 0x26], &[0x49, 0x8b, 0x06, 0xff, 0xe0]];
    // The compiler may have placed unrelated instructions between the two.
    const BETWEEN: usize = 16;
    let mut bytes = [0; 256];
    target.read(start, &mut bytes)
        && (0..bytes.len()).any(|at| {
            let behind = bytes[at..].strip_prefix(TAKES);
            let near = behind.into_iter().flat_map(|behind| (0..BETWEEN.min(behind.len())).map(|gap| &behind[gap..]));
            near.into_iter().any(|code| JUMPS.iter().any(|jump| code.starts_with(jump)))
        })
}

/// Reads the code that executes Ruby, given the frames of a thread.
pub(super) fn code(place: &RubyPlace, captured: &Captured, target: &mut dyn TargetMemory) -> Option<ExecutorCode> {
    let sequence = captured.frames.iter().find(|frame| frame.instruction != 0)?.code;
    let body = word(target, sequence.wrapping_add(16))?;
    let words = word(target, body.wrapping_add(8))?;
    let instruction = word(target, words)?;
    read_code(place, instruction, target)
}

/// Reads the code that executes Ruby, using the frames of the main thread, if it has started.
pub(super) fn main_code(place: &RubyPlace, target: &mut dyn TargetMemory) -> Option<ExecutorCode> {
    let machine = Some(place.located.machine).filter(|machine| *machine != 0)?;
    let thread = word(target, machine.wrapping_add(MAIN_THREAD))?;
    let context = word(target, thread.wrapping_add(u64::from(place.layout.thread_context)))?;
    let (mut scratch, mut captured) = (ContextBuffers::default(), Captured::default());
    capture(&place.layout, context, MAX_FRAMES, target, &mut scratch, &mut captured);
    code(place, &captured, target)
}

/// Finds the functions by the tags of a thread, which were read in this format.
pub(super) fn executors(code: &ExecutorCode, saved: Saved, marks: &[Mark]) -> Option<Executors> {
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

/// Whether the C library saved this address in a tag. The library XORs each saved value with a secret of the process
/// and rotates the result (glibc `sysdeps/unix/sysv/linux/x86_64/pointer_guard.h`), so two saved words reveal the XOR
/// of the two values; the stack pointer computed from that must be slightly below the tag.
fn was_set_at(mark: &Mark, address: u64) -> bool {
    let combined = mark.label.rotate_right(17) ^ mark.pointer.rotate_right(17);
    let pointer = combined ^ address;
    pointer & 15 == 0 && pointer <= mark.address && mark.address - pointer < FAR_BELOW
}

/// The near calls in some code: the return address of each, and the called address.
fn calls(code: &Range<u64>, target: &mut dyn TargetMemory) -> Vec<(u64, u64)> {
    let mut calls = Vec::new();
    let mut bytes = vec![0; CODE_STEP + CALL.1 - 1];
    // The size of a function comes from the file, so it may be wrong.
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

/// Returns the array of symbol names.
pub(super) fn names(located: Located, layout: &RubyLayout, target: &mut dyn TargetMemory) -> Option<u64> {
    let names = word(target, located.symbols).filter(|_| located.symbols != 0)?;
    is_symbols(layout, target, names).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Recording;
    use crate::runtime::recording::{CountingTarget, recording};

    /// Guarantees: code that loads R14 from the frame in R15 and jumps is recognized, with both forms of the jump that
    /// GCC emits and with another instruction in between, and other code is not.
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
        // Another register, no jump, and unreadable code.
        assert!(!has(&[0x4d, 0x8b, 0x2f, 0x41, 0xff, 0x26]));
        assert!(!has(&[0x4d, 0x8b, 0x37, 0xc3]));
        assert!(!has(&[]));
        assert!(!has_registers(0x1000, &mut Recording::default()));
    }

    /// Guarantees: code that is endless according to the file costs no more reads than allowed.
    #[test]
    fn attack_endless_code() {
        for code in [0..u64::MAX, 0x1000..u64::MAX - NEAR] {
            let mut recording = Recording::default();
            let mut counted = CountingTarget { target: &mut recording, reads: 0 };
            assert_eq!(calls(&code, &mut counted), []);
            assert_eq!(counted.reads, OF_CODE.reads as usize);
        }
    }

    /// Guarantees: the virtual machine and the variable with the symbol names are recognized by the objects that they
    /// point to, among the variables below and above the marker, slice by slice; pointers to other memory are skipped.
    #[test]
    fn variables() {
        let mut recording = recording("ruby-3.1");
        let (machine, symbols) = (recording.runtime, recording.pointer);
        let names = word(&mut recording, symbols).unwrap();
        let marker = 0x5000_0000u64;
        recording.add(marker - (64 << 10), &vec![0; 128 << 10]);
        // The recording lacks memory that only the search reads.
        let thread = word(&mut recording, machine + MAIN_THREAD).unwrap_or(marker + 0x9000);
        recording.add(machine + MAIN_THREAD, &thread.to_le_bytes());
        recording.add(thread + RACTOR_OF_THREAD, &marker.to_le_bytes());
        recording.add(thread + MACHINE_OF_THREAD, &machine.to_le_bytes());
        recording.add(machine + MAIN_RACTOR, &marker.to_le_bytes());
        recording.add(marker - 0x3008, &machine.to_le_bytes());
        recording.add(marker + 0x4010, &names.to_le_bytes());
        recording.add(marker + 0x10, &marker.to_le_bytes());
        let mut place = RubyPlace::at(0, 0, recording.version).unwrap();
        place.around = Some(Around { marker, machine: None });
        let found = Located { machine, symbols: marker + 0x4010 };
        assert_eq!(locate(&place, &mut recording), found);
        let mut located = Located::default();
        let slices = (0..SLICES).find(|slice| {
            search_slice(&place, *slice, &mut located, &mut recording);
            located.is_whole()
        });
        assert_eq!((located, slices), (found, Some(32)));
    }
}
