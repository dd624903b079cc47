//! Profiles as collapsed stacks, and back: one line per distinct stack, root first, then its weight.
//!
//! The text that flame graph tools read (brendangregg/FlameGraph `flamegraph.pl`, the crate `inferno`):
//! `main;handle;parse 42`. A frame's name must not hold `;` nor a line's end, and there is no way to escape them, so
//! they are replaced.
//!
//! A flame graph has one unit. Time is nanoseconds, be it values in a unit of time or counts times the period; other
//! values are in the unit of their type. The first type that is chosen decides ([`mod@choice`]), and values of other
//! types, which would be added up to nonsense, are counted and named. So are values below zero.

pub mod choice;
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

use choice::{NotShown, Shown, ShownType, shown};
pub use name::{MAX_NAME, frame_name, shortened};
pub use process::{CalledBy, Process};
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

/// The first frame of the stacks of threads that ran or were blocked, where others did one of both.
pub const EITHER: &str = "[running or waiting]";

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

/// Collects the stacks of any number of batches.
#[derive(Debug, Clone)]
pub struct Folded {
    threads: Threads,
    states: bool,
    /// Whether stacks are told apart by their process, and what that is called by.
    apart: Option<CalledBy>,
    /// What processes are called, by their numbers; the numbers by that.
    processes: Vec<Box<str>>,
    numbers: HashMap<Box<str>, usize>,
    /// The bytes of that, which leave most of the room to stacks.
    label_bytes: usize,
    stacks: HashMap<Root, HashMap<Box<str>, u64>>,
    bytes: usize,
    max_bytes: usize,
    /// The type of all weights, and in it `None` where they are time; `None` before the first.
    measure: Option<Option<ShownType>>,
    not_shown: NotShown,
    losses: Losses,
}

impl Folded {
    /// Nothing yet.
    pub fn new(threads: Threads) -> Self {
        Self {
            threads,
            states: false,
            apart: None,
            processes: Vec::new(),
            numbers: HashMap::new(),
            label_bytes: 0,
            stacks: HashMap::new(),
            bytes: 0,
            max_bytes: MAX_BYTES,
            measure: None,
            not_shown: NotShown::default(),
            losses: Losses::default(),
        }
    }

    /// The same with what threads did as the root of their stacks: [`WAITING`], and [`RUNNING`] where samples of time on
    /// the wall say it, or other threads waited.
    #[must_use]
    pub fn with_states(self) -> Self {
        Self { states: true, ..self }
    }

    /// The same with the process of stacks as their root, behind what threads did, where there are several.
    #[must_use]
    pub fn with_processes(self, called_by: CalledBy) -> Self {
        Self { apart: Some(called_by), ..self }
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
                for (profile, shown) in scope.profiles.iter().zip(shown(batch, scope, self.states)) {
                    if !profile.samples.is_empty() && self.takes(&shown) {
                        self.add_profile(batch, (&resource.resource, &mut processes), profile, shown.scale);
                    } else {
                        let observations = self.not_shown.add(batch, profile);
                        self.losses.add_observations(Reason::OtherType, observations);
                    }
                }
            }
        }
    }

    /// Whether a profile is of the type of all weights.
    fn takes(&mut self, shown: &Shown) -> bool {
        shown.is_chosen && *self.measure.get_or_insert_with(|| shown.own.clone()) == shown.own
    }

    /// The number of a process; `None` where there is no room for another one.
    fn process(&mut self, process: Process<'_>) -> Option<usize> {
        let mut label = String::new();
        match process.to_string() {
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
        scale: u64,
    ) {
        let dictionary = &**batch.dictionary();
        let by_thread = self.threads == Threads::Apart
            && batch.samples(profile).any(|sample| names_thread(dictionary, sample.attributes));
        let is_time = self.measure == Some(None);
        let mode = if self.states && is_time { Mode::of(dictionary, profile) } else { Mode::Other };
        let mut groups: HashMap<Group, (u64, u64)> = HashMap::new();
        for sample in batch.samples(profile) {
            let did = match mode {
                Mode::Wall => State::of(dictionary, sample.attributes).map_or(Did::Either, Did::Told),
                Mode::OffCpu => Did::Told(State::Waiting),
                Mode::Cpu | Mode::Other => Did::Ran,
            };
            let process = self.apart.map_or(Some(0), |called_by| {
                let of = || Process::of(batch, resource, sample.attributes, called_by);
                *processes.entry(sample.attributes).or_insert_with(|| self.process(of()))
            });
            let Some(process) = process else {
                self.losses.add_observations(Reason::LimitExceeded, sample.observations());
                continue;
            };
            let attributes = sample.attributes.filter(|_| by_thread);
            let group = groups.entry(((did, process), attributes, sample.stack)).or_default();
            let (value, negative) = value_of(&sample);
            group.0 = group.0.saturating_add(value.saturating_mul(scale));
            group.1 += sample.observations() - negative;
            self.losses.add_observations(Reason::NegativeValue, negative);
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

    fn add_stack(&mut self, root: Root, text: &str, weight: u64, observations: u64) {
        let stacks = self.stacks.entry(root).or_default();
        if let Some(known) = stacks.get_mut(text) {
            *known = known.saturating_add(weight);
            return;
        }
        // Its process stands in front of each in what is written.
        let length = text.len() + self.processes.get(root.1).map_or(0, |label| label.len() + 1);
        if self.bytes + length > self.max_bytes {
            return self.losses.add_observations(Reason::LimitExceeded, observations);
        }
        self.bytes += length;
        stacks.insert(text.into(), weight);
    }

    /// The type of all weights; `None` where they are nanoseconds.
    pub fn shown_type(&self) -> Option<&ShownType> {
        self.measure.as_ref()?.as_ref()
    }

    /// The types that were left out.
    pub fn not_shown(&self) -> &NotShown {
        &self.not_shown
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
        let of_all = self.stacks.iter().filter(|(_, stacks)| stacks.values().any(|&weight| weight > 0));
        let processes: HashSet<usize> = of_all.clone().map(|(&(_, process), _)| process).collect();
        let states: HashSet<Did> = of_all.clone().map(|(&(did, _), _)| did).collect();
        let several = (states.len() > 1, processes.len() > 1);
        of_all.flat_map(move |(&root, stacks)| {
            let root = self.root(root, several);
            let lines = stacks.iter().map(move |(stack, &weight)| {
                let line = if root.is_empty() { Cow::Borrowed(&**stack) } else { format!("{root};{stack}").into() };
                (line, weight)
            });
            lines.filter(|&(_, weight)| weight > 0)
        })
    }

    /// What stands in front of stacks.
    fn root(&self, (did, process): Root, (states, processes): (bool, bool)) -> String {
        let state = match did {
            Did::Told(State::Running) => Some(RUNNING),
            Did::Told(State::Waiting) => Some(WAITING),
            Did::Ran => Some(RUNNING).filter(|_| states),
            Did::Either => Some(EITHER).filter(|_| states),
        };
        let process = self.processes.get(process).filter(|_| processes).map(|label| &**label);
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
type Root = (Did, usize);

/// What a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Did {
    /// What its sample or its type says.
    Told(State),
    /// It ran, or it is no time.
    Ran,
    /// It ran or waited.
    Either,
}

/// What tells stacks of a profile apart: what stands in front of them, the thread, and the stack.
type Group = (Root, Option<AttributeSetId>, Option<StackId>);

/// The sum of the values of a sample, and how many of its observations have one below zero, which is no part of it.
fn value_of(sample: &Sample<'_>) -> (u64, u64) {
    if sample.values_bytes().is_empty() {
        // Timestamps without values count one each.
        return (sample.observations(), 0);
    }
    if sample.timestamps_bytes().is_empty() {
        let sum = sample.values().fold(0, i64::saturating_add);
        return (sum.max(0).unsigned_abs(), u64::from(sum < 0));
    }
    sample.values().fold((0u64, 0), |(sum, negative), value| {
        (sum.saturating_add(value.max(0).unsigned_abs()), negative + u64::from(value < 0))
    })
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
