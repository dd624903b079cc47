//! The time of either running or waiting threads.

use std::collections::HashMap;

use super::Functions;

/// At most this many places of waiting are distinguished.
const MOST_HOTSPOTS: usize = 100_000;

/// The time of one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    /// The function, by its number.
    pub(crate) function: u32,
    /// In the function itself, in nanoseconds.
    pub(crate) own_nano: u64,
    /// In it and its callees, in nanoseconds. Recursion counts once.
    pub(crate) total_nano: u64,
}

/// A place where time was spent: the innermost function, and the program's function that led to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hotspot {
    /// The innermost function.
    pub(crate) leaf: u32,
    /// If the innermost function is not the program's, the first caller that is; without any (an interpreter's
    /// library), the first caller from another library than the innermost function's.
    pub(crate) within: Option<u32>,
    /// The time, in nanoseconds.
    pub(crate) nano: u64,
}

/// The time of samples, by function.
#[derive(Debug, Default)]
pub(crate) struct Side {
    costs: Vec<Cost>,
    /// The stack in which a function was last counted, so that recursion counts once.
    last: Vec<u64>,
    hotspots: HashMap<(u32, Option<u32>), u64>,
    stacks: u64,
    nano: u64,
    observations: u64,
}

impl Side {
    /// Adds a stack and its time: the functions at its leaf and their callers, innermost first.
    ///
    /// Of several functions at the leaf all but the last were inlined. Nobody looks for time in inlined library
    /// functions (`u64::wrapping_add`), so the time counts for the innermost function of the program, if there is one.
    pub(super) fn add(
        &mut self,
        functions: &Functions,
        leaf: &[u32],
        callers: impl Iterator<Item = u32>,
        nano: u64,
        observations: u64,
    ) {
        self.nano = self.nano.saturating_add(nano);
        self.observations += observations;
        self.stacks += 1;
        let inlined_into = leaf.iter().position(|&number| functions.get(number).own).unwrap_or(0);
        let inlined = &leaf[..inlined_into];
        let mut leaf_first = leaf[inlined_into..].iter().copied().chain(callers).peekable();
        let leaf = leaf_first.peek().copied();
        let mut within = None;
        let mut library = None;
        for number in inlined.iter().copied().chain(leaf_first) {
            let at = number as usize;
            if self.costs.len() <= at {
                let from = self.costs.len() as u32;
                self.costs.extend((from..=number).map(|function| Cost { function, ..Cost::default() }));
                self.last.resize(at + 1, 0);
            }
            let cost = &mut self.costs[at];
            if self.last[at] != self.stacks {
                self.last[at] = self.stacks;
                cost.total_nano = cost.total_nano.saturating_add(nano);
            }
            let function = functions.get(number);
            if within.is_none() && function.own && !function.is_unknown() {
                within = Some(number);
            }
            if library.is_none() && leaf.is_some_and(|leaf| function.explains(functions.get(leaf))) {
                library = Some(number);
            }
        }
        let Some(leaf) = leaf else { return };
        let own = &mut self.costs[leaf as usize].own_nano;
        *own = own.saturating_add(nano);
        let place = (leaf, within.or(library).filter(|&within| within != leaf));
        if let Some(known) = self.hotspots.get_mut(&place) {
            *known = known.saturating_add(nano);
        } else if self.hotspots.len() < MOST_HOTSPOTS {
            self.hotspots.insert(place, nano);
        }
    }

    /// The time of all stacks, in nanoseconds.
    pub(crate) fn nano(&self) -> u64 {
        self.nano
    }

    /// The number of observations.
    pub(crate) fn observations(&self) -> u64 {
        self.observations
    }

    /// The functions with any time, by own time, then total time (both descending), then number.
    pub(crate) fn by_own(&self) -> Vec<Cost> {
        let mut costs: Vec<_> = self.costs.iter().filter(|cost| cost.total_nano > 0).copied().collect();
        costs.sort_by_key(|cost| (std::cmp::Reverse((cost.own_nano, cost.total_nano)), cost.function));
        costs
    }

    /// The places, largest time first.
    pub(crate) fn hotspots(&self) -> Vec<Hotspot> {
        let hotspots = self.hotspots.iter().filter(|&(_, &nano)| nano > 0);
        let mut hotspots: Vec<_> = hotspots.map(|(&(leaf, within), &nano)| Hotspot { leaf, within, nano }).collect();
        hotspots.sort_by_key(|place| (std::cmp::Reverse(place.nano), place.leaf, place.within));
        hotspots
    }
}
