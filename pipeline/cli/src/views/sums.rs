//! Adds up the time, or the values of another type, of stacks by state and process.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use profbridge_model::Profiles;
use profbridge_wire::folded::CalledBy;

use super::reading::{Reading, ResolvedSample, State};
use super::stacks::Node;

/// Marks the resource of a process that belongs to a command sampled from its start to its end.
pub(crate) const WHOLE_COMMAND: &str = "profbridge.whole_command";

/// The most observations that are kept, 40 bytes each.
const MOST_TIMED: usize = 1 << 22;

/// An observation with its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    pub(crate) state: State,
    pub(crate) thread: u32,
    pub(crate) node: Node,
    pub(crate) time: u64,
    pub(crate) weight: u64,
}

/// The most lines of functions that are distinguished.
const MOST_LINES: usize = 1 << 20;

/// Weights of the lines of own code by function and line: while threads waited, and of other states and values.
#[derive(Debug, Default)]
pub(crate) struct Lines(HashMap<(bool, u32, u32), u64>);

impl Lines {
    /// Adds the weight of a sample to its lines.
    pub(crate) fn add(&mut self, one: &ResolvedSample<'_>, weight: u64) {
        for &(function, line) in one.lines.iter() {
            let line = (one.state == State::Waiting, function, line);
            if self.0.len() < MOST_LINES || self.0.contains_key(&line) {
                let sum = self.0.entry(line).or_default();
                *sum = sum.saturating_add(weight);
            }
        }
    }

    /// For each function of own code, the line with the largest weight in a state, or, if it has none in that, in
    /// others.
    pub(crate) fn hottest(&self, state: State) -> HashMap<u32, u32> {
        let mut hottest: HashMap<u32, (bool, u64, std::cmp::Reverse<u32>)> = HashMap::new();
        for (&(waits, function, line), &weight) in &self.0 {
            let this = (waits == (state == State::Waiting), weight, std::cmp::Reverse(line));
            hottest.entry(function).and_modify(|known| *known = this.max(*known)).or_insert(this);
        }
        hottest.into_iter().map(|(function, (.., line))| (function, line.0)).collect()
    }
}

/// The summed stacks of any number of batches.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// Resolved samples, and what was lost.
    pub(crate) reading: Reading,
    /// The weight of each stack and its number of samples (0 if unknown), by state and process.
    weights: BTreeMap<(State, u32), HashMap<Node, (u64, u64)>>,
    /// Start and end of all profiles with a duration, in nanoseconds since the Unix epoch.
    span: Option<(u64, u64)>,
    lines: Lines,
    /// The observations that are kept, of threads that do not wait.
    timed: Option<Vec<Timed>>,
    /// Whether a command was sampled from its start to its end.
    pub(crate) is_of_whole_command: bool,
}

impl Sums {
    /// Empty sums, with processes named in this way.
    pub(crate) fn named_by(called_by: CalledBy) -> Self {
        Self { reading: Reading::named_by(called_by), ..Self::default() }
    }

    /// Keeps the observations that have times, unless there are too many.
    pub(crate) fn keep_times(&mut self) {
        self.timed = Some(Vec::new());
    }

    /// The observations of a state, if all of its observations were kept.
    pub(crate) fn timed(&self, state: State) -> Option<impl Iterator<Item = &Timed>> {
        let kept = self.timed.as_ref().filter(|_| state != State::Waiting)?;
        Some(kept.iter().filter(move |one| one.state == state))
    }

    pub(crate) fn add(&mut self, batch: &Profiles) {
        let of_command = |resource| batch.find(resource, WHOLE_COMMAND).is_some();
        self.is_of_whole_command |= batch.resources().iter().any(|of| of_command(&of.resource.attributes));
        for profile in batch.profiles().filter(|profile| profile.duration_nano > 0) {
            let (start, end) = (profile.time_unix_nano, profile.time_unix_nano.saturating_add(profile.duration_nano));
            let (first, last) = self.span.unwrap_or((start, end));
            self.span = Some((first.min(start), last.max(end)));
        }
        let Self { reading, weights, lines, timed, .. } = self;
        let mut observed = Vec::new();
        reading.read(batch, |one| {
            let &ResolvedSample { state, thread, node, is_timed, .. } = one;
            let weight = one.weight();
            let count = if is_timed { one.observed.len() as u64 } else { one.samples(weight) };
            if let Some(timed) = timed.as_mut().filter(|_| state != State::Waiting) {
                let of =
                    |&(time, weight): &(u64, i64)| Timed { state, thread, node, time, weight: weight.unsigned_abs() };
                timed.extend(one.observed.iter().map(of));
            }
            timed.take_if(|timed| !is_timed && state != State::Waiting || timed.len() > MOST_TIMED);
            lines.add(one, weight);
            observed.push((state, thread, node, weight, count));
        });
        for (state, thread, node, weight, count) in observed {
            let process = reading.threads[thread as usize].process;
            let sum = weights.entry((state, process)).or_default().entry(node).or_default();
            *sum = (sum.0 + weight, sum.1 + count);
        }
    }

    /// The time from the start to the end of all profiles, in nanoseconds; `None` if none has a duration.
    pub(crate) fn span_nano(&self) -> Option<u64> {
        self.span.map(|(start, end)| end - start)
    }

    /// The stacks of a state in all processes, as they were sampled, each with its weight and number of samples.
    pub(crate) fn counted(&self, state: State) -> impl Iterator<Item = (Node, u64, u64)> {
        let of_state = self.weights.iter().filter(move |((of, _), _)| *of == state).flat_map(|(_, weights)| weights);
        of_state.map(|(&node, &(weight, count))| (node, weight, count))
    }

    /// Moves the functions and stacks to new, empty sums. The old sums keep their weights, but no functions.
    pub(crate) fn next(&mut self) -> Self {
        let mut reading = std::mem::take(&mut self.reading);
        (reading.losses, reading.not_shown, reading.sum) = Default::default();
        Self { reading, ..Self::default() }
    }

    /// How many stacks have a weight; `None` if there are none.
    pub(crate) fn stacks(&self) -> Option<usize> {
        let count = self.weights.values().flat_map(HashMap::values).filter(|(weight, _)| *weight > 0).count();
        (count > 0).then_some(count)
    }

    /// The states and types that have stacks.
    pub(crate) fn states(&self) -> BTreeSet<State> {
        self.weights.keys().map(|&(state, _)| state).collect()
    }

    /// The processes that have stacks of a state, by number.
    pub(crate) fn processes(&self, state: State) -> impl Iterator<Item = u32> {
        self.weights.keys().filter(move |(of, _)| *of == state).map(|&(_, process)| process)
    }

    /// The names of the value types that are not thread time.
    pub(crate) fn types(&self) -> String {
        let types: Vec<String> = self.reading.types.iter().map(ToString::to_string).collect();
        if types.is_empty() { String::new() } else { format!(" of {}", types.join(" and ")) }
    }

    pub(crate) fn total(&self, state: State) -> u64 {
        self.processes(state).map(|process| self.total_of(state, process)).sum()
    }

    pub(crate) fn total_of(&self, state: State, process: u32) -> u64 {
        self.weights.get(&(state, process)).into_iter().flat_map(HashMap::values).map(|(weight, _)| weight).sum()
    }

    /// The total of a state in stacks with a function of this name.
    pub(crate) fn total_with(&self, state: State, name: &str) -> u64 {
        let stacks = &self.reading.stacks;
        let functions: Vec<bool> = stacks.functions().map(|(function, _)| &*function.name == name).collect();
        let of = self.weights.iter().filter(|((known, _), _)| *known == state).flat_map(|(_, weights)| weights);
        let with = of.filter(|(node, _)| stacks.path(**node).iter().any(|&function| functions[function as usize]));
        with.map(|(_, (weight, _))| weight).sum()
    }

    /// The stacks of a state in all processes with their weights: as they were sampled, or folded.
    pub(crate) fn weighed_in_all(&mut self, state: State, is_folded: bool) -> Vec<(Node, u64)> {
        let processes: Vec<u32> = self.processes(state).collect();
        let mut all: HashMap<Node, u64> = HashMap::new();
        for (node, weight) in processes.into_iter().flat_map(|process| self.weighed(state, process, is_folded)) {
            *all.entry(node).or_default() += weight;
        }
        all.into_iter().collect()
    }

    /// The stacks of a state in a process with their weights: as they were sampled, or folded.
    pub(crate) fn weighed(&mut self, state: State, process: u32, is_folded: bool) -> Vec<(Node, u64)> {
        let Self { reading, weights, .. } = self;
        let weights = weights.get(&(state, process)).into_iter().flatten().filter(|&(_, &(weight, _))| weight > 0);
        let mut folded: HashMap<Node, u64> = HashMap::new();
        for (&node, &(weight, _)) in weights {
            let node = if is_folded { reading.stacks.fold(node, state == State::Waiting) } else { node };
            *folded.entry(node).or_default() += weight;
        }
        folded.into_iter().collect()
    }

    /// For each function of own code, its line in a state; see [`Lines::hottest`].
    pub(crate) fn hottest_lines(&self, state: State) -> HashMap<u32, u32> {
        self.lines.hottest(state)
    }
}
