//! Resolves samples for views: process, thread, thread state and stack.

use std::collections::HashMap;
use std::rc::Rc;

use profbridge_model::meaning::{Meaning, Mode};
use profbridge_model::thread::{self, SampleThread as Identity};
use profbridge_model::{AttributeSetId, Link, Losses, Profile, Profiles, Reason, Resource, Sample, Value};
use profbridge_wire::folded::choice::{NotShown, Shown, ShownType, shown};
use profbridge_wire::folded::{self, CalledBy};
use profbridge_wire::pprof::pruned;

use super::stacks::{Node, ResolvedStack, StackCache, StackFunction, Stacks, clean};
use super::waits::frame_for;
use crate::terminal;

/// The key of the sample attribute with the file or socket that the sample's thread waited for, such as `socket to
/// 10.0.0.7:5432`. `profbridge sample` sets it where a look at the thread found it.
pub(crate) const AWAITED: &str = "profbridge.thread.awaited";

/// The state of a thread, or the type of values that are shown instead of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum State {
    /// Running, or sampled by a profiler that reports no state.
    Running,
    /// Sampled on wall clock, without a known state.
    Wall,
    /// It was blocked.
    Waiting,
    /// Values that are not thread time, with the number of their type.
    Type(u32),
}

impl From<thread::ThreadState> for State {
    fn from(state: thread::ThreadState) -> Self {
        match state {
            thread::ThreadState::Running => Self::Running,
            thread::ThreadState::Waiting => Self::Waiting,
        }
    }
}

/// The unit of weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unit {
    Nanoseconds,
    Bytes,
    /// A count of things with this name, such as `samples`.
    Count(Box<str>),
}

impl Unit {
    /// A value with its unit, for people.
    pub(crate) fn amount(&self, value: f64) -> String {
        match self {
            Self::Nanoseconds => format!("{:.2} s", value / 1e9),
            Self::Bytes => terminal::bytes(value as u64),
            Self::Count(of) => format!("{value:.0} {of}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    /// Name and id, if known.
    pub(crate) label: Box<str>,
    /// Its id.
    pub(crate) pid: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Thread {
    /// The number of its process.
    pub(crate) process: u32,
    /// The name; empty if unknown.
    pub(crate) name: Box<str>,
    /// The id; empty if threads are not distinguished.
    pub(crate) id: Box<str>,
}

#[derive(Debug)]
pub(crate) struct ResolvedSample<'a> {
    /// The number of its thread.
    pub(crate) thread: u32,
    pub(crate) state: State,
    /// What a sample without times stands for, in the unit of weights; 0 if unknown.
    period: u64,
    /// Its stack.
    pub(crate) node: Node,
    /// The functions of own code in the stack, each with its current line.
    pub(crate) lines: Rc<[(u32, u32)]>,
    /// The span that was running.
    pub(crate) span: Option<Link>,
    /// Whether its observations have times of their own, and not that of the profile.
    pub(crate) is_timed: bool,
    /// The time of each observation in nanoseconds since the Unix epoch, and its weight, with the sign of the value.
    pub(crate) observed: &'a [(u64, i64)],
}

impl ResolvedSample<'_> {
    /// The sum of all weights, without signs.
    pub(crate) fn weight(&self) -> u64 {
        self.observed.iter().map(|(_, weight)| weight.unsigned_abs()).sum()
    }

    /// The number of samples that a weight without times represents; 0 if unknown.
    pub(crate) fn samples(&self, weight: u64) -> u64 {
        weight.div_ceil(self.period.max(1)) * u64::from(self.period > 0)
    }
}

/// The largest sum of all weights of a view: 292 years, or 8 EiB. Observations beyond it are lost, so that no sum
/// overflows, neither here nor in readers of the file.
const MOST_WEIGHT: u64 = i64::MAX as u64;

/// Reads batches, and stores what their samples refer to.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) stacks: Stacks,
    /// The processes, by number.
    pub(crate) processes: Vec<Process>,
    pub(super) process_numbers: HashMap<Process, u32>,
    /// The threads, by number.
    pub(crate) threads: Vec<Thread>,
    pub(super) thread_numbers: HashMap<Thread, u32>,
    /// The types of values that are not thread time, by number.
    pub(crate) types: Vec<ShownType>,
    /// How processes are named.
    pub(crate) called_by: CalledBy,
    /// Whether to read all types, starting with the preferred one of each scope, and not only that one.
    pub(crate) all_types: bool,
    /// Whether values below zero are read, and not lost.
    pub(crate) reads_negative: bool,
    /// The sum of all weights so far, without signs.
    pub(super) sum: u64,
    /// The types that were left out.
    pub(crate) not_shown: NotShown,
    /// What was lost, by reason.
    pub(crate) losses: Losses,
}

/// The most types that are distinguished.
const MOST_TYPES: usize = 256;

/// The most processes, and the most threads, that are distinguished. Further ones are lost.
const MOST_THREADS: usize = 1 << 20;

impl Reading {
    /// An empty reading that names processes in this way.
    pub(crate) fn named_by(called_by: CalledBy) -> Self {
        Self { called_by, ..Self::default() }
    }

    /// The name of a state or type, for people.
    pub(crate) fn name(&self, state: State) -> Box<str> {
        match state {
            State::Running => "running".into(),
            State::Wall => "running or waiting".into(),
            State::Waiting => "waiting".into(),
            State::Type(number) => match &*self.types[number as usize].kind {
                "" => "values".into(),
                kind => clean(kind),
            },
        }
    }

    /// The unit of weights.
    pub(crate) fn unit(&self, state: State) -> Unit {
        let State::Type(number) = state else { return Unit::Nanoseconds };
        let of = &self.types[number as usize];
        match &*of.unit {
            "nanoseconds" => Unit::Nanoseconds,
            "bytes" => Unit::Bytes,
            _ => Unit::Count(clean(of.counted())),
        }
    }

    /// The number of a type; `None` if there are too many.
    fn number_of(&mut self, own: ShownType) -> Option<u32> {
        let number = self.types.iter().position(|known| *known == own).unwrap_or(self.types.len());
        if number == self.types.len() && number < MOST_TYPES {
            self.types.push(own);
        }
        (number < self.types.len()).then_some(number as u32)
    }

    /// The title of the view: one process and the number of others; `None` if no process has a name.
    pub(crate) fn title(&self) -> Option<String> {
        let mut labels: Vec<&str> = self.processes.iter().map(|process| &*process.label).collect();
        labels.retain(|label| !label.is_empty());
        Some(terminal::with_others(labels.first()?, labels.len() - 1))
    }

    /// Reads a batch, without the frames that pprof's `drop_frames` hides. Reads the preferred type of each scope
    /// ([`profbridge_wire::folded::choice`]) and, with `all_types`, the others after it.
    pub(crate) fn read(&mut self, batch: &Profiles, mut take: impl FnMut(&ResolvedSample<'_>)) {
        match pruned(batch) {
            Some(pruned) => self.read_all(&pruned.batch, &mut take),
            None => self.read_all(batch, &mut take),
        }
    }

    fn read_all(&mut self, batch: &Profiles, take: &mut impl FnMut(&ResolvedSample<'_>)) {
        let mut cache = StackCache::new(batch);
        for resource in batch.resources() {
            let mut threads = HashMap::new();
            for scope in &resource.scopes {
                let types = shown(batch, scope, true);
                for chosen in [true, false] {
                    let of = scope.profiles.iter().zip(&types).filter(|(_, shown)| shown.is_chosen == chosen);
                    for (profile, shown) in of {
                        if chosen || self.all_types {
                            let place = BatchProfile { resource: &resource.resource, profile, shown };
                            self.read_profile(batch, place, &mut cache, &mut threads, take);
                        } else {
                            let observations = self.not_shown.add(batch, profile);
                            self.losses.add_observations(Reason::OtherType, observations);
                        }
                    }
                }
            }
        }
    }

    fn read_profile(
        &mut self,
        batch: &Profiles,
        place: BatchProfile<'_>,
        of: &mut StackCache<'_>,
        threads: &mut HashMap<ThreadAttributes, ThreadAndState>,
        take: &mut impl FnMut(&ResolvedSample<'_>),
    ) {
        let BatchProfile { profile, shown, .. } = place;
        let of_profile = match &shown.own {
            Some(own) => match self.number_of(own.clone()) {
                Some(number) => State::Type(number),
                None => {
                    let observations = batch.observations_of(profile);
                    return self.losses.add_observations(Reason::LimitExceeded, observations);
                }
            },
            None => match Mode::of(batch.dictionary(), profile) {
                Mode::OffCpu => State::Waiting,
                Mode::Wall => State::Wall,
                Mode::Cpu | Mode::Other => State::Running,
            },
        };
        let period = match of_profile {
            State::Type(_) => u64::from(shown.own.as_ref().is_some_and(|own| own.counted() == "samples")),
            _ => Meaning::of(batch.dictionary(), profile).map_or(0, |meaning| meaning.period_nanos),
        };
        let mut observed = Vec::new();
        for sample in batch.samples(profile) {
            // A sample without thread attributes belongs to the thread of its profile.
            let (thread, stated, awaited) =
                *threads.entry((sample.attributes, profile.attributes)).or_insert_with(|| {
                    let stated = thread::ThreadState::of(batch.dictionary(), sample.attributes);
                    (self.thread(batch, &place, sample.attributes), stated, self.awaited(batch, sample.attributes))
                });
            let state = stated.filter(|_| of_profile == State::Wall).map_or(of_profile, State::from);
            let found = thread.ok_or(Reason::LimitExceeded);
            let found = found.and_then(|thread| Ok((thread, self.stacks.resolve(of, sample.stack)?)));
            match found {
                Ok((thread, ResolvedStack { node, lines })) => {
                    let awaited = awaited.filter(|_| state == State::Waiting);
                    let node = awaited.and_then(|awaited| self.stacks.child(node, awaited)).unwrap_or(node);
                    let span = sample.link.map(|id| *batch.dictionary().link(id));
                    let is_timed = !sample.timestamps_bytes().is_empty();
                    self.weigh(&sample, profile.time_unix_nano, shown.scale, &mut observed);
                    take(&ResolvedSample { thread, state, period, node, lines, span, is_timed, observed: &observed });
                }
                Err(reason) => self.losses.add_observations(reason, sample.observations()),
            }
        }
    }

    /// Finds the observations of a sample that have a place. Those without times of their own are one, at `start`.
    fn weigh(&mut self, sample: &Sample<'_>, start: u64, scale: u64, observed: &mut Vec<(u64, i64)>) {
        observed.clear();
        let mut add = |time, value: i64| {
            let weight = i64::try_from(i128::from(value) * i128::from(scale)).ok();
            let sum = weight.and_then(|weight| self.sum.checked_add(weight.unsigned_abs()));
            match (weight, sum.filter(|&sum| sum <= MOST_WEIGHT)) {
                _ if value < 0 && !self.reads_negative => self.losses.add_observations(Reason::NegativeValue, 1),
                (Some(weight), Some(sum)) => {
                    self.sum = sum;
                    observed.push((time, weight));
                }
                _ => self.losses.add_observations(Reason::LimitExceeded, 1),
            }
        };
        let mut values = sample.values();
        if sample.timestamps_bytes().is_empty() {
            return add(start, values.fold(0, i64::saturating_add));
        }
        let counts_itself = sample.values_bytes().is_empty();
        for time in sample.timestamps() {
            add(time, if counts_itself { 1 } else { values.next().unwrap_or_default() });
        }
    }

    /// The number of the frame that says for which file or socket a thread waited, if that is known.
    fn awaited(&mut self, batch: &Profiles, attributes: Option<AttributeSetId>) -> Option<u32> {
        let Some(Value::String(name)) = batch.dictionary().find(attributes, AWAITED) else { return None };
        let frame = frame_for(&clean(batch.dictionary().string(*name)));
        self.stacks.function(StackFunction::placeholder(&frame))
    }

    /// The number of the thread that attributes identify; `None` if there are too many.
    fn thread(
        &mut self,
        batch: &Profiles,
        place: &BatchProfile<'_>,
        attributes: Option<AttributeSetId>,
    ) -> Option<u32> {
        let dictionary = batch.dictionary();
        let process = self.process(folded::NamedProcess::of(batch, place.resource, attributes, self.called_by))?;
        let identity =
            Identity::of(dictionary, attributes).or_else(|| Identity::of(dictionary, place.profile.attributes));
        let (id, name) = identity.map_or_else(Default::default, |Identity { id, name }| (id, name));
        let thread = Thread { process, name: clean(dictionary.string(name)), id: clean(&id) };
        number(&mut self.threads, &mut self.thread_numbers, thread)
    }

    fn process(&mut self, of: folded::NamedProcess<'_>) -> Option<u32> {
        let process = Process { label: clean(&of.to_string()), pid: of.pid };
        number(&mut self.processes, &mut self.process_numbers, process)
    }
}

fn number<T: Clone + Eq + std::hash::Hash>(all: &mut Vec<T>, numbers: &mut HashMap<T, u32>, one: T) -> Option<u32> {
    if let Some(&known) = numbers.get(&one) {
        return Some(known);
    }
    if all.len() >= MOST_THREADS {
        return None;
    }
    let new = all.len() as u32;
    all.push(one.clone());
    numbers.insert(one, new);
    Some(new)
}

/// The attributes that identify a sample's thread within a resource: its own, and those of its profile.
type ThreadAttributes = (Option<AttributeSetId>, Option<AttributeSetId>);

/// What a sample's attributes say: number of the thread (`None` if there are too many), state of the thread, and the
/// frame of what it waited for, if given.
type ThreadAndState = (Option<u32>, Option<thread::ThreadState>, Option<u32>);

#[derive(Clone, Copy)]
struct BatchProfile<'a> {
    resource: &'a Resource,
    profile: &'a Profile,
    shown: &'a Shown,
}
