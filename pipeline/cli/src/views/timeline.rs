//! Observations sorted by time, per thread and with running and waiting time separated, for viewers with a time axis.

use std::cmp::Reverse;
use std::collections::HashMap;

use profbridge_model::{Link, Profiles, Reason};

use super::reading::{MOST_WEIGHT, Process, Reading, State, Thread, Unit};
use super::stacks::Node;
use super::sums::Lines;

/// The most observations, 24 bytes each.
const MOST_OBSERVATIONS: usize = 8 << 20;

/// The most spans that are distinguished. Observations of further spans are stored without a span.
const MOST_SPANS: usize = 1 << 18;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observation {
    /// Time in nanoseconds since the Unix epoch; 0 if unknown.
    pub(crate) time_unix_nano: u64,
    /// The stack.
    pub(crate) node: Node,
    /// The number of its span, counted from 1; 0 without one.
    pub(crate) span: u32,
    /// Duration or count; negative in a difference of profiles.
    pub(crate) weight: i64,
}

/// The observations of one thread in one state.
#[derive(Debug)]
pub(crate) struct Track {
    /// Number of the thread.
    pub(crate) thread: u32,
    pub(crate) state: State,
    pub(crate) observations: Vec<Observation>,
}

impl Track {
    /// The sum of the absolute weights.
    pub(crate) fn weight(&self) -> u64 {
        self.observations.iter().fold(0, |sum, one| sum.saturating_add(one.weight.unsigned_abs()))
    }
}

/// The observations of any number of batches.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// Resolved samples, and what was lost.
    pub(crate) reading: Reading,
    tracks: Vec<Track>,
    numbers: HashMap<(u32, State), usize>,
    /// The numbers of spans, counted from 1.
    pub(crate) spans: HashMap<Link, u32>,
    /// Lines of own code.
    pub(crate) lines: Lines,
    held: usize,
    /// The sum of the absolute weights.
    weight: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        let (tracks, numbers, spans, lines) = Default::default();
        let reading = Reading { all_types: true, ..Reading::default() };
        Self { reading, tracks, numbers, spans, lines, held: 0, weight: 0 }
    }
}

impl Timeline {
    pub(crate) fn add(&mut self, batch: &Profiles) {
        let Self { reading, tracks, numbers, spans, lines, held, weight: sum } = self;
        let mut refused = 0;
        reading.read(batch, |observed| {
            let (thread, state) = (observed.thread, observed.state);
            let at = *numbers.entry((thread, state)).or_insert_with(|| {
                tracks.push(Track { thread, state, observations: Vec::new() });
                tracks.len() - 1
            });
            let node = observed.node;
            let span = observed.span.map_or(0, |span| {
                let next = spans.len() as u32 + 1;
                if spans.len() < MOST_SPANS {
                    *spans.entry(span).or_insert(next)
                } else {
                    spans.get(&span).copied().unwrap_or(0)
                }
            });
            let before = *sum;
            observed.each(|time_unix_nano, weight| {
                let fitting = i64::try_from(weight).ok().filter(|_| *held < MOST_OBSERVATIONS);
                let with_it = |weight: i64| sum.checked_add(weight.unsigned_abs()).filter(|&sum| sum <= MOST_WEIGHT);
                let Some((weight, with_it)) = fitting.and_then(|weight| Some((weight, with_it(weight)?))) else {
                    refused += 1;
                    return;
                };
                *sum = with_it;
                *held += 1;
                tracks[at].observations.push(Observation { time_unix_nano, node, span, weight });
            });
            lines.add(observed, *sum - before);
        });
        reading.losses.add_observations(Reason::LimitExceeded, refused);
    }

    /// The unit of a track's weights.
    pub(crate) fn unit(&self, track: &Track) -> Unit {
        self.reading.unit(track.state)
    }

    /// Drops and counts observations with negative weights.
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

    /// Whether all weights are zero.
    pub(crate) fn is_empty(&self) -> bool {
        self.weight == 0
    }

    pub(crate) fn thread(&self, track: &Track) -> (&Thread, &Process) {
        let thread = &self.reading.threads[track.thread as usize];
        (thread, &self.reading.processes[thread.process as usize])
    }

    /// The label of a track: process if known, thread, and the state unless it is the default one.
    pub(crate) fn name(&self, track: &Track) -> String {
        let (thread, process) = self.thread(track);
        let parts = [process.label.to_string(), thread_name(thread)];
        let mut name = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        if name.is_empty() {
            name.push_str("all threads");
        }
        name + &self.suffix(track)
    }

    /// The suffix of a thread's name if the track's state is not the default one.
    pub(crate) fn suffix(&self, track: &Track) -> String {
        match track.state {
            State::Running => String::new(),
            state => format!(" [{}]", self.reading.name(state)),
        }
    }

    /// Sorts the observations of each track by time.
    pub(crate) fn sort(&mut self) {
        for track in &mut self.tracks {
            track.observations.sort_by_key(|one| (one.time_unix_nano, one.node));
        }
    }

    /// All tracks: running time first, and within each state by descending weight.
    pub(crate) fn tracks(&self) -> Vec<&Track> {
        let mut tracks: Vec<&Track> = self.tracks.iter().filter(|track| !track.observations.is_empty()).collect();
        tracks.sort_by_cached_key(|track| (track.state, Reverse(track.weight()), self.name(track)));
        tracks
    }
}

/// The label of a thread; empty if nothing is known.
pub(crate) fn thread_name(thread: &Thread) -> String {
    match (&*thread.name, &*thread.id) {
        ("", "") => String::new(),
        ("", id) => format!("thread {id}"),
        (name, "") => name.to_owned(),
        (name, id) => format!("{name} (thread {id})"),
    }
}
