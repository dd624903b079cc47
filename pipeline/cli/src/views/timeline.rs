//! Samples in the order of their times, thread by thread, and running time apart from waiting time: what viewers with
//! a time axis are given.

use std::cmp::Reverse;
use std::collections::HashMap;

use profbridge_model::{Profiles, Reason};

use super::reading::{MOST_WEIGHT, Process, Reading, State, Thread, Unit};
use super::stacks::Node;

/// The most observations that are held, of 24 bytes each.
const MOST_OBSERVATIONS: usize = 8 << 20;

/// An observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observation {
    /// When it was made, in nanoseconds since the Unix epoch; 0 where that is not known.
    pub(crate) time_unix_nano: u64,
    /// The stack.
    pub(crate) node: Node,
    /// For how long the stack stood, or how much it counts; below zero in a difference.
    pub(crate) weight: i64,
}

/// What a thread did in one state.
#[derive(Debug)]
pub(crate) struct Track {
    /// The number of the thread.
    thread: u32,
    /// What it did.
    pub(crate) state: State,
    /// The observations.
    pub(crate) observations: Vec<Observation>,
}

impl Track {
    /// The sum of all weights, whatever their signs.
    pub(crate) fn weight(&self) -> u64 {
        self.observations.iter().fold(0, |sum, one| sum.saturating_add(one.weight.unsigned_abs()))
    }
}

/// The samples of any number of batches.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// What was read, and what was not.
    pub(crate) reading: Reading,
    tracks: Vec<Track>,
    numbers: HashMap<(u32, State), usize>,
    held: usize,
    /// The sum of all weights, whatever their signs.
    weight: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        let (tracks, numbers) = (Vec::new(), HashMap::new());
        let reading = Reading { all_types: true, ..Reading::default() };
        Self { reading, tracks, numbers, held: 0, weight: 0 }
    }
}

impl Timeline {
    /// Takes a batch.
    pub(crate) fn add(&mut self, batch: &Profiles) {
        let Self { reading, tracks, numbers, held, weight: sum } = self;
        let mut refused = 0;
        reading.read(batch, |observed| {
            let (thread, state) = (observed.thread, observed.state);
            let at = *numbers.entry((thread, state)).or_insert_with(|| {
                tracks.push(Track { thread, state, observations: Vec::new() });
                tracks.len() - 1
            });
            let node = observed.node;
            observed.each(|time_unix_nano, weight| {
                let fitting = i64::try_from(weight).ok().filter(|_| *held < MOST_OBSERVATIONS);
                let with_it = |weight: i64| sum.checked_add(weight.unsigned_abs()).filter(|&sum| sum <= MOST_WEIGHT);
                let Some((weight, with_it)) = fitting.and_then(|weight| Some((weight, with_it(weight)?))) else {
                    refused += 1;
                    return;
                };
                *sum = with_it;
                *held += 1;
                tracks[at].observations.push(Observation { time_unix_nano, node, weight });
            });
        });
        reading.losses.add_observations(Reason::LimitExceeded, refused);
    }

    /// What the weights of a track are a number of.
    pub(crate) fn unit(&self, track: &Track) -> Unit {
        self.reading.unit(track.state)
    }

    /// Leaves out, and counts, what has a weight below zero.
    pub(crate) fn leave_out_negative(&mut self) {
        let mut count = 0;
        for track in &mut self.tracks {
            let before = track.observations.len();
            track.observations.retain(|one| one.weight >= 0);
            count += (before - track.observations.len()) as u64;
        }
        self.weight = self.tracks.iter().map(Track::weight).sum();
        self.reading.losses.add_observations(Reason::NegativeValue, count);
    }

    /// Whether nothing in it has any weight.
    pub(crate) fn is_empty(&self) -> bool {
        self.weight == 0
    }

    /// The thread of a track, and its process.
    pub(crate) fn thread(&self, track: &Track) -> (&Thread, &Process) {
        let thread = &self.reading.threads[track.thread as usize];
        (thread, &self.reading.processes[thread.process as usize])
    }

    /// What a track is called: its process where that is known, its thread, and its state where it is not the first
    /// that a person looks for.
    pub(crate) fn name(&self, track: &Track) -> String {
        let (thread, process) = self.thread(track);
        let parts = [process.label.to_string(), thread_name(thread)];
        let mut name = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        if name.is_empty() {
            name.push_str("all threads");
        }
        name + &self.suffix(track)
    }

    /// What stands behind the name of a thread, where a track is not of the state that a person looks for first.
    pub(crate) fn suffix(&self, track: &Track) -> String {
        match track.state {
            State::Running => String::new(),
            state => format!(" [{}]", self.reading.name(state)),
        }
    }

    /// Puts the observations of each track into the order of their times.
    pub(crate) fn sort(&mut self) {
        for track in &mut self.tracks {
            track.observations.sort_by_key(|one| (one.time_unix_nano, one.node));
        }
    }

    /// The tracks: running time first, and of each state the heaviest first.
    pub(crate) fn tracks(&self) -> Vec<&Track> {
        let mut tracks: Vec<&Track> = self.tracks.iter().filter(|track| !track.observations.is_empty()).collect();
        tracks.sort_by_cached_key(|track| (track.state, Reverse(track.weight()), self.name(track)));
        tracks
    }
}

/// What a thread is called; empty where nothing is known of it.
pub(crate) fn thread_name(thread: &Thread) -> String {
    match (&*thread.name, &*thread.id) {
        ("", "") => String::new(),
        ("", id) => format!("thread {id}"),
        (name, "") => name.to_owned(),
        (name, id) => format!("{name} (thread {id})"),
    }
}
