//! Profiles as collapsed stacks, and back: one line per distinct stack, root first, then its weight.
//!
//! The text that flame graph tools read (brendangregg/FlameGraph `flamegraph.pl`, the crate `inferno`):
//! `main;handle;parse 42`. A frame's name must not hold `;` nor a line's end, and there is no way to escape them, so
//! they are replaced.
//!
//! A flame graph has one unit. Where every folded profile can be told in time, the weight is nanoseconds: values whose
//! unit is a time, or counts times the period. Where all values are of one other unit, such as bytes, it is these.
//! Otherwise it is observations. Profiles of one scope that say the same
//! in another type (counts beside nanoseconds) or something else (bytes beside time) would be added up to nonsense:
//! the most telling type of a scope is folded, the others are counted as redundant.

mod choice;
mod name;
mod process;
mod read;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use profbridge_model::meaning::Mode;
use profbridge_model::thread::State;
use profbridge_model::{
    AttributeSetId, Dictionary, Losses, Profile, Profiles, Reason, Resource, Sample, StackId, Value,
};

pub use choice::Choice;
use choice::Measure;
pub use name::{MAX_NAME, frame_name, shortened};
pub use process::Process;
pub use read::{Counted, Read, RefusedLine, differential, is_flat, is_folded, read};

use crate::pprof::pruned;

/// The most frames of a stack that are written; deeper ones lose their root.
pub const MAX_DEPTH: usize = 4096;

/// The most bytes of text that are held: what one long name in a million stacks would otherwise become.
pub const MAX_BYTES: usize = 256 << 20;

/// The first frame of the stacks of threads that ran, where others waited.
pub const RUNNING: &str = "[running]";

/// The first frame of the stacks of threads that were blocked.
pub const WAITING: &str = "[waiting]";

/// Whether stacks are told apart by their thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Threads {
    /// They are not.
    #[default]
    Merged,
    /// The thread's name, or `thread ID` where it has none, is the root of its stacks; in profiles that name no thread
    /// nothing is.
    Apart,
}

/// What the weights are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Observations, or what a value counts.
    Samples,
    /// Time.
    Nanoseconds,
    /// What all values are a number of, such as bytes.
    Values,
}

/// How heavy a stack is, in each of the units.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    samples: u64,
    nanoseconds: u64,
    values: u64,
}

impl Weight {
    fn add(&mut self, other: Weight) {
        self.samples = self.samples.saturating_add(other.samples);
        self.nanoseconds = self.nanoseconds.saturating_add(other.nanoseconds);
        self.values = self.values.saturating_add(other.values);
    }
}

/// Collects the stacks of any number of batches.
#[derive(Debug, Clone)]
pub struct Folded {
    threads: Threads,
    states: bool,
    /// Whether stacks are told apart by their process.
    apart: bool,
    /// What processes are called, by their numbers; the numbers by that.
    processes: Vec<Box<str>>,
    numbers: HashMap<Box<str>, usize>,
    /// The bytes of that, which leave most of the room to stacks.
    label_bytes: usize,
    stacks: HashMap<Root, HashMap<Box<str>, Weight>>,
    bytes: usize,
    max_bytes: usize,
    /// What values were a number of so far; `None` before the first.
    measure: Option<Measure>,
    /// Whether they were numbers of different things.
    mixed: bool,
    losses: Losses,
}

impl Folded {
    /// Nothing yet.
    pub fn new(threads: Threads) -> Self {
        Self {
            threads,
            states: false,
            apart: false,
            processes: Vec::new(),
            numbers: HashMap::new(),
            label_bytes: 0,
            stacks: HashMap::new(),
            bytes: 0,
            max_bytes: MAX_BYTES,
            measure: None,
            mixed: false,
            losses: Losses::default(),
        }
    }

    /// The same with what threads did as the root of their stacks, [`RUNNING`] or [`WAITING`], where samples of time on
    /// the wall say it.
    #[must_use]
    pub fn with_states(self) -> Self {
        Self { states: true, ..self }
    }

    /// The same with the process of stacks as their root, behind what threads did, where there are several.
    #[must_use]
    pub fn with_processes(self) -> Self {
        Self { apart: true, ..self }
    }

    /// Adds all stacks of a batch, without the frames that pprof's `drop_frames` says are not to be shown.
    pub fn add(&mut self, batch: &Profiles) {
        match pruned(batch) {
            Some(pruned) => self.add_all(&pruned.batch),
            None => self.add_all(batch),
        }
    }

    fn add_all(&mut self, batch: &Profiles) {
        for resource in batch.resources() {
            let mut processes = HashMap::new();
            for scope in &resource.scopes {
                let choice = Choice::best(batch, &scope.profiles);
                for profile in &scope.profiles {
                    match choice.as_ref().filter(|choice| choice.takes(batch, profile)) {
                        Some(choice) => self.add_profile(batch, (&resource.resource, &mut processes), profile, choice),
                        None => self.losses.add_observations(Reason::RedundantType, batch.observations_of(profile)),
                    }
                }
            }
        }
    }

    /// The number of the process of a sample with these attributes; `None` where there is no room for another one.
    fn process(&mut self, batch: &Profiles, resource: &Resource, attributes: Option<AttributeSetId>) -> Option<usize> {
        let mut label = String::new();
        match Process::of(batch, resource, attributes).to_string() {
            unknown if unknown.is_empty() => label.push_str("[unknown process]"),
            known => name::push(&mut label, &known),
        }
        if let Some(&number) = self.numbers.get(&*label) {
            return Some(number);
        }
        // It is held twice.
        let bytes = self.label_bytes + 2 * label.len();
        self.label_bytes = Some(bytes).filter(|&bytes| bytes <= self.max_bytes / 4)?;
        let number = self.processes.len();
        self.processes.push(label.as_str().into());
        self.numbers.insert(label.into(), number);
        Some(number)
    }

    fn add_profile(
        &mut self,
        batch: &Profiles,
        (resource, processes): (&Resource, &mut HashMap<Option<AttributeSetId>, Option<usize>>),
        profile: &Profile,
        choice: &Choice,
    ) {
        if profile.samples.is_empty() {
            return;
        }
        let dictionary = &**batch.dictionary();
        let period = choice.nanoseconds(profile);
        let by_thread = self.threads == Threads::Apart
            && batch.samples(profile).any(|sample| names_thread(dictionary, sample.attributes));
        let tells_state = self.states && Mode::of(dictionary, profile) == Mode::Wall;
        let measure = choice.measure(profile);
        self.mixed |= *self.measure.get_or_insert_with(|| measure.clone()) != measure;
        let mut groups: HashMap<Group, (Weight, u64)> = HashMap::new();
        for sample in batch.samples(profile) {
            let state = if tells_state { State::of(dictionary, sample.attributes) } else { None };
            let process = if self.apart {
                let known = processes.entry(sample.attributes);
                *known.or_insert_with(|| self.process(batch, resource, sample.attributes))
            } else {
                Some(0)
            };
            let Some(process) = process else {
                self.losses.add_observations(Reason::LimitExceeded, sample.observations());
                continue;
            };
            let attributes = sample.attributes.filter(|_| by_thread);
            let group = groups.entry(((state, process), attributes, sample.stack)).or_default();
            group.0.add(weigh(&sample, choice, period.unwrap_or_default()));
            group.1 += sample.observations();
        }
        let mut text = String::new();
        for ((root, attributes, stack), (weight, observations)) in groups {
            text.clear();
            if by_thread {
                push_thread(&mut text, dictionary, attributes);
            }
            if !push_stack(&mut text, dictionary, stack) {
                self.losses.add_observations(Reason::NoFrames, observations);
                continue;
            }
            self.add_stack(root, &text, weight, observations);
        }
    }

    fn add_stack(&mut self, root: Root, text: &str, weight: Weight, observations: u64) {
        let stacks = self.stacks.entry(root).or_default();
        if let Some(known) = stacks.get_mut(text) {
            return known.add(weight);
        }
        // Its process stands in front of each in what is written.
        let length = text.len() + self.processes.get(root.1).map_or(0, |label| label.len() + 1);
        if self.bytes + length > self.max_bytes {
            return self.losses.add_observations(Reason::LimitExceeded, observations);
        }
        self.bytes += length;
        stacks.insert(text.into(), weight);
    }

    /// What the weights will be, given what was added so far.
    pub fn unit(&self) -> Unit {
        match &self.measure {
            _ if self.mixed => Unit::Samples,
            None | Some(Measure::Time) => Unit::Nanoseconds,
            Some(Measure::Samples) => Unit::Samples,
            Some(Measure::Of(_)) => Unit::Values,
        }
    }

    /// What was not folded, and why.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.lines().next().is_none()
    }

    /// The lines without their order: a stack and its weight, which is not zero.
    pub fn lines(&self) -> impl Iterator<Item = (Cow<'_, str>, u64)> + '_ {
        let unit = self.unit();
        let weigh = move |weight: &Weight| match unit {
            Unit::Samples => weight.samples,
            Unit::Nanoseconds => weight.nanoseconds,
            Unit::Values => weight.values,
        };
        let of_all = self.stacks.iter().filter(move |(_, stacks)| stacks.values().any(|weight| weigh(weight) > 0));
        let processes: HashSet<usize> = of_all.clone().map(|(&(_, process), _)| process).collect();
        let several = processes.len() > 1;
        of_all.flat_map(move |(&root, stacks)| {
            let root = self.root(root, several);
            let lines = stacks.iter().map(move |(stack, weight)| {
                let line = if root.is_empty() { Cow::Borrowed(&**stack) } else { format!("{root};{stack}").into() };
                (line, weigh(weight))
            });
            lines.filter(|&(_, weight)| weight > 0)
        })
    }

    /// What stands in front of stacks.
    fn root(&self, (state, process): Root, several: bool) -> String {
        let state = match state {
            Some(State::Running) => Some(RUNNING),
            Some(State::Waiting) => Some(WAITING),
            None => None,
        };
        let process = self.processes.get(process).filter(|_| several).map(|label| &**label);
        state.into_iter().chain(process).collect::<Vec<_>>().join(";")
    }

    /// Writes the lines, sorted, so that equal profiles are equal text.
    ///
    /// # Errors
    ///
    /// What the writer fails with.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut lines: Vec<_> = self.lines().collect();
        lines.sort_unstable();
        for (stack, weight) in lines {
            writeln!(out, "{stack} {weight}")?;
        }
        Ok(())
    }
}

/// What stands in front of stacks: what the thread did, and the number of the process.
type Root = (Option<State>, usize);

/// What tells stacks of a profile apart: what stands in front of them, the thread, and the stack.
type Group = (Root, Option<AttributeSetId>, Option<StackId>);

/// `period`: the nanoseconds of one unit of value.
fn weigh(sample: &Sample<'_>, choice: &Choice, period: u64) -> Weight {
    let sum = sample.values().fold(0u64, |sum, value| sum.saturating_add(value.max(0).unsigned_abs()));
    // Timestamps without values count one each.
    let value = if sample.values_bytes().is_empty() { sample.observations() } else { sum };
    let samples = if choice.counts() { value } else { sample.observations() };
    Weight { samples, nanoseconds: value.saturating_mul(period), values: value }
}

/// Whether attributes say which thread it was.
fn names_thread(dictionary: &Dictionary, attributes: Option<AttributeSetId>) -> bool {
    ["thread.name", "thread.id"].iter().any(|key| dictionary.find(attributes, key).is_some())
}

/// Writes the thread as a frame of its own.
fn push_thread(text: &mut String, dictionary: &Dictionary, attributes: Option<AttributeSetId>) {
    match (dictionary.find(attributes, "thread.name"), dictionary.find(attributes, "thread.id")) {
        (Some(Value::String(Some(name))), _) => name::push(text, dictionary.string(Some(*name))),
        (_, Some(Value::Int(id))) => name::push(text, &format!("thread {id}")),
        (_, Some(Value::String(Some(id)))) => name::push(text, &format!("thread {}", dictionary.string(Some(*id)))),
        _ => name::push(text, "[unknown thread]"),
    }
}

/// Writes the frames, root first. Returns false where there are none.
fn push_stack(text: &mut String, dictionary: &Dictionary, stack: Option<StackId>) -> bool {
    let frames = dictionary.stack(stack).flatten().flat_map(|location| {
        let location = dictionary.location(location);
        // A location without lines is a frame as well, without a function.
        let lines = dictionary.lines(location).len();
        (0..lines.max(1)).map(move |line| (location, dictionary.lines(location).get(line)))
    });
    let mut leaf_first: Vec<_> = frames.take(MAX_DEPTH + 1).collect();
    let deeper = leaf_first.len() > MAX_DEPTH;
    leaf_first.truncate(MAX_DEPTH);
    if deeper {
        name::push(text, "[deeper frames left out]");
    }
    for &(location, line) in leaf_first.iter().rev() {
        name::push_frame(text, dictionary, location, line);
    }
    !leaf_first.is_empty()
}

#[cfg(test)]
mod tests;
