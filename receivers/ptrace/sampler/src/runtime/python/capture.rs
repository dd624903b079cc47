//! Reads a thread's frames: addresses only, with as few reads as possible.
//!
//! From 3.11 on the frames of a thread are adjacent in chunks of memory, so one read gets nearly all of them; frames
//! of generators are inside the generator objects. Up to 3.10 each frame is a separate object and needs its own read.

use super::layout::{Calls, Current, FrameLayout, InstructionField, PythonLayout};
use super::threads::InterpreterThread;
use crate::runtime::target::{Allowance, Bounded, TargetMemory, half_at, word, word_at};
use crate::runtime::{Captured, MAX_FRAMES, RawFrame};

/// The largest chunk of frames that is read at once, in bytes. Python allocates chunks of 16 KiB.
const MAX_CHUNK: u64 = 64 << 10;
/// The size of a chunk's header: the previous chunk, the chunk's size in bytes, and the number of words in use when it
/// was left (CPython `Include/cpython/pystate.h`, `_PyStackChunk`).
const CHUNK_HEAD: usize = 24;
/// The maximum number of native calls of the evaluation function whose stack addresses are read.
const MAX_CHAIN: usize = 1024;
/// The number of reads allowed in addition to those of single frames.
const OTHER_READS: usize = 32;
/// The number of bytes allowed for each single frame.
const BYTES_EACH: usize = 1024;
/// The maximum distance in bytes between a call's outermost frame and the structure of the same call: both are local
/// variables of the evaluation function.
const SAME_CALL: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaptureResult {
    Frames,
    /// The thread is not executing Python code.
    Idle,
    /// The thread state now belongs to another thread, or was freed.
    Outdated,
}

/// Reusable buffers.
#[derive(Debug, Default)]
pub(super) struct FrameBuffers {
    state: Vec<u8>,
    chunks: Vec<(u64, Vec<u8>)>,
    used_chunks: usize,
    chain: Vec<(u64, u64)>,
}

impl FrameBuffers {
    /// Reads and keeps a piece of memory that contains frames.
    fn keep(&mut self, target: &mut dyn TargetMemory, start: u64, length: u64) {
        if self.chunks.len() == self.used_chunks {
            self.chunks.push((0, Vec::new()));
        }
        let (at, bytes) = &mut self.chunks[self.used_chunks];
        *at = start;
        bytes.resize(usize::try_from(length).unwrap_or(0), 0);
        if target.read(start, bytes) {
            self.used_chunks += 1;
        }
    }

    /// Reads the chunk before the one that was read last, if it contains this address.
    fn keep_before(&mut self, target: &mut dyn TargetMemory, address: u64) {
        let Some((_, bytes)) = self.used_chunks.checked_sub(1).and_then(|last| self.chunks.get(last)) else { return };
        let before = word_at(bytes, 0);
        // Chunks are not longer than this, so a more distant address cannot be in the previous chunk.
        if before == 0 || address.wrapping_sub(before) >= MAX_CHUNK {
            return;
        }
        let mut head = [0; CHUNK_HEAD];
        if !target.read(before, &mut head) {
            return;
        }
        let used = word_at(&head, 16).saturating_mul(8).saturating_add(CHUNK_HEAD as u64);
        let length = word_at(&head, 8).min(used).min(MAX_CHUNK);
        if address.wrapping_sub(before) < length {
            self.keep(target, before, length);
        }
    }

    fn frame(&mut self, target: &mut dyn TargetMemory, address: u64, bytes: &mut [u8]) -> bool {
        if self.copy(address, bytes) {
            return true;
        }
        self.keep_before(target, address);
        self.copy(address, bytes) || target.read(address, bytes)
    }

    fn copy(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.chunks[..self.used_chunks].iter().any(|(start, chunk)| {
            let at = address.checked_sub(*start).and_then(|at| usize::try_from(at).ok());
            let found = at.and_then(|at| chunk.get(at..)?.get(..bytes.len()));
            found.is_some_and(|found| {
                bytes.copy_from_slice(found);
                true
            })
        })
    }
}

/// Reads the frames of the thread that has this state. At most `limit` frames are read one by one.
pub(super) fn capture(
    layout: &PythonLayout,
    state: InterpreterThread,
    limit: usize,
    target: &mut dyn TargetMemory,
    scratch: &mut FrameBuffers,
    captured: &mut Captured,
) -> CaptureResult {
    captured.clear();
    scratch.used_chunks = 0;
    let reads = u32::try_from(limit + OTHER_READS).unwrap_or(u32::MAX);
    let mut bounded = Bounded::new(target, Allowance { reads, bytes: limit.saturating_mul(BYTES_EACH) });
    let target = &mut bounded;
    let thread = &layout.thread;
    scratch.state.resize(thread.size(), 0);
    if !target.read(state.address, &mut scratch.state) || !state.is_still(thread, &scratch.state) {
        return CaptureResult::Outdated;
    }
    let field = |at: u32| word_at(&scratch.state, at as usize);
    let chunk = thread.chunk.map(|at| (field(at), field(at + 8)));
    // The innermost frame, the start of the chain, and the offsets in a link of its frame and of the next link.
    let (first, chain) = match thread.current {
        Current::Direct { frame } => (Some(field(frame)), None),
        Current::WithChain { frame, chain, previous } => (Some(field(frame)), Some((field(chain), None, previous))),
        Current::InChain { chain, frame, previous } => (None, Some((field(chain), Some(frame), previous))),
    };
    let first = match (first, chain) {
        (Some(first), _) => first,
        (None, Some((link, Some(frame), _))) if link != 0 => {
            word(target, link.wrapping_add(u64::from(frame))).unwrap_or(0)
        }
        _ => 0,
    };
    let chunk = chunk.filter(|(start, end)| *start != 0 && end.wrapping_sub(*start) <= MAX_CHUNK);
    if let Some((start, end)) = chunk.filter(|_| first != 0) {
        scratch.keep(target, start, end.wrapping_sub(start));
    }
    let mut end = walk(&layout.frame, first, target, scratch, captured);
    // The first link, and its frame at this moment.
    let mut begins = chain.map(|(link, ..)| (link, first));
    if let Some((link, Some(frame), previous)) = chain
        && (captured.frames.is_empty()
            || end == ChainEnd::Nowhere
            || (end == ChainEnd::Left && limit < MAX_FRAMES)
            || begins_elsewhere(&layout.frame, captured, link))
    {
        // While the evaluation function is being entered, the first link has no frame yet.
        let before = word(target, link.wrapping_add(u64::from(previous))).filter(|link| *link != 0);
        let second = before.and_then(|link| Some((link, word(target, link.wrapping_add(u64::from(frame)))?)));
        if let Some((before, second)) = second.filter(|(_, at)| *at != 0) {
            if let Some((start, end)) = chunk.filter(|_| first == 0) {
                scratch.keep(target, start, end.wrapping_sub(start));
            }
            let seen = std::mem::take(captured);
            let again = walk(&layout.frame, second, target, scratch, captured);
            if again == ChainEnd::Reached || captured.frames.len() > seen.frames.len() {
                (end, begins) = (again, Some((before, second)));
            } else {
                *captured = seen;
            }
        }
    }
    (captured.cut, captured.too_many) = (end != ChainEnd::Reached, end == ChainEnd::TooMany);
    if let Some((link, frame, previous)) = chain
        && !matches!(layout.frame.calls, Calls::Owned { .. })
    {
        let ended = links(link, (frame, previous), (state.address, thread.size() as u64), target, scratch, captured);
        // The thread may have started another frame in this call meanwhile.
        let known = scratch.chain.iter_mut().find(|(link, _)| begins.is_some_and(|(first, _)| first == *link));
        known.zip(begins).into_iter().for_each(|((_, of), (_, frame))| *of = frame);
        anchor(&scratch.chain, frame.is_some(), ended && end == ChainEnd::Reached, captured);
    }
    if captured.frames.is_empty() { CaptureResult::Idle } else { CaptureResult::Frames }
}

/// Whether the outermost frame of the innermost call is not near the first link of the chain. Both are local variables
/// of the evaluation function, so normally they are near each other.
fn begins_elsewhere(layout: &FrameLayout, captured: &Captured, link: u64) -> bool {
    let anchor = captured.segments.first().and_then(|segment| segment.anchor);
    matches!(layout.calls, Calls::Owned { .. }) && anchor.is_some_and(|anchor| anchor.abs_diff(link) > SAME_CALL)
}

/// Where the walk along the frames ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChainEnd {
    /// At the outermost frame.
    Reached,
    /// There are more frames than may be read.
    TooMany,
    /// At a generator without a caller, or at a function that no call executes: the thread has just left it.
    Left,
    /// At inconsistent data: the frames are being changed.
    Nowhere,
}

/// Follows the chain of frames from this one on.
fn walk(
    layout: &FrameLayout,
    first: u64,
    target: &mut Bounded<'_>,
    scratch: &mut FrameBuffers,
    captured: &mut Captured,
) -> ChainEnd {
    captured.clear();
    let mut address = first;
    let mut bytes = [0; 512];
    let bytes = &mut bytes[..(layout.size as usize).min(512)];
    let mut end = ChainEnd::Nowhere;
    let mut last = None;
    for _ in 0..2 * MAX_FRAMES {
        if address == 0 {
            end = match (layout.calls, last) {
                (Calls::Owned { .. }, Some(..OUTERMOST)) | (Calls::Marked { .. }, Some(GENERATOR)) => ChainEnd::Left,
                _ => ChainEnd::Reached,
            };
            break;
        }
        if address & 7 != 0 || captured.frames.len() >= MAX_FRAMES || !scratch.frame(target, address, bytes) {
            let is_limit = captured.frames.len() >= MAX_FRAMES || target.refused() > 0;
            if is_limit && address & 7 == 0 && !captured.has(address) {
                end = ChainEnd::TooMany;
            }
            break;
        }
        let instruction = match layout.instruction {
            InstructionField::Address { at } => word_at(bytes, at as usize),
            InstructionField::Offset { at, unit } => {
                // The offset is -1 before the first instruction.
                i64::from(half_at(bytes, at as usize).cast_signed()).saturating_mul(i64::from(unit)).cast_unsigned()
            }
        };
        // From 3.13 on the low bits are a tag.
        let code = word_at(bytes, layout.code as usize) & !3;
        let globals = word_at(bytes, layout.globals as usize);
        let byte = |at: u32| bytes.get(at as usize).copied().unwrap_or(0);
        last = match layout.calls {
            Calls::Each => None,
            Calls::Marked { owner: at, .. } | Calls::Owned { at } => Some(byte(at)),
        };
        match layout.calls {
            Calls::Owned { at } if byte(at) >= OUTERMOST => captured.end_call(Some(address)),
            _ if code == 0 => break,
            calls => {
                captured.frames.push(RawFrame { address, code, instruction, owner: globals });
                match calls {
                    Calls::Owned { .. } => {}
                    Calls::Each => captured.end_call(None),
                    Calls::Marked { at, .. } if byte(at) == 0 => {}
                    Calls::Marked { .. } => captured.end_call(None),
                }
            }
        }
        address = word_at(bytes, layout.previous as usize);
    }
    captured.end_call(None);
    end
}

/// The owner of the outermost frame of a call: `FRAME_OWNED_BY_CSTACK` in 3.12 and 3.13, `FRAME_OWNED_BY_INTERPRETER`
/// in 3.14, where `FRAME_OWNED_BY_CSTACK` is a higher number (CPython `Include/internal/pycore_frame.h`,
/// `pycore_interpframe_structs.h`).
const OUTERMOST: u8 = 3;
/// The owner of a generator's frame: `FRAME_OWNED_BY_GENERATOR`.
const GENERATOR: u8 = 1;

/// Reads the chain on the native stack: the address and the frame of each link. Returns whether the end was reached:
/// the last link is in the thread's state.
fn links(
    first: u64,
    (frame, previous): (Option<u32>, u32),
    (state, size): (u64, u64),
    target: &mut dyn TargetMemory,
    scratch: &mut FrameBuffers,
    captured: &Captured,
) -> bool {
    scratch.chain.clear();
    let mut link = first;
    // While a call begins or ends, the chain may have one more link than there are calls.
    for _ in 0..(captured.segments.len() + 2).min(MAX_CHAIN) {
        // The state is longer than the part of it that is read.
        if link == 0 || link.wrapping_sub(state) < size + 256 {
            return true;
        }
        let mut bytes = [0; 24];
        if !target.read(link, &mut bytes) {
            return false;
        }
        let of = frame.map_or(0, |at| word_at(&bytes, at as usize));
        scratch.chain.push((link, of));
        link = word_at(&bytes, previous as usize);
    }
    false
}

/// Sets the anchor of each call: the address of its link on the native stack. `named` means that links store their
/// frame, `whole` that neither frames nor links are missing.
fn anchor(chain: &[(u64, u64)], named: bool, whole: bool, captured: &mut Captured) {
    let Captured { frames, segments, .. } = captured;
    if named {
        let mut chain = chain.iter();
        let mut start = 0;
        for segment in segments.iter_mut() {
            let leaf = frames.get(start).map(|frame| frame.address);
            let before = chain.clone();
            segment.anchor = chain.find(|(_, frame)| Some(*frame) == leaf).map(|(link, _)| *link);
            if segment.anchor.is_none() {
                chain = before;
            }
            start = segment.end;
        }
        return;
    }
    let pairs: Vec<u64> = if whole {
        // The innermost call may be just beginning, so both are paired from the outermost one on.
        let skipped = chain.len().saturating_sub(segments.len());
        let missing = segments.len().saturating_sub(chain.len());
        std::iter::repeat_n(0, missing).chain(chain.iter().skip(skipped).map(|(link, _)| *link)).collect()
    } else {
        chain.iter().map(|(link, _)| *link).collect()
    };
    for (segment, link) in segments.iter_mut().zip(pairs) {
        segment.anchor = (link != 0).then_some(link);
    }
}
