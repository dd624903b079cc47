//! Replaces native frames of an interpreter by the interpreter's own frames.
//!
//! If the interpreter stores a stack address (anchor) within the native call that executes some frames, these frames
//! replace the native frame whose stack range contains the anchor; no symbol is needed. Otherwise (Python 3.8 and 3.9)
//! native frames of the evaluation function and the interpreter's frames are counted from the outermost one.
//!
//! Frames that were read while the thread ran may be newer than the sample, so only proven frames are accepted, see
//! `proof`.

mod held;
mod proof;

use std::ops::Range;

pub use self::held::{Held, MergeInput, merge_by_registers};
use self::proof::{FrameVerdict, accept_frames};
pub use self::proof::{Lookup, NextInstruction, Words};
use super::{Captured, Resolved};
use crate::message::Location;
use crate::unwind::Frame;

/// How far above the last known stack pointer an address still belongs to the last frame, in bytes.
const LAST_FRAME: u64 = 64 << 10;

/// A native stack.
#[derive(Debug, Clone, Copy)]
pub struct UnwoundStack<'a> {
    /// The frames, innermost first.
    pub frames: &'a [Frame],
    /// Whether the stack reaches the thread's first function.
    pub complete: bool,
    /// Locations by frame index, found by an interpreter with frames on the native stack (V8), in their order.
    pub named: &'a [(usize, Location)],
}

impl UnwoundStack<'_> {
    /// The locations shown for a frame that is not replaced: those found for it, or else its own.
    fn shown(&self, index: usize) -> impl Iterator<Item = Location> {
        let start = self.named.partition_point(|(at, _)| *at < index);
        let named = self.named.get(start..).unwrap_or_default().iter().take_while(move |(at, _)| *at == index);
        let own = self.frames.get(index).filter(|_| !self.is_named(index)).map(|frame| frame.location);
        named.map(|(_, location)| *location).chain(own)
    }

    /// Whether locations were found for a frame.
    fn is_named(&self, index: usize) -> bool {
        self.named.binary_search_by_key(&index, |(at, _)| *at).is_ok()
    }

    /// Replaces `locations` by the native frames alone.
    pub fn show(&self, locations: &mut Vec<Location>) {
        locations.clear();
        locations.extend((0..self.frames.len()).flat_map(|index| self.shown(index)));
    }

    /// The native frames of the evaluation function, innermost first.
    fn evaluations(&self, evaluation: &Range<u64>) -> impl Iterator<Item = usize> {
        (0..self.frames.len()).filter(|index| self.is_evaluation(*index, evaluation))
    }

    fn is_evaluation(&self, index: usize, evaluation: &Range<u64>) -> bool {
        self.frames.get(index).is_some_and(|frame| evaluation.contains(&frame.lookup(index)))
    }
}

/// Counts of the frames and calls that were merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Merged {
    /// Calls of the evaluation function whose frames are shown.
    pub named: u32,
    /// Calls for which nothing proves a function, so that their native frame is shown.
    pub unproven: u32,
    /// Calls whose callers in the same native call are unknown.
    pub missing_callers: u32,
    /// Frames of unknown functions.
    pub unknown: u32,
}

/// Replaces `locations` by the native frames, some of which are replaced by the interpreter's frames. With `words`,
/// unproven frames are left out.
pub fn merge(
    stack: UnwoundStack<'_>,
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
    let beliefs = accept_frames(stack, captured, resolved, &places, evaluation, words, &mut merged);
    let mut next = 0;
    let mut emit = |segment: usize, locations: &mut Vec<Location>| {
        let start = segment.checked_sub(1).and_then(|before| captured.segments.get(before)).map_or(0, |one| one.end);
        let end = captured.segments.get(segment).map_or(start, |one| one.end);
        let frames = resolved.get(start..end).unwrap_or_default();
        match beliefs.segments.get(segment) {
            Some(FrameVerdict::Whole) => {
                locations.extend(frames.iter().filter_map(|frame| frame.location));
                merged.unknown += frames.iter().filter(|frame| frame.unknown).count() as u32;
            }
            Some(FrameVerdict::Other(others)) => locations.extend(others),
            Some(FrameVerdict::Nothing) | None => return false,
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
            if *place != SegmentPlace::Nowhere {
                replaced |= emit(next, locations) && *place == SegmentPlace::At(index);
            }
            next += 1;
        }
        if let Some((_, others)) = beliefs.besides.iter().find(|(at, _)| *at == index) {
            locations.extend(others);
            replaced = true;
        }
        // A trampoline that the interpreter generates for other profilers calls the evaluation function; the function
        // for which it was generated is already shown.
        let is_trampoline = behind_evaluation && frame.location.is_generated() && !stack.is_named(index);
        let is_outer = captured.nested && behind_evaluation;
        if !replaced && !is_trampoline && !is_outer {
            locations.extend(stack.shown(index));
        }
        behind_evaluation = replaced;
    }
    for segment in next..captured.segments.len() {
        if places.get(segment) == Some(&SegmentPlace::Beyond) {
            emit(segment, locations);
        }
    }
    merged.named += beliefs.besides.len() as u32;
    merged
}

/// Where a group of frames is inserted into the native stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SegmentPlace {
    /// The group replaces this native frame.
    At(usize),
    /// The group precedes the native frames that are replaced: there are more groups than native frames.
    Before(usize),
    /// The group belongs to a part of the native stack that is not known.
    Beyond,
    /// The group is not shown: its frames began after the native stack was read, or contradict it.
    Nowhere,
}

impl SegmentPlace {
    fn is_before(self, index: usize) -> bool {
        match self {
            Self::At(at) | Self::Before(at) => at <= index,
            Self::Nowhere => true,
            Self::Beyond => false,
        }
    }
}

fn places(stack: UnwoundStack<'_>, captured: &Captured, evaluation: Option<&Range<u64>>) -> Vec<SegmentPlace> {
    let segments = &captured.segments;
    // Each frame has its own native call, and no call has an anchor.
    let is_counted = segments.len() == captured.frames.len() && segments.iter().all(|segment| segment.anchor.is_none());
    match evaluation {
        Some(evaluation) if is_counted => counted(stack, captured, evaluation),
        _ => {
            let mut from = 0;
            let mut beyond = false;
            let places = segments.iter().map(|segment| {
                let place = if beyond { SegmentPlace::Beyond } else { contained(stack, segment.anchor, from) };
                match place {
                    SegmentPlace::At(at) => from = at + 1,
                    SegmentPlace::Beyond => beyond = !stack.complete,
                    SegmentPlace::Before(_) | SegmentPlace::Nowhere => {}
                }
                if place == SegmentPlace::Beyond && stack.complete { SegmentPlace::Nowhere } else { place }
            });
            places.collect()
        }
    }
}

/// If the anchor is in the caller of the evaluation function, moves the frames to the evaluation function itself. Its
/// caller is not shown.
fn move_inwards(stack: UnwoundStack<'_>, evaluation: &Range<u64>, places: &mut [SegmentPlace]) {
    for place in places {
        if let SegmentPlace::At(at) = *place
            && let Some(inner) = at.checked_sub(1)
            && stack.evaluations(evaluation).any(|index| index == inner)
        {
            *place = SegmentPlace::At(inner);
        }
    }
}

/// Finds the native frame, from index `from` on, whose stack range contains the anchor.
fn contained(stack: UnwoundStack<'_>, anchor: Option<u64>, from: usize) -> SegmentPlace {
    let (Some(anchor), frames) = (anchor, stack.frames) else { return SegmentPlace::Nowhere };
    let inner = frames.iter().enumerate().skip(from);
    for (index, frame) in inner {
        let end = frames.get(index + 1).map_or(frame.sp.saturating_add(LAST_FRAME), |caller| caller.sp);
        if (frame.sp..end).contains(&anchor) {
            // The end of the last known frame is estimated, but the frame that ends a complete stack cannot contain an
            // anchor.
            let is_last = index + 1 == frames.len();
            return if is_last && stack.complete { SegmentPlace::Nowhere } else { SegmentPlace::At(index) };
        }
    }
    match frames.last() {
        Some(last) if anchor > last.sp => SegmentPlace::Beyond,
        _ => SegmentPlace::Nowhere,
    }
}

/// Pairs native frames of the evaluation function with the interpreter's frames, from the outermost one on if both are
/// complete.
fn counted(stack: UnwoundStack<'_>, captured: &Captured, evaluation: &Range<u64>) -> Vec<SegmentPlace> {
    let native: Vec<usize> = stack.evaluations(evaluation).collect();
    let count = captured.segments.len();
    if stack.complete && !captured.cut {
        let missing = count.saturating_sub(native.len());
        let surplus = native.len().saturating_sub(count);
        let first = native.first().map_or(SegmentPlace::Nowhere, |first| SegmentPlace::Before(*first));
        let paired = native.iter().skip(surplus).map(|index| SegmentPlace::At(*index));
        return std::iter::repeat_n(first, missing).chain(paired).collect();
    }
    (0..count)
        .map(|segment| native.get(segment).map_or(SegmentPlace::Beyond, |index| SegmentPlace::At(*index)))
        .collect()
}

#[cfg(test)]
mod tests;
