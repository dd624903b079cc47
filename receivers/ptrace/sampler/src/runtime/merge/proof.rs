//! What is believed of frames that were read while their thread ran on.
//!
//! A native call of the evaluation function keeps the address of the next instruction in a register that calls leave as
//! it was, or in its own part of the stack. Unwinding tells what these were at the moment of the sample, so they tell
//! which function the call executed. If that is the innermost one of the frames that were read, these are believed. If
//! it is another one that is known, that one takes their place. If there is none, or several, nothing is believed. What
//! lies below the call on the stack is not looked at: functions that it called leave what earlier ones had there.

use std::ops::Range;

use super::{Merged, Place, Stack};
use crate::message::Location;
use crate::runtime::{Captured, Executed, RawFrame, Resolved};
use crate::unwind::{Frame, StackMemory};

/// The registers that calls leave as they were, without the stack pointer (System V ABI for x86-64): RBX, RBP, R12 to
/// R15.
const KEPT: [u8; 6] = [3, 6, 12, 13, 14, 15];

/// The return address and the registers that a call saves for its caller, in bytes.
const SAVED: u64 = 64;

/// The most words of a stack that are looked at for all calls together, and for one.
const MAX_WORDS: (usize, usize) = (8192, 1024);

/// Addresses of a program's memory are between these on x86-64.
const USER: Range<u64> = 0x1_0000..0x8000_0000_0000;

/// What is in memory now.
pub trait Lookup {
    /// See [`Instance::executed`](crate::runtime::Instance::executed).
    fn executed(&mut self, address: u64) -> Option<Executed>;
}

/// The stack of a thread at the moment of its sample.
pub struct Words<'a> {
    /// The stack, as it was then.
    pub memory: &'a mut dyn StackMemory,
    /// What is known of functions otherwise.
    pub lookup: &'a mut dyn Lookup,
}

/// What is believed of the frames of one native call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Belief {
    /// All frames that were read.
    Whole,
    /// These instead.
    Other(Vec<Location>),
    /// None.
    Nothing,
}

/// What is believed of all.
#[derive(Debug)]
pub(super) struct Beliefs {
    /// By segment.
    pub(super) segments: Vec<Belief>,
    /// Native frames of the evaluation function for which no frames were read, and what they executed.
    pub(super) besides: Vec<(usize, Vec<Location>)>,
}

/// Decides what is believed. Without `words` that is everything.
pub(super) fn believe(
    stack: Stack<'_>,
    captured: &Captured,
    resolved: &[Resolved],
    places: &[Place],
    evaluation: Option<&Range<u64>>,
    words: Option<Words<'_>>,
    merged: &mut Merged,
) -> Beliefs {
    let mut beliefs = Beliefs { segments: Vec::with_capacity(captured.segments.len()), besides: Vec::new() };
    let Some(words) = words else {
        beliefs.segments.resize(captured.segments.len(), Belief::Whole);
        return beliefs;
    };
    let mut search = Search { words, stack, left: MAX_WORDS.0 };
    let mut start = 0;
    for (segment, place) in captured.segments.iter().zip(places) {
        let range = start..segment.end;
        start = segment.end;
        let (Some(frames), Some(told)) = (captured.frames.get(range.clone()), resolved.get(range)) else { break };
        let belief = match place {
            Place::At(native) => search.segment(*native, frames, told, merged),
            // Nothing is known of what they executed.
            Place::Before(_) | Place::Beyond | Place::Nowhere => Belief::Nothing,
        };
        merged.unproven += u32::from(belief == Belief::Nothing && matches!(place, Place::At(_)));
        beliefs.segments.push(belief);
    }
    for native in evaluation.into_iter().flat_map(|evaluation| stack.evaluations(evaluation)) {
        if !places.contains(&Place::At(native)) {
            let hit = search.hit(native).filter(|(hit, _)| !hit.shared).and_then(|(hit, _)| hit.resolved.location);
            merged.unproven += u32::from(hit.is_none());
            beliefs.besides.extend(hit.map(|hit| (native, vec![hit])));
        }
    }
    beliefs
}

struct Search<'a, 'b> {
    words: Words<'a>,
    stack: Stack<'b>,
    left: usize,
}

impl Search<'_, '_> {
    /// What is believed of the frames that were read of a native call.
    fn segment(&mut self, native: usize, frames: &[RawFrame], told: &[Resolved], merged: &mut Merged) -> Belief {
        let Some((hit, words)) = self.hit(native) else { return Belief::Nothing };
        if hit.shared {
            // Of the functions that share instructions it is the one whose frame the call has the address of.
            let leaf = frames.first().zip(told.first()).filter(|(frame, told)| {
                words.contains(&frame.address) && told.code == hit.resolved.code && !told.unknown
            });
            return leaf.map_or(Belief::Nothing, |(_, told)| Belief::Other(told.location.into_iter().collect()));
        }
        // What lies behind a frame that makes no sense makes none either.
        let sound = told.iter().position(|frame| frame.unknown).unwrap_or(told.len());
        let (frames, told) = (&frames[..sound.min(frames.len())], &told[..sound]);
        let callers = match frames.iter().position(|frame| frame.code == hit.code) {
            // What it called, if anything, began later.
            Some(index) => index + 1,
            // Another function has its frame's place by now, called from the same one.
            None if frames.first().is_some_and(|frame| words.contains(&frame.address)) => 1,
            None => told.len(),
        };
        let callers = told.get(callers..).unwrap_or_default();
        merged.later_read += callers.len() as u32;
        let callers = callers.iter().filter_map(|caller| caller.location);
        Belief::Other(hit.resolved.location.into_iter().chain(callers).collect())
    }

    /// The function that a native call executed, and all words that it had.
    fn hit(&mut self, native: usize) -> Option<(Executed, Vec<u64>)> {
        let frame = *self.stack.frames.get(native)?;
        let caller = self.stack.frames.get(native + 1)?;
        let mut words: Vec<u64> = KEPT.into_iter().filter_map(|register| frame.registers.get(register)).collect();
        let registers = words.len();
        self.slots(&frame, caller, &mut words);
        let parts = [&words[..registers], &words[registers..]];
        let found = parts.into_iter().find_map(|part| self.only(part)).flatten();
        found.map(|hit| (hit, words))
    }

    /// The words of a call's own part of the stack, but for the registers of its caller, which it saved at its end.
    fn slots(&mut self, frame: &Frame, caller: &Frame, words: &mut Vec<u64>) {
        let saved: Vec<u64> = KEPT.into_iter().filter_map(|register| caller.registers.get(register)).collect();
        let end = caller.sp;
        let Some(mut address) = frame.sp.checked_next_multiple_of(8) else { return };
        for _ in 0..MAX_WORDS.1.min(self.left) {
            if address >= end {
                return;
            }
            self.left -= 1;
            let Some(value) = self.words.memory.peek_u64(address) else { return };
            if end - address > SAVED || !saved.contains(&value) {
                words.push(value);
            }
            address = address.saturating_add(8);
        }
    }

    /// The function of which an address is among these words: `Some(None)` if there are several.
    fn only(&mut self, words: &[u64]) -> Option<Option<Executed>> {
        let mut only: Option<Executed> = None;
        for &word in words.iter().filter(|word| USER.contains(word)) {
            let Some(hit) = self.words.lookup.executed(word) else { continue };
            if only.as_ref().is_some_and(|known| known.code != hit.code) {
                return Some(None);
            }
            // Of several addresses the first one, which is a register where there is any.
            only.get_or_insert(hit);
        }
        only.map(Some)
    }
}
