//! What is believed of frames that were read while their thread ran on.
//!
//! A native call of the evaluation function keeps the address of the next instruction in a register or in its part of
//! the stack, so registers and stack as they were at the moment of the sample tell which function it executed. If that
//! is the innermost one of the frames that were read, these are believed. If it is another one that is known, that one
//! takes their place, and its callers are those of the frames that were read to which its own frame leads. If there is
//! none, or several, nothing is believed.

use std::ops::Range;

use super::{Merged, Place, Stack};
use crate::message::Location;
use crate::runtime::{Captured, Executed, RawFrame, Resolved};
use crate::unwind::{COUNT, Registers, StackMemory};

/// How far above the address that the interpreter tells the proof is looked for, in bytes, where the end of the native
/// call is not known.
const ABOVE: u64 = 512;

/// The return address and the registers that a function of the System V ABI for x86-64 saves, in bytes.
const SAVED: u64 = 64;

/// The most words of a stack that are looked at for proofs.
const MAX_WORDS: u64 = 8192;

/// The most different functions whose addresses are collected in one call.
const MAX_FUNCTIONS: usize = 4;

/// How far a frame may be from those that were read, in bytes: frames lie behind each other.
const NEAR: u64 = 64 << 10;

/// The most places at which a frame is looked for in one call.
const MAX_CANDIDATES: usize = 8;

/// Addresses of a program's memory are between these on x86-64.
const USER: Range<u64> = 0x1_0000..0x8000_0000_0000;

/// What is in memory now.
pub trait Lookup {
    /// See [`Instance::executed`](crate::runtime::Instance::executed).
    fn executed(&mut self, address: u64) -> Option<Executed>;

    /// See [`Instance::frame`](crate::runtime::Instance::frame).
    fn frame(&mut self, address: u64) -> Option<(u64, u64)>;
}

/// The registers and the stack of a thread at the moment of its sample.
pub struct Words<'a> {
    /// The registers.
    pub registers: &'a Registers,
    /// The stack, as it was then.
    pub memory: &'a mut dyn StackMemory,
    /// What is known of functions and frames otherwise.
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
    let Some(mut words) = words else {
        beliefs.segments.resize(captured.segments.len(), Belief::Whole);
        return beliefs;
    };
    let mut search = Search { words: &mut words, left: MAX_WORDS, frames: &captured.frames, inner: None };
    let mut calls = calls(stack, captured, places, evaluation).into_iter().peekable();
    let mut from = search.words.registers.stack_pointer();
    let mut start = 0;
    let besides = |call: &Call, search: &mut Search<'_, '_>, from: u64, merged: &mut Merged| {
        let hit = search.hit(from..call.end(stack));
        search.inner = hit.as_ref().map(|hit| hit.code);
        merged.unproven += u32::from(hit.is_none());
        Some((call.native, vec![hit?.resolved.location?]))
    };
    for (index, segment) in captured.segments.iter().enumerate() {
        let range = start..segment.end;
        start = segment.end;
        // Native calls further inside, of which nothing was read.
        while let Some(call) = calls.next_if(|call| call.segment.is_none_or(|of| of < index)) {
            if call.segment.is_none() {
                beliefs.besides.extend(besides(&call, &mut search, from, merged));
                from = from.max(saved_from(call.end(stack)));
            }
        }
        let Some(call) = calls.next_if(|call| call.segment == Some(index)) else {
            beliefs.segments.push(Belief::Nothing);
            continue;
        };
        let known = Some(call.end(stack)).filter(|end| *end != 0);
        let end = known.or(segment.anchor.map(|anchor| anchor.saturating_add(ABOVE))).unwrap_or(0);
        let belief = search.segment(range, resolved, from..end, merged);
        merged.unproven += u32::from(belief == Belief::Nothing);
        beliefs.segments.push(belief);
        from = from.max(known.map_or(segment.anchor.unwrap_or(end), saved_from));
    }
    for call in calls.filter(|call| call.segment.is_none()) {
        beliefs.besides.extend(besides(&call, &mut search, from, merged));
        from = from.max(saved_from(call.end(stack)));
    }
    beliefs
}

/// Where a call whose part of the stack has this end saved the registers of its callers: below the return address, at
/// most six of them. What a caller had in a register may be there.
fn saved_from(end: u64) -> u64 {
    end.saturating_sub(SAVED)
}

/// A native call of the evaluation function.
#[derive(Debug, Clone, Copy)]
struct Call {
    /// Its native frame.
    native: usize,
    /// The segment of frames that were read of it.
    segment: Option<usize>,
}

impl Call {
    /// Where its part of the stack ends; 0 if that is not known.
    fn end(&self, stack: Stack<'_>) -> u64 {
        stack.frames.get(self.native + 1).map_or(0, |caller| caller.sp)
    }
}

/// All calls, the innermost first: those with frames that were read, and others.
fn calls(stack: Stack<'_>, captured: &Captured, places: &[Place], evaluation: Option<&Range<u64>>) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for (segment, place) in (0..captured.segments.len()).zip(places) {
        let native = match place {
            Place::At(native) | Place::Before(native) => *native,
            Place::Beyond => stack.frames.len(),
            Place::Nowhere => continue,
        };
        calls.push(Call { native, segment: Some(segment) });
    }
    if let Some(evaluation) = evaluation {
        for native in stack.evaluations(evaluation) {
            if !calls.iter().any(|call| call.native == native) {
                calls.push(Call { native, segment: None });
            }
        }
    }
    // Stable, so segments stay in their order.
    calls.sort_by_key(|call| call.native);
    calls
}

struct Search<'a, 'b> {
    words: &'a mut Words<'b>,
    left: u64,
    frames: &'a [RawFrame],
    /// What the call further inside executed.
    inner: Option<u64>,
}

impl Search<'_, '_> {
    /// What is believed of a segment of which the native call's words are in this part of the stack.
    fn segment(
        &mut self,
        range: Range<usize>,
        resolved: &[Resolved],
        stack: Range<u64>,
        merged: &mut Merged,
    ) -> Belief {
        let (Some(frames), Some(told)) = (self.frames.get(range.clone()), resolved.get(range)) else {
            return Belief::Nothing;
        };
        // Frames of the interpreter's own have no instructions that could be seen.
        let leaf = frames.iter().zip(told).find(|(_, told)| told.location.is_some());
        if let Some((frame, leaf)) = leaf
            && self.any(stack.clone(), |value| leaf.code.contains(&value))
        {
            self.inner = Some(frame.code);
            merged.later_read += (told.len() as u32).saturating_sub(1);
            return Belief::Whole;
        }
        let Some(hit) = self.hit(stack.clone()) else { return Belief::Nothing };
        self.inner = Some(hit.code);
        let callers = match frames.iter().position(|frame| frame.code == hit.code) {
            Some(index) => Some(index + 1),
            None => self.callers(frames, hit.code, stack),
        };
        let callers = callers.and_then(|index| told.get(index..)).unwrap_or_default();
        merged.later_read += callers.len() as u32;
        let callers = callers.iter().filter_map(|caller| caller.location);
        Belief::Other(hit.resolved.location.into_iter().chain(callers).collect())
    }

    /// The only function of which an address is in this part of the stack, or in a register if it is the innermost part.
    fn hit(&mut self, stack: Range<u64>) -> Option<Executed> {
        let mut hits: Vec<Executed> = Vec::new();
        let own = self.words.registers.stack_pointer();
        let mut values = Vec::new();
        self.any(stack, |value| {
            // Most words are small numbers or addresses of the stack itself.
            if USER.contains(&value) && value.abs_diff(own) > NEAR {
                values.push(value);
            }
            false
        });
        for value in values {
            if let Some(hit) = self.words.lookup.executed(value)
                && !hits.iter().any(|known| known.code == hit.code)
            {
                hits.push(hit);
                if hits.len() == MAX_FUNCTIONS {
                    return None;
                }
            }
        }
        if hits.len() > 1 {
            // The part of the stack in which the call further inside saved registers has what it executed as well.
            hits.retain(|hit| Some(hit.code) != self.inner);
        }
        <[Executed; 1]>::try_from(hits).ok().map(|[hit]| hit)
    }

    /// The index of the frame that called the one that executes `code`: an address of that frame is among the words. It
    /// still is there, or another frame took its place, which has the same caller.
    fn callers(&mut self, frames: &[RawFrame], code: u64, stack: Range<u64>) -> Option<usize> {
        let mut near: Vec<u64> = Vec::new();
        self.any(stack, |value| {
            let is_near = value.is_multiple_of(8) && frames.iter().any(|frame| frame.address.abs_diff(value) < NEAR);
            if is_near && !near.contains(&value) && near.len() < MAX_CANDIDATES {
                near.push(value);
            }
            false
        });
        // The innermost frame has the highest address.
        near.sort_unstable();
        let mut replaced = None;
        for address in near.into_iter().rev() {
            let Some((executes, caller)) = self.words.lookup.frame(address) else { continue };
            let Some(index) = frames.iter().position(|frame| frame.address == caller) else { continue };
            if executes == code {
                return Some(index);
            }
            replaced = replaced.or(Some(index));
        }
        replaced
    }

    /// Whether a word of this part of the stack is such, or a register if it is the innermost part.
    fn any(&mut self, stack: Range<u64>, mut is_it: impl FnMut(u64) -> bool) -> bool {
        let registers = self.words.registers;
        if stack.start == registers.stack_pointer()
            && (0..COUNT as u8).filter_map(|register| registers.get(register)).any(&mut is_it)
        {
            return true;
        }
        let Some(mut address) = stack.start.checked_next_multiple_of(8) else { return false };
        while address < stack.end && self.left > 0 {
            self.left -= 1;
            let Some(value) = self.words.memory.peek_u64(address) else { return false };
            if is_it(value) {
                return true;
            }
            address = address.saturating_add(8);
        }
        false
    }
}
