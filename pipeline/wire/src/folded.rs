//! Writes and reads collapsed stacks: one line per distinct stack, root first, then its weight.
//!
//! Flame graph tools read this text (brendangregg/FlameGraph `flamegraph.pl`, the crate `inferno`): `main;handle;parse
//! 42`. A frame's name must contain neither `;` nor a line break, and there is no escaping, so these characters are
//! replaced.
//!
//! A flame graph has one unit. Time is in nanoseconds, whether it comes from values in a unit of time or from counts
//! times the period; other values keep the unit of their type. The first chosen type determines the unit
//! ([`mod@choice`]). Values of other types cannot be added to it, so they are counted and reported by name instead.
//! Negative values are also counted and not added.

pub mod choice;
mod name;
mod process;
mod read;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use profbridge_model::meaning::Mode;
use profbridge_model::thread::ThreadState;
use profbridge_model::{
    AttributeSetId, Dictionary, Losses, Profile, Profiles, Reason, Resource, Sample, StackId, Value,
};

use choice::{NotShown, Shown, ShownType, shown};
pub use name::{MAX_NAME, frame_name, shortened};
pub(crate) use process::main_executable;
pub use process::{CalledBy, NamedProcess};
pub use read::{CountUnit, FoldedProfile, RefusedLine, differential, is_flat, is_folded, read};

use crate::pprof::pruned;

/// Maximum number of frames written per stack; the frames nearest the root of deeper stacks are omitted.
pub const MAX_DEPTH: usize = 4096;

/// Maximum size of the text in memory, in bytes. It is a protection against one long name in a million stacks.
pub const MAX_BYTES: usize = 256 << 20;

/// The root frame of stacks of running threads, if other threads waited.
pub const RUNNING: &str = "[running]";

/// The root frame of stacks of blocked threads.
pub const WAITING: &str = "[waiting]";

/// The root frame of stacks of threads in an unknown state, if other stacks have a known one.
pub const EITHER: &str = "[running or waiting]";

/// Whether stacks of different threads are kept separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Threads {
    /// Stacks of all threads are merged.
    #[default]
    Merged,
    /// The thread's name, or `thread ID` if it has no name, is the root of its stacks. Profiles without thread
    /// attributes get no such root frame.
    Apart,
}

/// Collects the stacks of any number of batches.
#[derive(Debug, Clone)]
pub struct Folded {
    threads: Threads,
    states: bool,
    /// Whether stacks of different processes are kept separate, and how processes are named.
    apart: Option<CalledBy>,
    /// The labels of processes by number, and the reverse map.
    processes: Vec<Box<str>>,
    numbers: HashMap<Box<str>, usize>,
    /// Size of the labels in bytes. It is limited so that most of the memory remains for stacks.
    label_bytes: usize,
    stacks: HashMap<Root, HashMap<Box<str>, u64>>,
    bytes: usize,
    max_bytes: usize,
    /// The type of all weights: `Some(None)` for time, `None` before the first profile.
    measure: Option<Option<ShownType>>,
    not_shown: NotShown,
    losses: Losses,
}

impl Folded {
    /// Creates an empty collection.
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

    /// Adds the thread's state as the root of its stacks: [`WAITING`]; and [`RUNNING`] if samples have this state or
    /// other threads waited.
    #[must_use]
    pub fn with_states(self) -> Self {
        Self { states: true, ..self }
    }

    /// Adds the process as a frame after the thread's state, if there are several processes.
    #[must_use]
    pub fn with_processes(self, called_by: CalledBy) -> Self {
        Self { apart: Some(called_by), ..self }
    }

    /// Adds all stacks of a batch, without the frames that pprof's `drop_frames` hides.
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

    /// Whether a profile has the type of all weights, which is then added.
    fn takes(&mut self, shown: &Shown) -> bool {
        shown.is_chosen && *self.measure.get_or_insert_with(|| shown.own.clone()) == shown.own
    }

    /// The number of a process; `None` if there is no room for another one.
    fn process(&mut self, process: NamedProcess<'_>) -> Option<usize> {
        let mut label = String::new();
        match process.to_string() {
            unknown if unknown.is_empty() => label.push_str("[unknown process]"),
            known => name::push(&mut label, &known),
        }
        if let Some(&number) = self.numbers.get(&*label) {
            return Some(number);
        }
        // The label is stored twice.
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
                Mode::Wall => {
                    ThreadState::of(dictionary, sample.attributes).map_or(ThreadActivity::Either, ThreadActivity::Known)
                }
                Mode::OffCpu => ThreadActivity::Known(ThreadState::Waiting),
                Mode::Cpu | Mode::Other => ThreadActivity::Ran,
            };
            let process = self.apart.map_or(Some(0), |called_by| {
                let of = || NamedProcess::of(batch, resource, sample.attributes, called_by);
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
        // The written line begins with the label of its process.
        let length = text.len() + self.processes.get(root.1).map_or(0, |label| label.len() + 1);
        if self.bytes + length > self.max_bytes {
            return self.losses.add_observations(Reason::LimitExceeded, observations);
        }
        self.bytes += length;
        stacks.insert(text.into(), weight);
    }

    /// The type of all weights; `None` if they are nanoseconds.
    pub fn shown_type(&self) -> Option<&ShownType> {
        self.measure.as_ref()?.as_ref()
    }

    /// The types of profiles that were not added.
    pub fn not_shown(&self) -> &NotShown {
        &self.not_shown
    }

    /// The observations that were not added, and why.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.lines().next().is_none()
    }

    /// The lines in no particular order: a stack and its non-zero weight.
    pub fn lines(&self) -> impl Iterator<Item = (Cow<'_, str>, u64)> + '_ {
        let of_all = self.stacks.iter().filter(|(_, stacks)| stacks.values().any(|&weight| weight > 0));
        let processes: HashSet<usize> = of_all.clone().map(|(&(_, process), _)| process).collect();
        let states: HashSet<ThreadActivity> = of_all.clone().map(|(&(did, _), _)| did).collect();
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

    /// The frames before a stack: the thread's state and the process.
    fn root(&self, (did, process): Root, (states, processes): (bool, bool)) -> String {
        let state = match did {
            ThreadActivity::Known(ThreadState::Running) => Some(RUNNING),
            ThreadActivity::Known(ThreadState::Waiting) => Some(WAITING),
            ThreadActivity::Ran => Some(RUNNING).filter(|_| states),
            ThreadActivity::Either => Some(EITHER).filter(|_| states),
        };
        let process = self.processes.get(process).filter(|_| processes).map(|label| &**label);
        state.into_iter().chain(process).collect::<Vec<_>>().join(";")
    }

    /// Writes the lines sorted, so that equal profiles give equal text.
    ///
    /// # Errors
    ///
    /// The writer's errors.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut lines: Vec<_> = self.lines().collect();
        lines.sort_unstable();
        for (stack, weight) in lines {
            writeln!(out, "{stack} {weight}")?;
        }
        Ok(())
    }
}

/// The prefix of stacks: the thread's state, and the number of the process.
type Root = (ThreadActivity, usize);

/// The state of a thread, according to its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ThreadActivity {
    /// The state that the sample or its type states.
    Known(ThreadState),
    /// The thread was running, or the values are not time.
    Ran,
    /// The thread was running or waiting.
    Either,
}

/// The key that distinguishes stacks of a profile: prefix, thread, and stack.
type Group = (Root, Option<AttributeSetId>, Option<StackId>);

/// The sum of the non-negative values of a sample, and the number of observations with a negative value.
fn value_of(sample: &Sample<'_>) -> (u64, u64) {
    if sample.values_bytes().is_empty() {
        // Each timestamp without a value counts as one.
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

fn names_thread(dictionary: &Dictionary, attributes: Option<AttributeSetId>) -> bool {
    ["thread.name", "thread.id"].iter().any(|key| dictionary.find(attributes, key).is_some())
}

/// Writes the thread as a separate frame.
fn push_thread(text: &mut String, dictionary: &Dictionary, attributes: Option<AttributeSetId>) {
    match (dictionary.find(attributes, "thread.name"), dictionary.find(attributes, "thread.id")) {
        (Some(Value::String(Some(name))), _) => name::push(text, dictionary.string(Some(*name))),
        (_, Some(Value::Int(id))) => name::push(text, &format!("thread {id}")),
        (_, Some(Value::String(Some(id)))) => name::push(text, &format!("thread {}", dictionary.string(Some(*id)))),
        _ => name::push(text, "[unknown thread]"),
    }
}

/// Writes the frames, root first. Returns false if there are none.
fn push_stack(text: &mut String, dictionary: &Dictionary, stack: Option<StackId>) -> bool {
    let frames = dictionary.stack(stack).flatten().flat_map(|location| {
        let location = dictionary.location(location);
        // A location without lines also counts as a frame, without a function.
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
