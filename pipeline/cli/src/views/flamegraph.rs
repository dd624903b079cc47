//! Flame graphs: stacks one above the other, each function as wide as its time.
//!
//! Running time is what is seen first; waiting time is a picture of its own in the same file, which a button shows. The
//! picture is ours because the crate `inferno` draws one set of stacks in colours by language: it has no second
//! picture, no legend, and times as whole numbers.

mod cells;
mod picture;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use clap::ValueEnum;
use profbridge_model::{Losses, Profiles, Reason};

use super::reading::{Given, MOST_WEIGHT, Reading, State, Unit};
use super::stacks::Node;
use cells::Cells;
use picture::{Picture, View};

/// Where the outermost functions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Layout {
    /// At the top, and what they call below them.
    #[default]
    Icicle,
    /// At the bottom, and what they call above them.
    Flame,
}

/// How heavy a stack is: in the unit of its values, and in samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Weight {
    value: u64,
    samples: u64,
}

impl Weight {
    fn add(&mut self, other: Self) {
        self.value = self.value.saturating_add(other.value);
        self.samples = self.samples.saturating_add(other.samples);
    }
}

/// The stacks of any number of batches, added up.
#[derive(Debug, Default)]
pub(crate) struct FlameGraph {
    reading: Reading,
    /// By state and process.
    weights: BTreeMap<(State, u32), HashMap<Node, Weight>>,
    units: BTreeSet<Unit>,
    /// The sum of all values.
    sum: u64,
}

impl FlameGraph {
    /// Takes a batch. `given` is what is known of it beside what it says.
    pub(crate) fn add(&mut self, batch: &Profiles, given: Option<Given<'_>>) {
        let Self { reading, weights, units, sum } = self;
        let mut observed = Vec::new();
        let mut refused = 0;
        reading.read(batch, given, |one| {
            let mut weight = Weight::default();
            one.each(|_, value| match sum.checked_add(value).filter(|&sum| sum <= MOST_WEIGHT) {
                Some(with_it) => {
                    *sum = with_it;
                    weight.add(Weight { value, samples: if one.unit == Unit::Count { value } else { 1 } });
                }
                None => refused += 1,
            });
            units.insert(one.unit);
            observed.push((one.state, one.thread, one.node, weight));
        });
        reading.losses.add_observations(Reason::LimitExceeded, refused);
        for (state, thread, node, weight) in observed {
            let process = reading.threads()[thread as usize].process;
            weights.entry((state, process)).or_default().entry(node).or_default().add(weight);
        }
    }

    /// What all of it is called, as far as it says so itself.
    pub(crate) fn title(&self) -> Option<String> {
        self.reading.title()
    }

    /// What was not taken, and why.
    pub(crate) fn losses(&self) -> &Losses {
        &self.reading.losses
    }

    /// How many stacks are drawn; `None` where there are none.
    pub(crate) fn stacks(&self) -> Option<usize> {
        let count = self.weights.values().flat_map(HashMap::values).filter(|weight| self.of(weight) > 0).count();
        (count > 0).then_some(count)
    }

    /// What is drawn: the one unit that there is, else samples, which all have.
    fn unit(&self) -> Unit {
        match self.units.first() {
            Some(&unit) if self.units.len() == 1 => unit,
            _ => Unit::Count,
        }
    }

    fn of(&self, weight: &Weight) -> u64 {
        if self.units.len() == 1 { weight.value } else { weight.samples }
    }

    /// Draws it as SVG.
    ///
    /// # Errors
    ///
    /// There is nothing to draw, or `out` cannot be written.
    pub(crate) fn draw(&self, title: &str, layout: Layout, out: &mut impl io::Write) -> io::Result<()> {
        let several = self.weights.keys().map(|&(_, process)| process).collect::<BTreeSet<_>>().len() > 1;
        let states: BTreeSet<State> = self.weights.keys().map(|&(state, _)| state).collect();
        let mut views = Vec::new();
        for state in states {
            let of = self.weights.iter().filter(|((of, _), _)| *of == state);
            let processes = of.map(|(&(_, process), weights)| {
                let label = &*self.reading.processes()[process as usize].label;
                let weights = weights.iter().map(|(&node, weight)| (node, self.of(weight)));
                (several.then_some(label), weights.collect::<Vec<_>>())
            });
            let Cells { cells, narrow } = cells::cells(&self.reading.stacks, state_name(state), processes.collect());
            if !cells.is_empty() {
                views.push(View { name: state_name(state), cells, narrow });
            }
        }
        if views.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is not a single stack to draw"));
        }
        Picture { title, layout, unit: self.unit(), views: &views }.write(out)
    }
}

/// What a picture of one state is called.
fn state_name(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Wall => "running or waiting",
        State::Waiting => "waiting",
    }
}
