//! Puts frames in place for interpreters whose evaluation function executes functions that call each other in one
//! native call, without an address on the native stack that tells which.
//!
//! Such an evaluation function may keep its frame and its instruction in two registers that calls leave as they were
//! (PHP, built with GCC). Unwinding tells what these were in each native call of it: the frame's address tells which
//! frames belong to the call, and the instruction which function it executed at the moment of a sample, however late
//! the frames are read. Calls of which the registers are not known are paired in their order.
//!
//! Functions of the interpreter that are native have frames of their own, and stand where their machine code is called.

use std::ops::Range;

use super::proof::Words;
use super::{Merged, Stack};
use crate::message::Location;
use crate::runtime::{Captured, Resolved};
use crate::unwind::Frame;

/// The most words of one call's part of the stack that are looked at; the evaluation function has about twenty.
const MAX_WORDS: usize = 64;

/// Where an interpreter has what it executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The evaluation function.
    pub evaluation: Range<u64>,
    /// The registers in which it keeps the address of its frame and of its instruction, where it does.
    pub registers: Option<(u8, u8)>,
}

/// What a native stack and frames are, to be put together.
pub struct Pieces<'a> {
    /// The native stack.
    pub stack: Stack<'a>,
    /// The frames. A segment ends where a native call of the evaluation function, or of a native function, began.
    pub captured: &'a Captured,
    /// What they are. The code of native functions is one address, their first.
    pub resolved: &'a [Resolved],
    /// Where the interpreter has what it executes.
    pub held: &'a Held,
}

/// Frames that belong together.
#[derive(Debug, Clone)]
struct Item {
    frames: Range<usize>,
    /// Where a native function begins.
    native: Option<u64>,
}

/// Replaces `locations` by the native frames with the interpreter's in their places. `start` tells where the native
/// function begins that has an address. With `words`, the thread ran on before the frames were read, and what its
/// registers do not prove is left out.
pub fn merge_held(
    pieces: &Pieces<'_>,
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

/// Where frames belong.
#[derive(Debug, Default)]
struct Placed {
    /// Instead of these native frames.
    instead: Vec<(usize, Vec<Location>)>,
    /// Outside of the native stack.
    beyond: Vec<Location>,
}

/// Splits the frames into native calls of the evaluation function and of native functions.
fn items(pieces: &Pieces<'_>) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut start = 0;
    for segment in &pieces.captured.segments {
        let mut begins = true;
        for index in start..segment.end.min(pieces.resolved.len()) {
            let frame = &pieces.resolved[index];
            if frame.location.is_none() {
                // The interpreter's own.
                begins = true;
                continue;
            }
            let length = frame.code.end.wrapping_sub(frame.code.start);
            let native = (length == 1).then_some(frame.code.start);
            match items.last_mut() {
                Some(last) if !begins && native.is_none() => last.frames.end = index + 1,
                _ => items.push(Item { frames: index..index + 1, native }),
            }
            begins = native.is_some();
        }
        start = segment.end;
    }
    items
}

/// The native calls of the evaluation function. Functions that are compiled at run time execute within such a call, in
/// whose part of the stack they are without a return address to it, and keep the frame in the same register.
fn natives(pieces: &Pieces<'_>, items: &[Item]) -> Vec<usize> {
    let mut natives: Vec<usize> = pieces.stack.evaluations(&pieces.held.evaluation).collect();
    let compiled = |(index, frame): (usize, &Frame)| {
        let address = pieces.frame_register(index).filter(|_| frame.location.is_generated())?;
        items.iter().any(|item| pieces.has(item, address)).then_some(index)
    };
    natives.extend(pieces.stack.frames.iter().enumerate().filter_map(compiled));
    natives.sort_unstable();
    natives
}

impl Pieces<'_> {
    fn frame_register(&self, native: usize) -> Option<u64> {
        let (register, _) = self.held.registers?;
        self.stack.frames.get(native)?.registers.get(register)
    }

    fn instruction_register(&self, native: usize) -> Option<u64> {
        let (_, register) = self.held.registers?;
        self.stack.frames.get(native)?.registers.get(register)
    }

    /// The address of the frame that one of the native calls executes; `None` where its register may be that of another
    /// call: its caller's where it begins or ends, which only the innermost native frame can, and its callee's where
    /// nothing saved it in between that says so.
    fn frame_of(&self, natives: &[usize], at: usize) -> Option<u64> {
        let native = *natives.get(at)?;
        let frame = self.frame_register(native)?;
        let equals = |other: Option<&usize>| other.is_some_and(|other| self.frame_register(*other) == Some(frame));
        let (callee, caller) = (at.checked_sub(1).and_then(|callee| natives.get(callee)), natives.get(at + 1));
        let is_another = (equals(callee) && callee != Some(&0)) || (native == 0 && equals(caller));
        (!is_another).then_some(frame)
    }

    /// The same with the instruction, whose register may be the callee's by itself.
    fn executed(&self, natives: &[usize], at: usize) -> Option<(u64, u64)> {
        let frame = self.frame_of(natives, at)?;
        let instruction = self.instruction_register(*natives.get(at)?)?;
        let callee = at.checked_sub(1).and_then(|callee| natives.get(callee)).filter(|callee| **callee != 0);
        let is_another = callee.is_some_and(|callee| self.instruction_register(*callee) == Some(instruction));
        (!is_another).then_some((frame, instruction))
    }

    /// What a native call of the evaluation function saved of its caller's registers in its own part of the stack:
    /// both, beside each other, or only the instruction, where a function in between used the other one and saved it
    /// (`frame`). They belong together if the frame executes the function that has the instruction.
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
                let told = at.and_then(|at| self.resolved.get(at)).filter(|told| told.code.contains(&instruction));
                if told.is_some_and(|told| !told.unknown) {
                    return Some((frame, instruction));
                }
            }
            before = Some(word);
        }
        None
    }

    fn has(&self, item: &Item, address: u64) -> bool {
        let frames = self.captured.frames.get(item.frames.clone()).unwrap_or_default();
        frames.iter().any(|frame| frame.address == address)
    }

    fn locations(&self, item: &Item, merged: &mut Merged) -> Vec<Location> {
        let frames = self.resolved.get(item.frames.clone()).unwrap_or_default();
        merged.unknown += frames.iter().filter(|frame| frame.unknown).count() as u32;
        frames.iter().filter_map(|frame| frame.location).collect()
    }

    /// Pairs of a native call and an item that share the address of a frame, in their order.
    fn sharing(&self, addresses: &[Option<u64>], items: &[Item]) -> Vec<(usize, usize)> {
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

/// Places frames that belong to the native stack for sure.
fn standing(
    pieces: &Pieces<'_>,
    natives: &[usize],
    items: &[Item],
    start: &mut dyn FnMut(u64) -> Option<u64>,
    merged: &mut Merged,
) -> Placed {
    let pairs = pair(pieces, natives, items);
    let mut placed = Placed::default();
    let Some(&(_, last)) = pairs.last() else { return placed };
    let mut before = 0;
    let mut from = 0;
    for (at, item) in pairs {
        let native = natives[at];
        let mut here = Vec::new();
        // Calls of the evaluation function that have no partner began later.
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

/// Pairs native calls of the evaluation function with items: those that share a frame's address, and between these,
/// where there are as many of the one as of the other, in their order.
fn pair(pieces: &Pieces<'_>, natives: &[usize], items: &[Item]) -> Vec<(usize, usize)> {
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
            // A call begins or ends at the inner end.
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
    // Where there are fewer native calls the stack ends early, or the others are on another one (a fiber's).
    pairs.extend((native + skipped..natives.len()).zip(others));
    pairs
}

/// Places what the registers of the native calls prove.
fn proven(
    pieces: &Pieces<'_>,
    natives: &[usize],
    items: &[Item],
    start: &mut dyn FnMut(u64) -> Option<u64>,
    mut words: Words<'_>,
    merged: &mut Merged,
) -> Placed {
    let mut placed = Placed::default();
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
        // The frame has the same function by now.
        let same = leaf
            .and_then(|leaf| pieces.resolved.get(leaf))
            .zip(hit.as_ref())
            .and_then(|(told, hit)| (told.code == hit.resolved.code && !told.unknown).then_some(told.location));
        let believed = hit.and_then(|hit| {
            // Of the functions that share instructions it is the one whose frame the call has the address of.
            let location = if hit.shared { same.flatten() } else { hit.resolved.location };
            // Compiled code does not keep the instruction up to date, so the frame has to say the same.
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
        // The native function that it called, if that is one of the interpreter's functions.
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
