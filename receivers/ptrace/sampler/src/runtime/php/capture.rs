//! Reads the frames of a process: addresses only, with as few reads as possible.
//!
//! Frames are adjacent on PHP's own stack, callers at lower addresses than the functions they call, so one read gets
//! several frames.

use super::layout::{PhpLayout, frame, generator};
use crate::runtime::target::{Allowance, Bounded, TargetMemory, half_at, word, word_at};
use crate::runtime::{Captured, MAX_FRAMES, RawFrame};

/// How much is read at once, up to the end of a frame, in bytes.
const WINDOW: u64 = 2048;
/// The number of reads allowed in addition to those of frames.
const OTHER_READS: usize = 32;
/// The maximum number of generators that delegate to each other.
const MAX_GENERATORS: usize = 64;

/// Reusable buffers.
#[derive(Debug, Default)]
pub(super) struct FrameWindow {
    window: Vec<u8>,
    start: u64,
}

impl FrameWindow {
    /// Returns a frame, from the buffer if it contains the frame.
    fn frame(&mut self, target: &mut dyn TargetMemory, address: u64) -> Option<[u8; frame::SIZE]> {
        if let Some(bytes) = self.copied(address) {
            return Some(bytes);
        }
        let end = address.checked_add(frame::SIZE as u64)?;
        self.start = end.saturating_sub(WINDOW);
        self.window.resize(WINDOW as usize, 0);
        if !target.read(self.start, &mut self.window) {
            // A PHP stack may begin right below this frame, so that nothing can be read before it.
            self.start = address;
            self.window.resize(frame::SIZE, 0);
            if !target.read(address, &mut self.window) {
                self.window.clear();
            }
        }
        self.copied(address)
    }

    fn copied(&self, address: u64) -> Option<[u8; frame::SIZE]> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.window.get(at..)?.first_chunk().copied()
    }
}

/// Reads the frames of the thread that executes PHP. At most `limit` frames are read one by one. Returns whether there
/// are any frames.
pub(super) fn capture(
    layout: &PhpLayout,
    globals: u64,
    limit: usize,
    target: &mut dyn TargetMemory,
    scratch: &mut FrameWindow,
    captured: &mut Captured,
) -> bool {
    captured.clear();
    scratch.window.clear();
    let allowance = Allowance {
        reads: u32::try_from(limit + OTHER_READS).unwrap_or(u32::MAX),
        bytes: (limit + OTHER_READS).saturating_mul(WINDOW as usize),
    };
    let mut bounded = Bounded::new(target, allowance);
    let target = &mut bounded;
    let mut address = word(target, globals.wrapping_add(layout.current)).unwrap_or(0);
    for _ in 0..2 * MAX_FRAMES {
        if address == 0 {
            break;
        }
        let bytes = if address & 7 == 0 { scratch.frame(target, address) } else { None };
        let Some(bytes) = bytes.filter(|_| captured.frames.len() < MAX_FRAMES) else { break };
        let info = half_at(&bytes, frame::INFO);
        let raw = raw(address, &bytes);
        if raw.code == 0 {
            if info & 0xff == frame::OBJECT {
                delegating(address, word_at(&bytes, frame::THIS), target, scratch, captured);
            }
        } else {
            captured.frames.push(raw);
            if info & frame::TOP != 0 {
                captured.end_call(None);
            }
        }
        address = word_at(&bytes, frame::PREVIOUS);
    }
    captured.cut = address != 0;
    captured.too_many = captured.frames.len() >= MAX_FRAMES && !captured.has(address);
    captured.end_call(None);
    !captured.frames.is_empty()
}

fn raw(address: u64, bytes: &[u8]) -> RawFrame {
    let (code, instruction) = (word_at(bytes, frame::FUNCTION), word_at(bytes, frame::INSTRUCTION));
    RawFrame { address, code, instruction, owner: 0 }
}

/// Adds the generators that delegate to the running one (`yield from`). They are suspended, and represented by one
/// frame without a function that belongs to the outermost of them (php-src `Zend/zend_generators.c`,
/// `zend_generator_check_placeholder_frame`). They belong to the same native call as the running generator.
fn delegating(
    placeholder: u64,
    outermost: u64,
    target: &mut Bounded<'_>,
    scratch: &mut FrameWindow,
    captured: &mut Captured,
) {
    let Some((frame, parent)) = generator::fields(placeholder.wrapping_sub(outermost)) else { return };
    let mut found = Vec::new();
    let mut object = outermost;
    for _ in 0..MAX_GENERATORS {
        let mut bytes = [0; generator::SIZE];
        if object & 7 != 0 || !target.read(object, &mut bytes) {
            return;
        }
        let (address, parent) = (word_at(&bytes, frame), word_at(&bytes, parent));
        if parent == 0 {
            break;
        }
        let bytes = if address & 7 == 0 { scratch.frame(target, address) } else { None };
        let Some(bytes) = bytes else { return };
        found.push(raw(address, &bytes));
        object = parent;
    }
    let Captured { frames, segments, .. } = captured;
    let Some(last) = segments.last_mut().filter(|last| last.end == frames.len()) else { return };
    let room = MAX_FRAMES - frames.len();
    frames.extend(found.into_iter().rev().filter(|frame| frame.code != 0).take(room));
    last.end = frames.len();
}
