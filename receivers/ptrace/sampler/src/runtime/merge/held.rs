//! Replaces native frames for interpreters that store no anchor: one native call of the evaluation function executes
//! several functions that call each other, and stores no stack address in their frames.
//!
//! Such an evaluation function may keep the addresses of the current frame and instruction in two callee-saved
//! registers (PHP, built with GCC). Unwinding recovers these registers for each native call. The frame's address shows
//! which frames belong to the call; the instruction shows which function the call executed at the moment of the sample,
//! even if the frames are read much later. Calls with unknown registers are paired with frames in their order.
//!
//! Native functions of the interpreter have frames of their own, which replace the native frame of their machine code.

use std::ops::Range;

use super::proof::Words;
use super::{Merged, UnwoundStack};
use crate::message::Location;
use crate::runtime::{Captured, Resolved};
use crate::unwind::Frame;

/// The maximum number of words scanned in one call's stack frame; the evaluation function has about twenty.
const MAX_WORDS: usize = 64;

/// In which registers an interpreter keeps its current frame and instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The address range of the evaluation function.
    pub evaluation: Range<u64>,
    /// The registers that hold the addresses of the current frame and of the current instruction, if there are such
    /// registers.
    pub registers: Option<(u8, u8)>,
}

/// A native stack and the interpreter's frames, which are to be merged.
pub struct MergeInput<'a> {
    /// The native stack.
    pub stack: UnwoundStack<'a>,
    /// The frames. A segment ends where a native call of the evaluation function, or of a native function, began.
    pub captured: &'a Captured,
    /// The resolved frames. The code range of a native function starts at the function's address.
    pub resolved: &'a [Resolved],
    /// In which registers the interpreter keeps its current frame and instruction.
    pub held: &'a Held,
}

/// Frames that belong to the same native call.
#[derive(Debug, Clone)]
struct CallItem {
    frames: Range<usize>,
    /// The start address of the code, if this is a native function.
    native: Option<u64>,
}

/// Replaces `locations` by the native frames, some of which are replaced by the interpreter's frames. `start` returns
/// where the native function that contains an address starts. With `words`, the thread has run since the sample, and
/// frames that the registers do not prove are left out.
pub fn merge_by_registers(
    pieces: &MergeInput<'_>,
    start: &mut dyn FnMut(u64) -> Option<u64>,
    words: Option<Words<'_>>,
    locations: &mut Vec<Location>,
) -> Merged {
    let items = items(pieces);
    let natives = natives(pieces, &items);
    let mut merged = Merged::default();
    let mut placed = match words {
        Some(words) => proven(pieces, &natives, &items, start, words, &mut merged),
        None => standing(pieces, &natives, &items, start, &mut merged),
    };
    placed.instead.sort_by_key(|(index, _)| *index);
    locations.clear();
    let mut instead = placed.instead.into_iter().peekable();
    for index in 0..pieces.stack.frames.len() {
        if instead.peek().is_none_or(|(at, _)| *at != index) {
            locations.extend(pieces.stack.shown(index));
        }
        while let Some((_, others)) = instead.next_if(|(at, _)| *at == index) {
            locations.extend(others);
        }
    }
    locations.extend(placed.beyond);
    merged
}

/// Where frames are inserted into the native stack.
#[derive(Debug, Default)]
struct PlacedFrames {
    /// Locations that replace native frames, with the index of the native frame.
    instead: Vec<(usize, Vec<Location>)>,
    /// Frames of a part of the native stack that is not known.
    beyond: Vec<Location>,
}

/// Groups the frames by native calls of the evaluation function and of native functions.
fn items(pieces: &MergeInput<'_>) -> Vec<CallItem> {
    let mut items: Vec<CallItem> = Vec::new();
    let mut start = 0;
    for segment in &pieces.captured.segments {
        let mut begins = true;
        for index in start..segment.end.min(pieces.resolved.len()) {
            let frame = &pieces.resolved[index];
            if frame.location.is_none() {
                // This is an internal frame of the interpreter.
                begins = true;
                continue;
            }
            let length = frame.code.end.wrapping_sub(frame.code.start);
            let native = (length == 1).then_some(frame.code.start);
            match items.last_mut() {
                Some(last) if !begins && native.is_none() => last.frames.end = index + 1,
                _ => items.push(CallItem { frames: index..index + 1, native }),
            }
            begins = native.is_some();
        }
        start = segment.end;
    }
    items
}

/// Finds the native calls of the evaluation function. Functions compiled at run time execute within such a call: they
/// use the call's stack frame without a return address into the call, and keep the current frame in the same register.
fn natives(pieces: &MergeInput<'_>, items: &[CallItem]) -> Vec<usize> {
    let mut natives: Vec<usize> = pieces.stack.evaluations(&pieces.held.evaluation).collect();
    let compiled = |(index, frame): (usize, &Frame)| {
        let address = pieces.frame_register(index).filter(|_| frame.location.is_generated())?;
        items.iter().any(|item| pieces.has(item, address)).then_some(index)
    };
    natives.extend(pieces.stack.frames.iter().enumerate().filter_map(compiled));
    natives.sort_unstable();
    natives
}

impl MergeInput<'_> {
    fn frame_register(&self, native: usize) -> Option<u64> {
        let (register, _) = self.held.registers?;
        self.stack.frames.get(native)?.registers.get(register)
    }

    fn instruction_register(&self, native: usize) -> Option<u64> {
        let (_, register) = self.held.registers?;
        self.stack.frames.get(native)?.registers.get(register)
    }

    /// The address of the frame that a native call executes. `None` if the register may belong to another call: to the
    /// caller, while the call begins or ends (possible only in the innermost native frame), or to the callee, if
    /// nothing shows that the register was saved in between.
    fn frame_of(&self, natives: &[usize], at: usize) -> Option<u64> {
        let native = *natives.get(at)?;
        let frame = self.frame_register(native)?;
        let equals = |other: Option<&usize>| other.is_some_and(|other| self.frame_register(*other) == Some(frame));
        let (callee, caller) = (at.checked_sub(1).and_then(|callee| natives.get(callee)), natives.get(at + 1));
        let is_another = (equals(callee) && callee != Some(&0)) || (native == 0 && equals(caller));
        (!is_another).then_some(frame)
    }

    /// The frame and the instruction of a native call. `None` also if only the instruction register may belong to the
    /// callee.
    fn executed(&self, natives: &[usize], at: usize) -> Option<(u64, u64)> {
        let frame = self.frame_of(natives, at)?;
        let instruction = self.instruction_register(*natives.get(at)?)?;
        let callee = at.checked_sub(1).and_then(|callee| natives.get(callee)).filter(|callee| **callee != 0);
        let is_another = callee.is_some_and(|callee| self.instruction_register(*callee) == Some(instruction));
        (!is_another).then_some((frame, instruction))
    }

    /// Finds the caller's registers that a native call of the evaluation function saved in its stack frame: both in
    /// adjacent words, or only the instruction, if a function in between saved the frame register, whose value is
    /// `frame`. The two values are accepted if the frame executes the function that contains the instruction.
    fn saved(&self, native: usize, frame: Option<u64>, words: &mut Words<'_>) -> Option<(u64, u64)> {
        let (start, end) = (self.stack.frames.get(native)?.sp, self.stack.frames.get(native + 1)?.sp);
        let mut before = None;
        for address in (start.checked_next_multiple_of(8)?..end).step_by(8).take(MAX_WORDS) {
            let word = words.memory.peek_u64(address)?;
            let pairs = match frame {
                Some(frame) => [Some((frame, word)), None],
                None => [before.map(|before| (word, before)), before.map(|before| (before, word))],
            };
            for (frame, instruction) in pairs.into_iter().flatten() {
                let at = self.captured.frames.iter().position(|one| one.address == frame);
                let function = at.and_then(|at| self.resolved.get(at));
                let function = function.filter(|function| function.code.contains(&instruction));
                if function.is_some_and(|function| !function.unknown) {
                    return Some((frame, instruction));
                }
            }
            before = Some(word);
        }
        None
    }

    fn has(&self, item: &CallItem, address: u64) -> bool {
        let frames = self.captured.frames.get(item.frames.clone()).unwrap_or_default();
        frames.iter().any(|frame| frame.address == address)
    }

    fn locations(&self, item: &CallItem, merged: &mut Merged) -> Vec<Location> {
        let frames = self.resolved.get(item.frames.clone()).unwrap_or_default();
        merged.unknown += frames.iter().filter(|frame| frame.unknown).count() as u32;
        frames.iter().filter_map(|frame| frame.location).collect()
    }

    /// Pairs native calls with items that contain a frame at the call's frame address, in their order.
    fn sharing(&self, addresses: &[Option<u64>], items: &[CallItem]) -> Vec<(usize, usize)> {
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for (at, address) in addresses.iter().enumerate() {
            let from = pairs.last().map_or(0, |(_, item)| item + 1);
            let Some(address) = *address else { continue };
            let item = items.iter().enumerate().skip(from).find(|(_, item)| self.has(item, address));
            if let Some((item, _)) = item {
                pairs.push((at, item));
            }
        }
        pairs
    }
}

/// Places frames of a thread that has not run since: they certainly belong to the native stack.
fn standing(
    pieces: &MergeInput<'_>,
    natives: &[usize],
    items: &[CallItem],
    start: &mut dyn FnMut(u64) -> Option<u64>,
    merged: &mut Merged,
) -> PlacedFrames {
    let pairs = pair(pieces, natives, items);
    let mut placed = PlacedFrames::default();
    let Some(&(_, last)) = pairs.last() else { return placed };
    let mut before = 0;
    let mut from = 0;
    for (at, item) in pairs {
        let native = natives[at];
        let mut here = Vec::new();
        // Calls of the evaluation function without a pair began after the sample.
        for inner in items[before..item].iter().filter(|inner| inner.native.is_some()) {
            let found = (from..native).find(|index| start(pieces.stack.frames[*index].lookup(*index)) == inner.native);
            match found {
                Some(index) => {
                    placed.instead.push((index, pieces.locations(inner, merged)));
                    from = index + 1;
                }
                None => here.extend(pieces.locations(inner, merged)),
            }
        }
        here.extend(pieces.locations(&items[item], merged));
        merged.named += 1;
        placed.instead.push((native, here));
        (before, from) = (item + 1, native + 1);
    }
    for outer in items.get(last + 1..).unwrap_or_default() {
        placed.beyond.extend(pieces.locations(outer, merged));
    }
    placed
}

/// Pairs native calls of the evaluation function with items. Calls and items with the same frame address are paired
/// first; between these pairs, the others are paired in their order, if their numbers are equal.
fn pair(pieces: &MergeInput<'_>, natives: &[usize], items: &[CallItem]) -> Vec<(usize, usize)> {
    let addresses: Vec<Option<u64>> = (0..natives.len()).map(|at| pieces.frame_of(natives, at)).collect();
    let shared = pieces.sharing(&addresses, items);
    let calls = |range: Range<usize>| -> Vec<usize> { range.filter(|item| items[*item].native.is_none()).collect() };
    let mut pairs = Vec::with_capacity(natives.len());
    let (mut native, mut item) = (0, 0);
    for (index, &(at, of)) in shared.iter().enumerate() {
        let (between, others) = (at.saturating_sub(native), calls(item..of));
        if between == others.len() {
            pairs.extend((native..at).zip(others));
        } else if index == 0 {
            // The innermost call may be about to begin or end.
            let skipped = others.len().saturating_sub(between);
            let first = at - between.min(others.len());
            pairs.extend((first..at).zip(others.into_iter().skip(skipped)));
        }
        pairs.push((at, of));
        (native, item) = (at + 1, of + 1);
    }
    let others = calls(item..items.len());
    let between = natives.len() - native;
    let is_beginning = shared.is_empty() && pieces.stack.complete && !pieces.captured.cut && between > others.len();
    let skipped = if is_beginning { between - others.len() } else { 0 };
    // If there are fewer native calls, the stack is truncated or the others are on another stack (a fiber's).
    pairs.extend((native + skipped..natives.len()).zip(others));
    pairs
}

/// Places frames of a thread that has run since: only those that the registers of native calls prove.
fn proven(
    pieces: &MergeInput<'_>,
    natives: &[usize],
    items: &[CallItem],
    start: &mut dyn FnMut(u64) -> Option<u64>,
    mut words: Words<'_>,
    merged: &mut Merged,
) -> PlacedFrames {
    let mut placed = PlacedFrames::default();
    let executed: Vec<Option<(u64, u64)>> = (0..natives.len())
        .map(|at| {
            let callee = at.checked_sub(1).and_then(|callee| natives.get(callee));
            pieces.executed(natives, at).or_else(|| pieces.saved(*callee?, pieces.frame_of(natives, at), &mut words))
        })
        .collect();
    let addresses: Vec<Option<u64>> = executed.iter().map(|one| one.map(|(address, _)| address)).collect();
    let shared = pieces.sharing(&addresses, items);
    let lookup = words.lookup;
    for (at, &native) in natives.iter().enumerate() {
        let address = addresses[at];
        let hit = executed[at].and_then(|(_, instruction)| lookup.executed(instruction));
        let item = shared.iter().find(|(one, _)| *one == at).map(|(_, item)| &items[*item]);
        let leaf = item.zip(address).and_then(|(item, address)| {
            item.frames
                .clone()
                .find(|index| pieces.captured.frames.get(*index).is_some_and(|one| one.address == address))
        });
        // The function's location, if the frame still executes the function that the instruction belongs to.
        let same = leaf
            .and_then(|leaf| pieces.resolved.get(leaf))
            .zip(hit.as_ref())
            .and_then(|(one, hit)| (one.code == hit.resolved.code && !one.unknown).then_some(one.location));
        let believed = hit.and_then(|hit| {
            // Among functions that share instructions, the call executes the one whose frame address it holds.
            let location = if hit.shared { same.flatten() } else { hit.resolved.location };
            // Compiled code does not update the instruction register, so it is accepted only if the frame executes the
            // same function.
            let is_compiled = pieces.stack.frames.get(native).is_some_and(|frame| frame.location.is_generated());
            location.filter(|_| !is_compiled || same.is_some()).map(|location| match location {
                Location::Interpreted { function, .. } if is_compiled => Location::Interpreted { function, line: 0 },
                location => location,
            })
        });
        let Some(believed) = believed else {
            merged.unproven += 1;
            continue;
        };
        merged.named += 1;
        merged.missing_callers += 1;
        placed.instead.push((native, vec![believed, Location::CALLERS_NOT_KNOWN]));
        // The native function that this call has called, if it is one of the interpreter's functions.
        let callee = native.checked_sub(1).filter(|callee| !natives.contains(callee));
        let native_function = callee.and_then(|callee| {
            let frame = pieces.stack.frames.get(callee)?;
            let begins = start(frame.lookup(callee))?;
            let hit = lookup.executed(begins).filter(|hit| hit.resolved.code == (begins..begins + 1) && !hit.shared)?;
            Some((callee, vec![hit.resolved.location?]))
        });
        placed.instead.extend(native_function);
    }
    placed
}

#[cfg(test)]
mod tests;
