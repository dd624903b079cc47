//! Reads a thread's frames: addresses only, with as few reads as possible.
//!
//! Each fiber has one stack: values grow up from its start, and frames of 56 or 64 bytes grow down from its end. So one
//! read gets all frames and another one all values. A frame's environment is in the three words that follow its values:
//! its method, the surrounding environment, and flags (ruby/ruby `vm_core.h`). Environments of closures are in separate
//! objects.

use super::layout::RubyLayout;
use crate::runtime::target::{Allowance, Bounded, TargetMemory, word_at};
use crate::runtime::{Captured, MAX_FRAMES, RawFrame};

/// The maximum size of a stack's values read at once, in bytes.
const MAX_VALUES: u64 = 64 << 10;
/// The maximum number of nested environments that are followed.
const MAX_AROUND: usize = 32;
/// The maximum number of tags on the native stack.
const MAX_MARKS: usize = 1024;
/// How often frames are read again because some were entered or left meanwhile.
const ATTEMPTS: u32 = 3;
/// The number of reads allowed in addition to those of environments outside of the stack.
const OTHER_READS: usize = 16;

// Flags of a frame.
const KIND: u64 = 0x7fff_0001;
const FUNCTION: u64 = 0x5555_0001;
/// A flag of the first frame of a stack, which executes nothing.
const FIRST: u64 = 0x7999_0001;
/// The flag of a frame that ends a call of the function that executes Ruby.
const FINISH: u64 = 0x20;
/// The flag of a frame that executes a block as a method.
const BLOCK_METHOD: u64 = 0x40;
/// The flag of the outermost environment of a method.
const LOCAL: u64 = 0x02;

/// How a tag (`struct rb_vm_tag`, which begins with two other words) stores the saved registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saved {
    /// By the compiler, in five words (`__builtin_setjmp`).
    Builtin,
    /// By the C library, in `jmp_buf` (`_setjmp`), with stack pointer and return address mangled.
    Library,
}

impl Saved {
    /// The size of a tag, and the offsets of the stack pointer, of the code address in the function that set the tag,
    /// and of the previous tag.
    fn layout(self) -> (usize, usize, usize, usize) {
        match self {
            Self::Builtin => (64, 32, 24, 56),
            // glibc `sysdeps/x86_64/jmpbuf-offsets.h`: the seventh word is RSP, the eighth the return address.
            Self::Library => (224, 64, 72, 216),
        }
    }
}

/// A tag (`struct rb_vm_tag`) on the native stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// The address of the tag.
    pub(super) address: u64,
    /// The saved stack pointer, and the saved code address in the function that set the tag.
    pub(super) pointer: u64,
    pub(super) label: u64,
}

/// Reusable buffers.
#[derive(Debug, Default)]
pub(super) struct ContextBuffers {
    frames: Vec<u8>,
    values: Vec<u8>,
    /// The address of the innermost tag, and all tags, innermost first.
    first_mark: u64,
    pub(super) marks: Vec<Mark>,
    /// Whether the chain of tags was read to its end.
    all_marks: bool,
    /// The number of calls that end at a frame with the flag [`FINISH`].
    ended: usize,
}

/// The last three words of an environment.
struct Environment {
    method: u64,
    around: u64,
    flags: u64,
}

struct Values<'a, 'b> {
    start: u64,
    bytes: &'a [u8],
    target: &'a mut Bounded<'b>,
}

impl Values<'_, '_> {
    fn environment(&mut self, address: u64) -> Option<Environment> {
        let from = address.wrapping_sub(16);
        let mut words = [0; 24];
        let at = from.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| self.bytes.get(at..)?.get(..24)) {
            Some(known) => words.copy_from_slice(known),
            None if address & 7 == 0 && self.target.read(from, &mut words) => {}
            None => return None,
        }
        Some(Environment { method: word_at(&words, 0), around: word_at(&words, 8), flags: word_at(&words, 16) })
    }

    /// The method that a frame executes, 0 if there is none.
    fn method(&mut self, frame: &Environment) -> u64 {
        let (mut method, mut around, mut flags) = (frame.method, frame.around, frame.flags);
        for _ in 0..MAX_AROUND {
            if flags & (LOCAL | BLOCK_METHOD) != 0 {
                return method;
            }
            let Some(next) = self.environment(around & !3) else { return 0 };
            (method, around, flags) = (next.method, next.around, next.flags);
        }
        0
    }
}

/// Reads the frames of an execution context. At most `limit` environments are read one by one.
pub(super) fn capture(
    layout: &RubyLayout,
    context: u64,
    limit: usize,
    target: &mut dyn TargetMemory,
    scratch: &mut ContextBuffers,
    captured: &mut Captured,
) -> bool {
    captured.clear();
    let reads = u32::try_from(limit.saturating_add(OTHER_READS)).unwrap_or(u32::MAX);
    let mut bounded = Bounded::new(target, Allowance { reads, bytes: 1 << 20 });
    let mut bytes = [0; 64];
    if context & 7 != 0 || !bounded.read(context, &mut bytes) {
        return false;
    }
    let size = u64::from(layout.frame);
    let (mut start, mut frame);
    let mut attempts = ATTEMPTS;
    loop {
        let words = word_at(&bytes, 8);
        (start, frame) = (word_at(&bytes, 0), word_at(&bytes, 16));
        let Some(end) = words.checked_mul(8).and_then(|length| start.checked_add(length)) else { return false };
        if !(start..end).contains(&frame) || frame & 7 != 0 {
            return false;
        }
        let count = ((end - frame) / size).min(MAX_FRAMES as u64);
        captured.cut = count < (end - frame) / size;
        captured.too_many = captured.cut;
        scratch.frames.resize((count * size) as usize, 0);
        if !bounded.read(frame, &mut scratch.frames) {
            return false;
        }
        // If the thread is running, it may have left or entered functions meanwhile, and the frames read are outdated.
        let mut after = [0; 64];
        attempts -= 1;
        if !bounded.read(context, &mut after) || after[..24] == bytes[..24] || attempts == 0 {
            break;
        }
        bytes = after;
    }
    let mark = word_at(&bytes, 24);
    let top = word_at(&scratch.frames, 8);
    let used = if (start..=frame).contains(&top) { (top - start).min(MAX_VALUES) } else { 0 };
    // If there are too many values, only the innermost ones are read.
    let from = if used == 0 { start } else { top - used };
    scratch.values.resize(used as usize, 0);
    if used > 0 && !bounded.read(from, &mut scratch.values) {
        scratch.values.clear();
    }
    scratch.first_mark = mark;
    let mut values = Values { start: from, bytes: &scratch.values, target: &mut bounded };
    for (index, bytes) in scratch.frames.chunks_exact(layout.frame as usize).enumerate() {
        let address = frame + index as u64 * size;
        let (pc, sequence) = (word_at(bytes, 0), word_at(bytes, 16));
        let Some(environment) = values.environment(word_at(bytes, 32)) else {
            (captured.cut, captured.too_many) = (true, false);
            break;
        };
        if environment.flags & KIND == FIRST {
            continue;
        }
        let method = values.method(&environment);
        if sequence != 0 && pc != 0 {
            captured.frames.push(RawFrame { address, code: sequence, instruction: pc, owner: method });
            if environment.flags & FINISH != 0 {
                captured.end_call(None);
            }
        } else if environment.flags & KIND == FUNCTION {
            captured.frames.push(RawFrame { address, code: method, ..RawFrame::default() });
        }
    }
    scratch.ended = captured.segments.len();
    // The outermost frames are C functions that were not called from Ruby.
    captured.end_call(None);
    captured.in_array = true;
    !captured.frames.is_empty()
}

impl ContextBuffers {
    /// Reads the chain of tags on the native stack.
    pub(super) fn read_marks(&mut self, saved: Saved, target: &mut dyn TargetMemory) {
        let (size, pointer, label, before) = saved.layout();
        self.marks.clear();
        self.all_marks = false;
        let mut address = self.first_mark;
        for _ in 0..MAX_MARKS {
            if address == 0 {
                self.all_marks = true;
                return;
            }
            let mut bytes = [0; 224];
            let bytes = &mut bytes[..size];
            let is_above = self.marks.last().is_none_or(|inner| address > inner.address);
            if !is_above || address & 7 != 0 || !target.read(address, bytes) {
                return;
            }
            self.marks.push(Mark { address, pointer: word_at(bytes, pointer), label: word_at(bytes, label) });
            address = word_at(bytes, before);
        }
    }

    /// Sets the anchor of each call: a native stack address in the frame of the function that set the call's tag.
    pub(super) fn anchor(&self, is_call: impl Fn(&Mark) -> bool, captured: &mut Captured) {
        let marks: Vec<u64> = self.marks.iter().filter(|mark| is_call(mark)).map(|mark| mark.address).collect();
        let ended = self.ended.min(captured.segments.len());
        let segments = &mut captured.segments[..ended];
        // The innermost call may be just beginning, without a tag or without frames, so calls and tags are paired from
        // the outermost one on.
        let (skipped, missing) = if self.all_marks && !captured.cut {
            (marks.len().saturating_sub(segments.len()), segments.len().saturating_sub(marks.len()))
        } else {
            (0, 0)
        };
        for (segment, mark) in segments.iter_mut().skip(missing).zip(marks.iter().skip(skipped)) {
            segment.anchor = Some(*mark);
        }
    }
}
