//! Flame graphs: stacks as columns of cells, each function as wide as its time.
//!
//! Running time is shown first. Waiting time, and each type of values that is not time, is another picture in the same
//! file, selected by a button. The crate `inferno` is not used, because it draws only one picture, colours by language,
//! has no legend, and shows times as integers.

mod cells;
mod picture;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use clap::ValueEnum;
use profbridge_model::{Profiles, Reason};

use super::reading::{MOST_WEIGHT, Reading, State};
use super::stacks::Node;
use cells::Cells;
use picture::{Picture, View};

/// Position of the outermost functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Layout {
    /// At the top, and what they call below them.
    #[default]
    Icicle,
    /// At the bottom, and what they call above them.
    Flame,
}

/// The summed stacks of any number of batches.
#[derive(Debug, Default)]
pub(crate) struct FlameGraph {
    /// Resolved samples, and what was lost.
    pub(crate) reading: Reading,
    /// Weights of stacks, by state and process.
    weights: BTreeMap<(State, u32), HashMap<Node, u64>>,
    /// The sum of all values.
    sum: u64,
}

impl FlameGraph {
    /// Adds a batch.
    pub(crate) fn add(&mut self, batch: &Profiles) {
        let Self { reading, weights, sum } = self;
        let mut observed = Vec::new();
        let (mut refused, mut negative) = (0, 0);
        reading.read(batch, |one| {
            let mut weight = 0;
            one.each(|_, value| {
                if value < 0 {
                    negative += 1;
                    return;
                }
                let with_it = |value| sum.checked_add(value).filter(|&sum| sum <= MOST_WEIGHT);
                match u64::try_from(value).ok().and_then(|value| Some((value, with_it(value)?))) {
                    Some((value, with_it)) => {
                        *sum = with_it;
                        weight += value;
                    }
                    None => refused += 1,
                }
            });
            observed.push((one.state, one.thread, one.node, weight));
        });
        reading.losses.add_observations(Reason::LimitExceeded, refused);
        reading.losses.add_observations(Reason::NegativeValue, negative);
        for (state, thread, node, weight) in observed {
            let process = reading.threads[thread as usize].process;
            *weights.entry((state, process)).or_default().entry(node).or_default() += weight;
        }
    }

    /// How many stacks are drawn; `None` if there are none.
    pub(crate) fn stacks(&self) -> Option<usize> {
        let count = self.weights.values().flat_map(HashMap::values).filter(|&&weight| weight > 0).count();
        (count > 0).then_some(count)
    }

    /// The names of the drawn value types that are not thread time.
    pub(crate) fn types(&self) -> String {
        let types: Vec<String> = self.reading.types.iter().map(ToString::to_string).collect();
        if types.is_empty() { String::new() } else { format!(" of {}", types.join(" and ")) }
    }

    /// Writes the graph as SVG.
    ///
    /// # Errors
    ///
    /// If there is nothing to draw, or `out` cannot be written.
    pub(crate) fn draw(&self, title: &str, layout: Layout, out: &mut impl io::Write) -> io::Result<()> {
        let several = self.weights.keys().map(|&(_, process)| process).collect::<BTreeSet<_>>().len() > 1;
        let states: BTreeSet<State> = self.weights.keys().map(|&(state, _)| state).collect();
        let mut views = Vec::new();
        let names: Vec<(State, Box<str>)> = states.iter().map(|&state| (state, self.reading.name(state))).collect();
        for &(state, ref name) in &names {
            let of = self.weights.iter().filter(|((of, _), _)| *of == state);
            let processes = of.map(|(&(_, process), weights)| {
                let label = &*self.reading.processes[process as usize].label;
                let weights = weights.iter().map(|(&node, &weight)| (node, weight));
                (several.then_some(label), weights.collect::<Vec<_>>())
            });
            let Cells { cells, narrow } = cells::cells(&self.reading.stacks, name, processes.collect());
            if !cells.is_empty() {
                views.push(View { name, unit: self.reading.unit(state), cells, narrow });
            }
        }
        if views.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is not a single stack to draw"));
        }
        Picture { title, layout, views: &views }.write(out)
    }
}
