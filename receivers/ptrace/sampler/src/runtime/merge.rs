//! Puts an interpreter's frames in the places of the native frames that stand for them.
//!
//! Where the interpreter tells an address within the native call that executes some frames, the frames take the place
//! of the native frame whose part of the stack has that address. That needs no symbol. Where it does not (Python 3.8
//! and 3.9), native frames of the evaluation function and the interpreter's frames are counted from the outermost one.
//!
//! Frames that were read while the thread ran on may be those of a later moment; only what is proven of them is
//! believed, see `proof`.

mod held;
mod proof;

use std::ops::Range;

pub use self::held::{Held, Pieces, merge_held};
use self::proof::{Belief, believe};
pub use self::proof::{Lookup, NextInstruction, Words};
use super::{Captured, Resolved};
use crate::message::Location;
use crate::unwind::Frame;

/// How far above the last known stack pointer an address still belongs to the last frame, in bytes.
const LAST_FRAME: u64 = 64 << 10;

/// A native stack.
#[derive(Debug, Clone, Copy)]
pub struct Stack<'a> {
    /// Its frames, the innermost first.
    pub frames: &'a [Frame],
    /// Whether it reaches the thread's first function.
    pub complete: bool,
    /// What frames stand for in the eyes of an interpreter that has its frames there, by their index, in its order.
    pub told: &'a [(usize, Location)],
}

impl Stack<'_> {
    /// What a frame is shown as, where it is not replaced: itself, or what it stands for.
    fn shown(&self, index: usize) -> impl Iterator<Item = Location> {
        let start = self.told.partition_point(|(at, _)| *at < index);
        let told = self.told.get(start..).unwrap_or_default().iter().take_while(move |(at, _)| *at == index);
        let own = self.frames.get(index).filter(|_| !self.is_told(index)).map(|frame| frame.location);
        told.map(|(_, location)| *location).chain(own)
    }

    /// Whether a frame stands for something.
    fn is_told(&self, index: usize) -> bool {
        self.told.binary_search_by_key(&index, |(at, _)| *at).is_ok()
    }

    /// Replaces `locations` by the frames, without any others.
    pub fn show(&self, locations: &mut Vec<Location>) {
        locations.clear();
        locations.extend((0..self.frames.len()).flat_map(|index| self.shown(index)));
    }

    /// The native frames of the evaluation function, the innermost first.
    fn evaluations(&self, evaluation: &Range<u64>) -> impl Iterator<Item = usize> {
        (0..self.frames.len()).filter(|index| self.is_evaluation(*index, evaluation))
    }

    fn is_evaluation(&self, index: usize, evaluation: &Range<u64>) -> bool {
        self.frames.get(index).is_some_and(|frame| evaluation.contains(&frame.lookup(index)))
    }
}

/// What became of the interpreter's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Merged {
    /// Calls of the evaluation function whose frames are there.
    pub named: u32,
    /// Calls of which nothing could be proven, so that the native frame is there.
    pub unproven: u32,
    /// Calls of which the callers in the same native call are not known.
    pub missing_callers: u32,
    /// Frames of unknown functions.
    pub unknown: u32,
}

/// Replaces `locations` by the native frames with the interpreter's in their places. With `words`, what cannot be
/// proven is left out.
pub fn merge(
    stack: Stack<'_>,
    captured: &Captured,
    resolved: &[Resolved],
    evaluation: Option<&Range<u64>>,
    words: Option<Words<'_>>,
    locations: &mut Vec<Location>,
) -> Merged {
    locations.clear();
    let mut places = places(stack, captured, evaluation);
    if let Some(evaluation) = evaluation.filter(|_| captured.nested) {
        move_inwards(stack, evaluation, &mut places);
    }
    let mut merged = Merged::default();
    let beliefs = believe(stack, captured, resolved, &places, evaluation, words, &mut merged);
    let mut next = 0;
    let mut emit = |segment: usize, locations: &mut Vec<Location>| {
        let start = segment.checked_sub(1).and_then(|before| captured.segments.get(before)).map_or(0, |one| one.end);
        let end = captured.segments.get(segment).map_or(start, |one| one.end);
        let frames = resolved.get(start..end).unwrap_or_default();
        match beliefs.segments.get(segment) {
            Some(Belief::Whole) => {
                locations.extend(frames.iter().filter_map(|frame| frame.location));
                merged.unknown += frames.iter().filter(|frame| frame.unknown).count() as u32;
            }
            Some(Belief::Other(others)) => locations.extend(others),
            Some(Belief::Nothing) | None => return false,
        }
        merged.named += 1;
        true
    };
    let mut behind_evaluation = false;
    for (index, frame) in stack.frames.iter().enumerate() {
        let mut replaced = false;
        while let Some(place) = places.get(next)
            && place.is_before(index)
        {
            if *place != Place::Nowhere {
                replaced |= emit(next, locations) && *place == Place::At(index);
            }
            next += 1;
        }
        if let Some((_, others)) = beliefs.besides.iter().find(|(at, _)| *at == index) {
            locations.extend(others);
            replaced = true;
        }
        // Code that the interpreter makes to be seen by other profilers calls the evaluation function and says what is
        // said here already.
        let is_trampoline = behind_evaluation && frame.location.is_generated() && !stack.is_told(index);
        let is_outer = captured.nested && behind_evaluation;
        if !replaced && !is_trampoline && !is_outer {
            locations.extend(stack.shown(index));
        }
        behind_evaluation = replaced;
    }
    for segment in next..captured.segments.len() {
        if places.get(segment) == Some(&Place::Beyond) {
            emit(segment, locations);
        }
    }
    merged.named += beliefs.besides.len() as u32;
    merged
}

/// Where frames belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the place of this native frame.
    At(usize),
    /// In front of the first native frame that has a place: there are more of them than native ones.
    Before(usize),
    /// Outside of what is known of the native stack.
    Beyond,
    /// Nowhere: they began after the native stack was taken, or contradict it.
    Nowhere,
}

impl Place {
    fn is_before(self, index: usize) -> bool {
        match self {
            Self::At(at) | Self::Before(at) => at <= index,
            Self::Nowhere => true,
            Self::Beyond => false,
        }
    }
}

fn places(stack: Stack<'_>, captured: &Captured, evaluation: Option<&Range<u64>>) -> Vec<Place> {
    let segments = &captured.segments;
    // Where each frame has a native call of its own, and no place of that is told.
    let is_counted = segments.len() == captured.frames.len() && segments.iter().all(|segment| segment.anchor.is_none());
    match evaluation {
        Some(evaluation) if is_counted => counted(stack, captured, evaluation),
        _ => {
            let mut from = 0;
            let mut beyond = false;
            let places = segments.iter().map(|segment| {
                let place = if beyond { Place::Beyond } else { contained(stack, segment.anchor, from) };
                match place {
                    Place::At(at) => from = at + 1,
                    Place::Beyond => beyond = !stack.complete,
                    Place::Before(_) | Place::Nowhere => {}
                }
                if place == Place::Beyond && stack.complete { Place::Nowhere } else { place }
            });
            places.collect()
        }
    }
}

/// Where the anchor is in the caller of the evaluation function, moves frames to the evaluation function. The caller
/// has nothing else to say.
fn move_inwards(stack: Stack<'_>, evaluation: &Range<u64>, places: &mut [Place]) {
    for place in places {
        if let Place::At(at) = *place
            && let Some(inner) = at.checked_sub(1)
            && stack.evaluations(evaluation).any(|index| index == inner)
        {
            *place = Place::At(inner);
        }
    }
}

/// The native frame, from this one on, whose part of the stack has an address.
fn contained(stack: Stack<'_>, anchor: Option<u64>, from: usize) -> Place {
    let (Some(anchor), frames) = (anchor, stack.frames) else { return Place::Nowhere };
    let inner = frames.iter().enumerate().skip(from);
    for (index, frame) in inner {
        let end = frames.get(index + 1).map_or(frame.sp.saturating_add(LAST_FRAME), |caller| caller.sp);
        if (frame.sp..end).contains(&anchor) {
            // The last frame that is known ends somewhere, but a frame that ends the stack has no such address.
            let is_last = index + 1 == frames.len();
            return if is_last && stack.complete { Place::Nowhere } else { Place::At(index) };
        }
    }
    match frames.last() {
        Some(last) if anchor > last.sp => Place::Beyond,
        _ => Place::Nowhere,
    }
}

/// Pairs native frames of the evaluation function with the interpreter's, from the outermost one if both are complete.
fn counted(stack: Stack<'_>, captured: &Captured, evaluation: &Range<u64>) -> Vec<Place> {
    let native: Vec<usize> = stack.evaluations(evaluation).collect();
    let count = captured.segments.len();
    if stack.complete && !captured.cut {
        let missing = count.saturating_sub(native.len());
        let surplus = native.len().saturating_sub(count);
        let first = native.first().map_or(Place::Nowhere, |first| Place::Before(*first));
        let paired = native.iter().skip(surplus).map(|index| Place::At(*index));
        return std::iter::repeat_n(first, missing).chain(paired).collect();
    }
    (0..count).map(|segment| native.get(segment).map_or(Place::Beyond, |index| Place::At(*index))).collect()
}

#[cfg(test)]
mod tests;
