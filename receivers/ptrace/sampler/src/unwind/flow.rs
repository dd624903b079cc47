//! Finds the stack frame of a function without call frame information by its instructions.
//!
//! If the start of a function is known, its instructions are followed from there. For each instruction this gives the
//! distance from the stack pointer to the return address, and the places of saved registers: the same as call frame
//! information. All paths are followed, those with few calls first, since the code after a call that does not return
//! belongs to another function. If the start is unknown, the paths from the instruction to the returns of the function
//! give the same information.

use std::collections::{BTreeSet, VecDeque};

use foldhash::fast::RandomState;
use hashbrown::HashSet;

use super::instruction::{Effect, RBP, RSP, decode};
use super::registers::{FRAME_POINTER, STACK_POINTER};
use super::row::UnwindRow;
use super::simulation::{CodeBlocks, Simulation, ValueOrigin};
use crate::address_space::AddressSpace;

/// The maximum number of paths that wait to be followed.
const MAX_WAYS: usize = 256;
/// How many different results are kept for one query.
const MAX_ANSWERS: usize = 4;
/// How many returns are examined for one query.
const MAX_RETURNS: usize = 8;

/// The registers that functions preserve, by their numbers in instructions and in DWARF (System V ABI for x86-64,
/// figures 3.4 and 3.36).
const PRESERVED: [(u8, u8); 6] = [(3, 3), (RBP, FRAME_POINTER), (12, 12), (13, 13), (14, 14), (15, 15)];

/// The simulated registers and stack at an instruction.
type FlowState = Simulation<ValueOrigin>;

/// The paths that are still to be followed.
struct OpenPaths {
    open: VecDeque<(u64, FlowState)>,
    seen: HashSet<u64, RandomState>,
    /// The state at a jump through a table of addresses.
    table: Option<FlowState>,
    /// Paths beyond the goal. They are followed last: another function may begin after a call that does not return.
    far: VecDeque<(u64, FlowState)>,
    /// Tail calls: jumps to other functions, which use the same frame.
    tails: VecDeque<(u64, FlowState)>,
    /// Addresses after instructions that never continue at the next one.
    ends: BTreeSet<u64>,
    /// The instruction for which the state is requested, if there is one.
    goal: Option<u64>,
}

impl OpenPaths {
    fn new(start: u64, goal: Option<u64>) -> Self {
        let open = VecDeque::from([(start, FlowState::at_start(false))]);
        Self {
            open,
            seen: HashSet::default(),
            far: VecDeque::new(),
            table: None,
            tails: VecDeque::new(),
            ends: BTreeSet::new(),
            goal,
        }
    }

    fn next(&mut self) -> Option<(u64, FlowState)> {
        let near = self.open.pop_front().or_else(|| self.next_by_table());
        near.or_else(|| self.far.pop_front()).or_else(|| self.tails.pop_front())
    }

    /// A possible target of a jump through a table: the next code before the goal that no other path has reached.
    fn next_by_table(&mut self) -> Option<(u64, FlowState)> {
        let (state, goal) = (self.table.as_ref()?, self.goal?);
        loop {
            let place = self.ends.pop_first().filter(|place| *place <= goal)?;
            let is_tail = self.tails.iter().any(|(target, _)| *target == place);
            if !is_tail && !self.seen.contains(&place) {
                return Some((place, state.clone()));
            }
        }
    }

    fn is_far(&self, place: u64) -> bool {
        self.goal.is_some_and(|goal| place > goal)
    }

    fn end(&mut self, place: u64) {
        if self.ends.len() < MAX_WAYS && self.goal.is_some() {
            self.ends.insert(place);
        }
    }

    fn first(&mut self, place: u64, state: FlowState) {
        if self.is_far(place) {
            self.last(place, state);
        } else if self.open.len() < MAX_WAYS {
            self.open.push_front((place, state));
        }
    }

    fn last(&mut self, place: u64, state: FlowState) {
        let ways = if self.is_far(place) { &mut self.far } else { &mut self.open };
        if ways.len() < MAX_WAYS {
            ways.push_back((place, state));
        }
    }
}

/// Follows all paths from `start`, and calls `found` with each instruction and its state, until it returns that the
/// search can end. With a goal, everything between `start` and the goal is assumed to be one function. Returns the
/// number of instructions followed, at most `most`.
fn follow(
    space: &AddressSpace,
    start: u64,
    goal: Option<u64>,
    most: u32,
    mut found: impl FnMut(u64, Effect, &FlowState) -> bool,
) -> u32 {
    let mut code = CodeBlocks::new(space, u32::MAX);
    let mut ways = OpenPaths::new(start, goal);
    let mut followed = 0;
    while let Some((mut place, mut state)) = ways.next() {
        while ways.seen.insert(place) {
            if followed == most {
                return followed;
            }
            followed += 1;
            let Some(instruction) = decode(code.at(place)) else { break };
            if found(place, instruction.effect, &state) {
                return followed;
            }
            let next = place.wrapping_add(instruction.length as u64);
            match instruction.effect {
                Effect::Jump(distance) if state.has_own(RSP) => {
                    ways.end(next);
                    ways.tails.push_back((next.wrapping_add_signed(i64::from(distance)), state));
                    break;
                }
                Effect::Jump(distance) => {
                    ways.end(next);
                    place = next.wrapping_add_signed(i64::from(distance));
                }
                Effect::Branch(distance) => {
                    ways.first(next.wrapping_add_signed(i64::from(distance)), state.clone());
                    place = next;
                }
                Effect::Call => {
                    // The path after a call is followed after all others.
                    state.step(Effect::Call, ValueOrigin::word);
                    ways.last(next, state);
                    break;
                }
                Effect::JumpThrough(_) => {
                    ways.end(next);
                    ways.table.get_or_insert(state);
                    break;
                }
                Effect::Return | Effect::End => {
                    ways.end(next);
                    break;
                }
                effect => {
                    state.step(effect, ValueOrigin::word);
                    place = next;
                }
            }
        }
    }
    followed
}

/// The rules at `goal`, an instruction of the function that starts at `function`; `None` if no path leads there, or
/// its state is unknown. Also returns the number of instructions followed, at most `most`.
pub(super) fn rules(space: &AddressSpace, function: u64, goal: u64, most: u32) -> (Option<UnwindRow>, u32) {
    let mut rules = None;
    let followed = follow(space, function, Some(goal), most, |place, _, state| {
        if place == goal {
            rules = row(state);
        }
        place == goal
    });
    (rules, followed)
}

/// The rules of a state, if the path started at the function's first instruction.
fn row(state: &FlowState) -> Option<UnwindRow> {
    let within = |spot: Option<ValueOrigin>| spot.and_then(|spot| spot.distance_from(RSP));
    let (register, distance) = match (within(state.get(RSP)), within(state.get(RBP))) {
        (Some(stack), _) => (STACK_POINTER, stack),
        (None, Some(frame)) => (FRAME_POINTER, frame),
        (None, None) => return None,
    };
    let saved = PRESERVED.iter().filter(|(register, _)| !state.has_own(*register)).filter_map(|(register, number)| {
        let at = within(state.saved(*register)).filter(|at| *at < 0)?;
        Some((*number, at - 8))
    });
    UnwindRow::computed(register, 8 - distance, saved)
}

/// The first function of a program: the program's start code passes its address to the C library by `mov $main, %rdi`
/// or `lea main(%rip), %rdi`.
pub(super) fn main_function(space: &AddressSpace, entry: u64) -> Option<u64> {
    let mut code = [0; 64];
    let count = space.read_code(entry, &mut code).min(code.len());
    let mut at = 0;
    while let Some(instruction) = decode(&code[at..count]) {
        let word = code.get(at + 3..at + 7).and_then(|word| Some(i32::from_le_bytes(*word.first_chunk()?)));
        match code.get(at..at + 3) {
            Some(b"\x48\xc7\xc7") => return word.map(|word| i64::from(word).cast_unsigned()),
            Some(b"\x48\x8d\x3d") => {
                return word.map(|word| (entry + at as u64 + 7).wrapping_add_signed(i64::from(word)));
            }
            _ => {}
        }
        at += instruction.length;
    }
    None
}

/// The rules at an instruction, derived from the paths from it to a return, those with few calls first: all different
/// results, at most [`MAX_ANSWERS`]. If the function returns at all, one of them is right; the others come from code
/// after calls that do not return.
pub(super) fn rules_to_return(space: &AddressSpace, start: u64, most: u32) -> (Vec<UnwindRow>, u32) {
    let mut answers: Vec<(ValueOrigin, UnwindRow)> = Vec::new();
    let mut returns = 0;
    let followed = follow(space, start, None, most, |_, effect, state| {
        if effect == Effect::Return {
            returns += 1;
            if let Some(end) = state.get(RSP)
                && !answers.iter().any(|(other, _)| *other == end)
                && let Some(row) = returned(end, state)
            {
                answers.push((end, row));
            }
        }
        answers.len() == MAX_ANSWERS || returns == MAX_RETURNS
    });
    (answers.into_iter().map(|(_, row)| row).collect(), followed)
}

/// The rules that a return implies: the stack pointer at the return, and the places from which registers were restored.
fn returned(end: ValueOrigin, state: &FlowState) -> Option<UnwindRow> {
    let (register, distance) = match (end.distance_from(RSP), end.distance_from(RBP)) {
        (Some(distance), _) => (STACK_POINTER, distance),
        (None, Some(distance)) => (FRAME_POINTER, distance),
        (None, None) => return None,
    };
    let saved = PRESERVED.iter().filter_map(|(register, number)| {
        let at = state.get(*register)?.address_of_word()?.distance_from(end.register)?;
        (end.register == RBP || at >= 0).then_some((*number, at - distance - 8))
    });
    UnwindRow::computed(register, distance + 8, saved)
}

#[cfg(test)]
mod tests;
