//! What batches say of where time went: whose it is, in which state its thread was, and in which stack.

use std::collections::HashMap;

use profbridge_model::meaning::Mode;
use profbridge_model::thread::{self, Thread as Identity};
use profbridge_model::{AttributeSetId, Losses, Profile, Profiles, Reason, Resource, Sample};
use profbridge_wire::folded::choice::{NotShown, Shown, ShownType, shown};
use profbridge_wire::folded::{self, CalledBy};
use profbridge_wire::pprof::pruned;

use super::stacks::{Node, OfBatch, Stacks, clean};
use crate::terminal;

/// What a thread did in the time that is shown, or what is shown instead of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum State {
    /// It ran, or nothing is known but that it was sampled.
    Running,
    /// It was sampled whether it ran or not, and nothing says which.
    Wall,
    /// It was blocked.
    Waiting,
    /// Values of the type with this number, which are no time of threads.
    Type(u32),
}

impl From<thread::State> for State {
    fn from(state: thread::State) -> Self {
        match state {
            thread::State::Running => Self::Running,
            thread::State::Waiting => Self::Waiting,
        }
    }
}

/// What a weight is a number of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// What has this name, such as `samples`.
    Count(Box<str>),
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    /// Its name and its id, as far as they are known.
    pub(crate) label: Box<str>,
    /// Its id.
    pub(crate) pid: Option<u32>,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Thread {
    /// The number of its process.
    pub(crate) process: u32,
    /// Its name; empty where it has none.
    pub(crate) name: Box<str>,
    /// Its id; empty where nothing tells threads apart.
    pub(crate) id: Box<str>,
}

/// A sample with its place.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    /// The number of its thread.
    pub(crate) thread: u32,
    /// What the thread did.
    pub(crate) state: State,
    scale: u64,
    /// Its stack.
    pub(crate) node: Node,
    /// When its profile begins, for samples without a time.
    start: u64,
    sample: Sample<'a>,
}

impl Observed<'_> {
    /// Each time at which it was observed, in nanoseconds since the Unix epoch, with its weight, which is below zero
    /// where its value is.
    pub(crate) fn each(&self, mut take: impl FnMut(u64, i128)) {
        let mut values = self.sample.values();
        if self.sample.timestamps_bytes().is_empty() {
            return take(self.start, self.weigh(values.fold(0, i64::saturating_add)));
        }
        let counts_itself = self.sample.values_bytes().is_empty();
        for time in self.sample.timestamps() {
            let value = if counts_itself { 1 } else { values.next().unwrap_or_default() };
            take(time, self.weigh(value));
        }
    }

    fn weigh(&self, value: i64) -> i128 {
        i128::from(value) * i128::from(self.scale)
    }
}

/// The most that all weights of a view are together: 292 years, or 8 EiB. What exceeds it is lost, so that no sum of
/// them overflows, neither here nor in what reads a file.
pub(crate) const MOST_WEIGHT: u64 = i64::MAX as u64;

/// Reads batches, and keeps what their samples refer to.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// The stacks.
    pub(crate) stacks: Stacks,
    /// The processes, by their numbers.
    pub(crate) processes: Vec<Process>,
    pub(super) process_numbers: HashMap<Process, u32>,
    /// The threads, by their numbers.
    pub(crate) threads: Vec<Thread>,
    pub(super) thread_numbers: HashMap<Thread, u32>,
    /// The types that are no time of threads, by their numbers.
    pub(crate) types: Vec<ShownType>,
    /// What processes are called by.
    pub(crate) called_by: CalledBy,
    /// Whether all types are read, the chosen one of each scope first, and not only that.
    pub(crate) all_types: bool,
    /// The types that were left out.
    pub(crate) not_shown: NotShown,
    /// What was not taken, and why.
    pub(crate) losses: Losses,
}

/// The most types that are told apart.
const MOST_TYPES: usize = 256;

/// The most processes, and the most threads, that are told apart. Further ones are lost.
const MOST_THREADS: usize = 1 << 20;

impl Reading {
    /// What is shown, in words: what threads did, or the name of a type.
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

    /// What weights are a number of.
    pub(crate) fn unit(&self, state: State) -> Unit {
        let State::Type(number) = state else { return Unit::Nanoseconds };
        let of = &self.types[number as usize];
        match &*of.unit {
            "nanoseconds" => Unit::Nanoseconds,
            "bytes" => Unit::Bytes,
            _ => Unit::Count(clean(of.counted())),
        }
    }

    /// The number of a type; `None` where there are too many.
    fn number_of(&mut self, own: ShownType) -> Option<u32> {
        let number = self.types.iter().position(|known| *known == own).unwrap_or(self.types.len());
        if number == self.types.len() && number < MOST_TYPES {
            self.types.push(own);
        }
        (number < self.types.len()).then_some(number as u32)
    }

    /// What all of it is called: a process and how many there are beside it; `None` where none has a name.
    pub(crate) fn title(&self) -> Option<String> {
        let mut labels: Vec<&str> = self.processes.iter().map(|process| &*process.label).collect();
        labels.retain(|label| !label.is_empty());
        Some(terminal::with_others(labels.first()?, labels.len() - 1))
    }

    /// Reads a batch, without the frames that pprof's `drop_frames` says are not to be shown. Of the types of a scope
    /// the chosen ones are taken ([`profbridge_wire::folded::choice`]), behind them the others where all are read.
    pub(crate) fn read(&mut self, batch: &Profiles, mut take: impl FnMut(&Observed<'_>)) {
        match pruned(batch) {
            Some(pruned) => self.read_all(&pruned.batch, &mut take),
            None => self.read_all(batch, &mut take),
        }
    }

    fn read_all(&mut self, batch: &Profiles, take: &mut impl FnMut(&Observed<'_>)) {
        let mut of_batch = OfBatch::new(batch);
        for resource in batch.resources() {
            let mut threads = HashMap::new();
            for scope in &resource.scopes {
                let types = shown(batch, scope, true);
                for chosen in [true, false] {
                    let of = scope.profiles.iter().zip(&types).filter(|(_, shown)| shown.is_chosen == chosen);
                    for (profile, shown) in of {
                        if chosen || self.all_types {
                            let place = Place { resource: &resource.resource, profile, shown };
                            self.read_profile(batch, place, &mut of_batch, &mut threads, take);
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
        place: Place<'_>,
        of: &mut OfBatch,
        threads: &mut HashMap<Attributes, Whose>,
        take: &mut impl FnMut(&Observed<'_>),
    ) {
        let Place { profile, shown, .. } = place;
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
        for sample in batch.samples(profile) {
            // A sample that does not say its thread is of the one that its profile says.
            let (thread, told) = *threads.entry((sample.attributes, profile.attributes)).or_insert_with(|| {
                let told = thread::State::of(batch.dictionary(), sample.attributes);
                (self.thread(batch, &place, sample.attributes), told)
            });
            let state = told.filter(|_| of_profile == State::Wall).map_or(of_profile, State::from);
            let found = thread.ok_or(Reason::LimitExceeded);
            let found = found.and_then(|thread| Ok((thread, self.stacks.node(of, batch, sample.stack)?)));
            match found {
                Ok((thread, node)) => {
                    let (scale, start) = (shown.scale, profile.time_unix_nano);
                    take(&Observed { thread, state, scale, node, start, sample });
                }
                Err(reason) => self.losses.add_observations(reason, sample.observations()),
            }
        }
    }

    /// The number of the thread of a sample's attributes; `None` where there are too many.
    fn thread(&mut self, batch: &Profiles, place: &Place<'_>, attributes: Option<AttributeSetId>) -> Option<u32> {
        let dictionary = batch.dictionary();
        let process = self.process(folded::Process::of(batch, place.resource, attributes, self.called_by))?;
        let identity =
            Identity::of(dictionary, attributes).or_else(|| Identity::of(dictionary, place.profile.attributes));
        let (id, name) = identity.map_or_else(Default::default, |Identity { id, name }| (id, name));
        let thread = Thread { process, name: clean(dictionary.string(name)), id: clean(&id) };
        number(&mut self.threads, &mut self.thread_numbers, thread)
    }

    fn process(&mut self, of: folded::Process<'_>) -> Option<u32> {
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

/// What says whose a sample of a resource is: its own attributes, and those of its profile.
type Attributes = (Option<AttributeSetId>, Option<AttributeSetId>);

/// What the attributes of a sample say: the number of its thread, `None` where there are too many, and what the thread
/// did, where that is said.
type Whose = (Option<u32>, Option<thread::State>);

/// A profile of a batch.
#[derive(Clone, Copy)]
struct Place<'a> {
    resource: &'a Resource,
    profile: &'a Profile,
    shown: &'a Shown,
}
