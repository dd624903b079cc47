//! Decides which frames are accepted if they were read while their thread was running.
//!
//! A native call of the evaluation function holds the address of the next instruction of the interpreted program in a
//! register or in its stack frame; the machine code of the evaluation function shows where
//! ([`Lookup::next_instructions`]). Unwinding recovers these values for the moment of the sample, so they prove which
//! function the call executed, and that function is named. Other words of the stack frame prove nothing: an earlier
//! function may have left them there. The same holds for words below the stack frame, which functions called earlier
//! left there.
//!
//! Nothing proves the callers that share the native call with that function, since they are read at a later moment. A
//! placeholder ([`Location::CALLERS_NOT_KNOWN`]) is shown instead, and it replaces all functions of a call while one of
//! them is being called or returns.
//!
//! A function may have been freed since, and another one may be at its address. So an address proves a function only if
//! that function was known before the sample.

use std::ops::Range;

use super::{Merged, SegmentPlace, UnwoundStack};
use crate::arch::USER;
use crate::message::Location;
use crate::runtime::{Captured, Executed, RawFrame, Resolved};
use crate::unwind::{COUNT, Frame, StackMemory};

/// The registers that calls preserve, except the stack pointer (System V ABI for x86-64): RBX, RBP, R12 to R15.
const KEPT: [u8; 6] = [3, 6, 12, 13, 14, 15];

/// The size of the return address and the registers that a call saves for its caller, in bytes.
const SAVED: u64 = 64;

/// The maximum number of stack words examined for all calls of a stack, and for one call.
const MAX_WORDS: (usize, usize) = (8192, 1024);

/// Looks up functions in current memory.
pub trait Lookup {
    /// See [`Instance::executed`](crate::runtime::Instance::executed).
    fn executed(&mut self, address: u64) -> Option<Executed>;

    /// See [`Instance::executed_among`](crate::runtime::Instance::executed_among).
    fn executed_among(&mut self, _address: u64, _words: &[u64]) -> Option<Executed> {
        None
    }

    /// See [`Instance::is_fresh`](crate::runtime::Instance::is_fresh).
    fn is_fresh(&self, _code: u64) -> bool {
        false
    }

    /// See [`Instance::has_calls_of_one`](crate::runtime::Instance::has_calls_of_one).
    fn has_calls_of_one(&self) -> bool;

    /// See [`Instance::registers`](crate::runtime::Instance::registers).
    fn registers(&self) -> Option<(u8, u8)> {
        None
    }

    /// See [`Instance::find_by_frames`](crate::runtime::Instance::find_by_frames).
    fn find_by_frames(&mut self, address: u64, words: &[u64]) -> Option<Executed>;

    /// The addresses from which a native call will read the next instruction of the interpreted program, as far as the
    /// call's registers and stack frame (read by `read`) show them.
    fn next_instructions(&mut self, frame: &Frame, read: &mut dyn FnMut(u64) -> Option<u64>) -> Vec<NextInstruction>;
}

/// Where a native call will find the next instruction of the interpreted program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextInstruction {
    /// The next instruction is at this address.
    At(u64),
    /// The frame at this address contains the address of the next instruction.
    Of(u64),
}

/// The stack of a thread at the moment of its sample.
pub struct Words<'a> {
    /// The stack memory at the moment of the sample.
    pub memory: &'a mut dyn StackMemory,
    /// Looks up functions.
    pub lookup: &'a mut dyn Lookup,
}

/// Which locations are accepted for one native call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FrameVerdict {
    /// All frames that were read.
    Whole,
    /// These locations instead.
    Other(Vec<Location>),
    /// No frames.
    Nothing,
}

/// Which locations are accepted for all native calls.
#[derive(Debug)]
pub(super) struct FrameVerdicts {
    /// The decision for each segment of captured frames.
    pub(super) segments: Vec<FrameVerdict>,
    /// Native frames of the evaluation function for which no frames were read, and the functions that they executed.
    pub(super) besides: Vec<(usize, Vec<Location>)>,
}

/// Decides which frames are accepted: all of them if there are no `words`.
pub(super) fn accept_frames(
    stack: UnwoundStack<'_>,
    captured: &Captured,
    resolved: &[Resolved],
    places: &[SegmentPlace],
    evaluation: Option<&Range<u64>>,
    words: Option<Words<'_>>,
    merged: &mut Merged,
) -> FrameVerdicts {
    let mut beliefs = FrameVerdicts { segments: Vec::with_capacity(captured.segments.len()), besides: Vec::new() };
    let Some(words) = words else {
        beliefs.segments.resize(captured.segments.len(), FrameVerdict::Whole);
        return beliefs;
    };
    let one_each = words.lookup.has_calls_of_one();
    let by_address = captured.in_array;
    let mut search = Search { words, stack, left: MAX_WORDS.0, one_each, by_address };
    let mut start = 0;
    for (segment, place) in captured.segments.iter().zip(places) {
        let range = start..segment.end;
        start = segment.end;
        let (Some(frames), Some(own)) = (captured.frames.get(range.clone()), resolved.get(range)) else { break };
        let SegmentPlace::At(native) = place else {
            // The segment belongs to no known native frame, so its executed function is unknown.
            beliefs.segments.push(FrameVerdict::Nothing);
            continue;
        };
        let call = search.call(*native);
        // Frames that began after the sample may seem to belong to any native function.
        let is_evaluation = evaluation.is_none_or(|evaluation| stack.is_evaluation(*native, evaluation))
            || call.as_ref().is_some_and(|call| call.reads_instructions);
        let belief = call.map_or(FrameVerdict::Nothing, |call| search.segment(&call, frames, own, merged));
        merged.unproven += u32::from(belief == FrameVerdict::Nothing && is_evaluation);
        beliefs.segments.push(belief);
    }
    for native in evaluation.into_iter().flat_map(|evaluation| stack.evaluations(evaluation)) {
        if !places.contains(&SegmentPlace::At(native)) {
            let leaf = search.call(native).and_then(|call| search.executed(&call));
            merged.unproven += u32::from(leaf.is_none());
            if let Some(FrameVerdict::Other(frames)) = leaf.map(|leaf| search.without_callers(Some(leaf), merged)) {
                beliefs.besides.push((native, frames));
            }
        }
    }
    beliefs
}

struct Search<'a, 'b> {
    words: Words<'a>,
    stack: UnwoundStack<'b>,
    left: usize,
    /// Whether each call executes a single function from start to end.
    one_each: bool,
    /// Whether frames are in one array whose innermost address the call holds (Ruby): a frame that was read is
    /// accepted only if the call holds its address.
    by_address: bool,
}

/// A native call of the evaluation function.
struct EvaluationCall {
    /// The function that the call executed.
    executed: Option<Executed>,
    /// If the call is between two functions: the frames that may continue next.
    frames: Vec<u64>,
    /// All words of the call: those in registers, then those in its stack frame.
    words: Vec<u64>,
    /// Whether the native code will read further instructions of the interpreted program.
    reads_instructions: bool,
}

impl Search<'_, '_> {
    /// Decides about the frames that were read for a native call.
    fn segment(
        &mut self,
        call: &EvaluationCall,
        frames: &[RawFrame],
        resolved: &[Resolved],
        merged: &mut Merged,
    ) -> FrameVerdict {
        if let Some(hit) = call.executed.as_ref().filter(|hit| hit.shared) {
            // Among functions that share instructions, the call executes the one whose frame and code addresses it
            // holds.
            let leaf = frames.first().zip(resolved.first()).filter(|(frame, one)| {
                let has = |word: &u64| call.words.contains(word);
                has(&frame.address) && has(&frame.code) && one.code == hit.resolved.code && !one.unknown
            });
            return leaf
                .and_then(|(_, one)| one.location)
                .map_or(FrameVerdict::Nothing, |leaf| self.without_callers(Some(leaf), merged));
        }
        let is_frame = frames.iter().any(|frame| call.frames.contains(&frame.address));
        match self.executed(call) {
            None if is_frame => self.without_callers(None, merged),
            None => FrameVerdict::Nothing,
            leaf => self.without_callers(leaf, merged),
        }
    }

    /// The function that a native call executed, proven by the call alone.
    fn executed(&self, call: &EvaluationCall) -> Option<Location> {
        let hit = call.executed.as_ref().filter(|hit| !hit.shared && !self.words.lookup.is_fresh(hit.code))?;
        hit.resolved.location
    }

    /// The decision if the callers within the same native call are unknown.
    fn without_callers(&self, leaf: Option<Location>, merged: &mut Merged) -> FrameVerdict {
        let callers = (!self.one_each).then_some(Location::CALLERS_NOT_KNOWN);
        merged.missing_callers += u32::from(callers.is_some());
        FrameVerdict::Other(leaf.into_iter().chain(callers).collect())
    }

    /// Collects what the registers and the stack frame of a native call prove.
    fn call(&mut self, native: usize) -> Option<EvaluationCall> {
        let frame = *self.stack.frames.get(native)?;
        let caller = self.stack.frames.get(native + 1)?;
        if self.by_address {
            return Some(self.of_words(&frame, caller));
        }
        let (part, Words { memory, lookup }) = (frame.sp..caller.sp, &mut self.words);
        let mut read = |address: u64| part.contains(&address).then(|| memory.peek_u64(address)).flatten();
        let next = lookup.next_instructions(&frame, &mut read);
        let words = self.all_words(&frame, caller);
        let addresses = next.iter().filter_map(|next| match next {
            NextInstruction::At(address) => Some(*address).filter(|address| USER.contains(address)),
            NextInstruction::Of(_) => None,
        });
        let mut executed = self.only(addresses, &words);
        if executed.as_ref().is_some_and(|hit| hit.shared) {
            let lookup = &mut *self.words.lookup;
            let mut at = next.iter().filter_map(|next| match next {
                NextInstruction::At(address) => lookup.executed_among(*address, &words),
                NextInstruction::Of(_) => None,
            });
            executed = at.next().or(executed);
        }
        if executed.is_none() && self.one_each {
            executed = self.only_function(&frame, caller);
        }
        let frames = next.iter().filter_map(|next| match next {
            NextInstruction::Of(frame) => Some(*frame),
            NextInstruction::At(_) => None,
        });
        let (frames, reads_instructions) = (frames.collect(), !next.is_empty());
        Some(EvaluationCall { executed, frames, words, reads_instructions })
    }

    /// What the words of a call prove. If two registers are known to hold the next instruction and the frame, only
    /// these count, since other registers may hold older values. Otherwise all registers are checked first, and then
    /// the call's stack frame.
    fn of_words(&mut self, frame: &Frame, caller: &Frame) -> EvaluationCall {
        if let Some((instruction, own)) = self.words.lookup.registers() {
            let words: Vec<u64> = frame.registers.get(own).into_iter().collect();
            let instruction = frame.registers.get(instruction).filter(|address| USER.contains(address));
            let executed = self.only(instruction.into_iter(), &words);
            return EvaluationCall { executed, frames: Vec::new(), words, reads_instructions: true };
        }
        let mut words = kept_registers(frame);
        let registers = words.len();
        words.extend(self.stack_words(frame, caller, &kept_registers(caller)).0);
        let mut executed = None;
        for part in [&words[..registers], &words[registers..]] {
            let lookup = &mut *self.words.lookup;
            let known: Vec<u64> =
                part.iter().copied().filter(|word| USER.contains(word) && lookup.executed(*word).is_some()).collect();
            if !known.is_empty() {
                // Several functions here are a contradiction, which words of the other part cannot resolve.
                executed = self.only(known.into_iter(), &[]);
                break;
            }
        }
        EvaluationCall { reads_instructions: executed.is_some(), executed, frames: Vec::new(), words }
    }

    /// The function of a call that executes a single one, found by its callee-saved registers or else by its stack
    /// frame, without the caller's registers saved at the end of that frame.
    fn only_function(&mut self, frame: &Frame, caller: &Frame) -> Option<Executed> {
        let known = |word: &u64| USER.contains(word);
        let by_register = self.only(kept_registers(frame).into_iter().filter(known), &[]);
        by_register.or_else(|| {
            // This search is not limited by the number of words left for all calls.
            let left = std::mem::replace(&mut self.left, usize::MAX);
            let (words, is_whole) = self.stack_words(frame, caller, &kept_registers(caller));
            self.left = left;
            if is_whole { self.only(words.into_iter().filter(known), &[]) } else { None }
        })
    }

    /// The words of a call: its registers, and its stack frame.
    fn all_words(&mut self, frame: &Frame, caller: &Frame) -> Vec<u64> {
        let mut words: Vec<u64> = (0..COUNT as u8).filter_map(|register| frame.registers.get(register)).collect();
        words.extend(self.stack_words(frame, caller, &[]).0);
        words
    }

    /// The words of a call's stack frame, without these registers of the caller that are saved at its end, and whether
    /// all words could be read.
    fn stack_words(&mut self, frame: &Frame, caller: &Frame, saved: &[u64]) -> (Vec<u64>, bool) {
        let mut words = Vec::new();
        let start = frame.sp.checked_next_multiple_of(8).unwrap_or(caller.sp);
        for address in (start..caller.sp).step_by(8).take(MAX_WORDS.1.min(self.left)) {
            self.left -= 1;
            let Some(value) = self.words.memory.peek_u64(address) else { return (words, false) };
            if caller.sp - address > SAVED || !saved.contains(&value) {
                words.push(value);
            }
        }
        (words, true)
    }

    /// The function whose instructions include these addresses; `None` if there are several.
    fn only(&mut self, addresses: impl Iterator<Item = u64>, words: &[u64]) -> Option<Executed> {
        let mut only: Option<Executed> = None;
        for address in addresses {
            let hit = self.words.lookup.executed(address);
            let Some(hit) = hit.or_else(|| self.words.lookup.find_by_frames(address, words)) else { continue };
            if only.as_ref().is_some_and(|known| known.code != hit.code) {
                return None;
            }
            only.get_or_insert(hit);
        }
        only
    }
}

/// The known values of a frame's callee-saved registers.
fn kept_registers(frame: &Frame) -> Vec<u64> {
    KEPT.into_iter().filter_map(|number| frame.registers.get(number)).collect()
}
