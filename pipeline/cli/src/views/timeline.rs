//! Observations sorted by time, per thread and with running and waiting time separated, for viewers with a time axis.

use std::cmp::Reverse;
use std::collections::HashMap;

use profbridge_model::{Link, Profiles, Reason, Spans};
use profbridge_wire::spans::SpanView;

use super::reading::{Process, Reading, State, Thread, Unit};
use super::stacks::{Node, clean};
use super::sums::Lines;
use crate::terminal::shortened;

/// The most observations, 24 bytes each.
const MOST_OBSERVATIONS: usize = 8 << 20;

/// The most spans that are distinguished. Observations of further ones have none.
const MOST_SPANS: usize = 1 << 18;

/// How many spans a request is looked for above a span.
const MOST_CALLERS: usize = 64;

/// Attributes that say more of a request than a span's name, by OpenTelemetry's conventions.
const DETAILS: [&str; 6] = ["url.path", "http.target", "url.full", "http.url", "db.query.text", "db.statement"];

/// What a trace says of a span.
#[derive(Debug)]
struct NamedSpan {
    name: Box<str>,
    /// The span that called it in its process.
    parent: Option<[u8; 8]>,
    /// Start and end in nanoseconds since the Unix epoch.
    start: u64,
    end: u64,
}

/// An observation.
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
    /// State of the thread.
    pub(crate) state: State,
    /// The observations.
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
    /// What traces say of spans.
    named_spans: HashMap<[u8; 8], NamedSpan>,
    /// Lines of own code.
    pub(crate) lines: Lines,
    held: usize,
}

impl Default for Timeline {
    fn default() -> Self {
        let (tracks, numbers, spans, named_spans, lines) = Default::default();
        let reading = Reading { all_types: true, ..Reading::default() };
        Self { reading, tracks, numbers, spans, named_spans, lines, held: 0 }
    }
}

impl Timeline {
    /// Adds a batch.
    pub(crate) fn add(&mut self, batch: &Profiles) {
        let Self { reading, tracks, numbers, spans, lines, held, .. } = self;
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
            let room = observed.observed.len().min(MOST_OBSERVATIONS - *held);
            refused += (observed.observed.len() - room) as u64;
            *held += room;
            let of = |&(time_unix_nano, weight): &(u64, i64)| Observation { time_unix_nano, node, span, weight };
            tracks[at].observations.extend(observed.observed[..room].iter().map(of));
            lines.add(observed, observed.weight());
        });
        reading.losses.add_observations(Reason::LimitExceeded, refused);
    }

    /// Takes the names of spans from traces.
    pub(crate) fn name_spans(&mut self, batch: &Spans) {
        for span in batch.spans().iter().take(MOST_SPANS.saturating_sub(self.named_spans.len())) {
            let view = SpanView::of(batch, span);
            let details = DETAILS.iter().filter_map(|key| view.attribute(key)?.into_text());
            let detail = details.map(|detail| clean(&detail)).find(|detail| !detail.is_empty());
            let name = match (clean(&view.name()), detail) {
                (name, Some(detail)) if !name.contains(&*detail) => format!("{name} ({})", shortened(&detail, 60)),
                (name, _) => name.into(),
            };
            let parent = span.parent_span_id.filter(|_| !span.is_local_root()).map(|parent| *parent.bytes());
            let (start, end) = (span.start_unix_nano, span.end_unix_nano);
            self.named_spans.insert(*span.span_id.bytes(), NamedSpan { name: name.into(), parent, start, end });
        }
    }

    /// The label of a span, with its times after `first`, and the name of the request that it belongs to: that of the
    /// span that none of its process called. Of a span without a name its id.
    pub(crate) fn span_name(&self, id: [u8; 8], first: u64) -> (String, Box<str>) {
        let Some(span) = self.named_spans.get(&id) else {
            return (format!("{:016x}", u64::from_be_bytes(id)), "".into());
        };
        let mut request = span;
        for _ in 0..MOST_CALLERS {
            let Some(parent) = request.parent.and_then(|parent| self.named_spans.get(&parent)) else { break };
            request = parent;
        }
        let seconds = |nano: u64| nano as f64 / 1e9;
        let after = seconds(span.start) - seconds(first);
        let label = format!("{}: {:.1} ms, from {after:.3} s", span.name, seconds(span.end - span.start) * 1e3);
        (label, request.name.clone())
    }

    /// The unit of a track's weights.
    pub(crate) fn unit(&self, track: &Track) -> Unit {
        self.reading.unit(track.state)
    }

    /// Whether all weights are zero.
    pub(crate) fn is_empty(&self) -> bool {
        self.reading.sum == 0
    }

    /// The thread and process of a track.
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
