//! Where the time goes: which functions ran, and where threads waited.
//!
//! Running and waiting are separate. A sleeping thread is found asleep in every sample, so in a single list a handful
//! of idle threads would come before the one function that keeps a CPU busy.

mod functions;
mod side;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use profbridge_model::{Profiles, Sample, StackId};
use profbridge_wire::folded::choice::nanoseconds;

pub(crate) use functions::{Function, Functions, printable};
pub(crate) use side::Side;

/// The time of all added samples, by function.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// All functions so far.
    pub(crate) functions: Functions,
    /// The running time of threads.
    pub(crate) running: Side,
    /// The blocked time of threads.
    pub(crate) waiting: Side,
}

impl Shares {
    /// Adds the running or the waiting part of a batch.
    pub(crate) fn add(&mut self, batch: &Profiles, waiting: bool) {
        self.add_to(batch, waiting, None);
    }

    /// The same, but also adds the time to `part`. Returns the time in nanoseconds.
    pub(crate) fn add_to(&mut self, batch: &Profiles, waiting: bool, mut part: Option<&mut Side>) -> u64 {
        let side = if waiting { &mut self.waiting } else { &mut self.running };
        let (before, lines) = (side.nano(), self.functions.intern(batch));
        let mut stacks: HashMap<Option<StackId>, (u64, u64)> = HashMap::new();
        for (sample, nanoseconds) in times(batch) {
            let entry = stacks.entry(sample.stack).or_default();
            entry.0 = entry.0.saturating_add(nanoseconds);
            entry.1 += sample.observations();
        }
        for (stack, (nanoseconds, observations)) in stacks {
            let mut locations = batch.dictionary().stack(stack).flatten().map(|location| lines.of(location));
            let leaf = locations.next().unwrap_or_default();
            let callers = locations.flatten().copied();
            if let Some(part) = part.as_deref_mut() {
                part.add(&self.functions, leaf, callers.clone(), nanoseconds, observations);
            }
            side.add(&self.functions, leaf, callers, nanoseconds, observations);
        }
        side.nano() - before
    }

    /// The time of stacks with a frame of this name, in nanoseconds.
    pub(crate) fn nano_with(&self, side: &Side, name: &str) -> u64 {
        let costs = side.by_own().into_iter().filter(|cost| &*self.functions.get(cost.function).name == name);
        costs.map(|cost| cost.total_nano).sum()
    }
}

/// The samples of a batch whose values are durations, in nanoseconds.
pub(crate) fn times(batch: &Profiles) -> impl Iterator<Item = (Sample<'_>, u64)> {
    let timed = batch.profiles().filter_map(|profile| Some((profile, nanoseconds(batch, profile)?)));
    timed.flat_map(|(profile, scale)| {
        batch.samples(profile).map(move |sample| {
            let sum = sample.values().fold(0u64, |sum, value| sum.saturating_add(value.max(0).unsigned_abs()));
            let value = if sample.values_bytes().is_empty() { sample.observations() } else { sum };
            (sample, value.saturating_mul(scale))
        })
    })
}
