//! Links the observations of a batch with the spans that were active on their threads.

use hashbrown::{HashMap, HashSet};
use profbridge_identity::{Processes, RequestId, Rules};
use profbridge_model::dictionary::Link;
use profbridge_model::profiles::Linker;
use profbridge_model::thread::SampleThread;
use profbridge_model::{AttributeSetId, IdentityStrength, Profile, Profiles, Sample};

use super::event_loops::EventLoopStacks;
use super::known::{KnownSpans, SpansOfThreads};
use super::notes::ObservationCounts;
use super::timeline::{ActiveSpan, SpanTimeline};
use crate::index::Index;
use crate::observed_times::TimeRange;

/// How the samples of one process and attribute set are linked.
#[derive(Debug, Clone, Copy)]
enum SampleLane {
    /// By this course of a thread (its position in `timelines`).
    SpanTimeline(u32),
    /// No span of the thread is known.
    NoSpan,
    NoThread,
    /// The process is not known.
    NoProcess,
}

/// Links the samples of one batch.
pub(super) struct BatchLinker<'a> {
    known: &'a mut KnownSpans,
    index: &'a Index,
    main_thread: bool,
    counts: &'a mut ObservationCounts,
    processes: Processes,
    /// The time range of the batch.
    during: TimeRange,
    /// The spans of a process, by the hash of its identity.
    on_threads: HashMap<u128, SpansOfThreads>,
    lanes: HashMap<(u32, Option<AttributeSetId>), SampleLane>,
    /// By process and thread id: one thread may have many attribute sets.
    by_thread: HashMap<(u128, String), SampleLane>,
    timelines: Vec<SpanTimeline>,
    /// The process and attribute set of the last sample, and its lane.
    last: Option<((u32, Option<AttributeSetId>), SampleLane)>,
    /// The course of the current sample, and the time range of its profile with both ends inclusive.
    at: usize,
    range: Option<(u64, u64)>,
}

impl<'a> BatchLinker<'a> {
    pub(super) fn new(
        profiles: &Profiles,
        rules: &Rules,
        known: &'a mut KnownSpans,
        index: &'a Index,
        main_thread: bool,
        counts: &'a mut ObservationCounts,
    ) -> Self {
        // Spans that samples name get their thread here; this helps other spans of the same thread.
        profiles.dictionary().tables().links.iter().skip(1).for_each(|link| known.assign_sampled(link, index));
        let mut processes = Processes::new(profiles, rules, RequestId::default());
        note_event_loops(profiles, &mut processes, known);
        Self {
            known,
            index,
            main_thread,
            counts,
            processes,
            during: times(profiles),
            on_threads: HashMap::default(),
            lanes: HashMap::default(),
            by_thread: HashMap::default(),
            timelines: Vec::new(),
            last: None,
            at: 0,
            range: None,
        }
    }

    fn lane(&mut self, profiles: &Profiles, process: u32, set: Option<AttributeSetId>) -> SampleLane {
        if let Some(known) = self.lanes.get(&(process, set)) {
            return *known;
        }
        let lane = self.find_lane(profiles, process, set);
        self.lanes.insert((process, set), lane);
        lane
    }

    fn find_lane(&mut self, profiles: &Profiles, process: u32, set: Option<AttributeSetId>) -> SampleLane {
        let identity = self.processes.get(process).identity;
        if identity.alone || identity.strength == IdentityStrength::Weak {
            return SampleLane::NoProcess;
        }
        let Some(thread) = SampleThread::of(profiles.dictionary(), set) else { return SampleLane::NoThread };
        let Self { known, index, main_thread, on_threads, by_thread, timelines, during, .. } = self;
        let on_threads = on_threads
            .entry(identity.hash)
            .or_insert_with(|| known.on_threads(index, identity.hash, *during, *main_thread));
        *by_thread.entry((identity.hash, thread.id)).or_insert_with_key(|(process, thread)| {
            let Some(spans) = on_threads.get(thread) else { return SampleLane::NoSpan };
            timelines.push(known.timeline(*process, thread, spans));
            SampleLane::SpanTimeline(timelines.len() as u32 - 1)
        })
    }
}

impl Linker for BatchLinker<'_> {
    fn sample(&mut self, profiles: &Profiles, resource: u32, profile: &Profile, sample: &Sample<'_>) -> bool {
        if sample.link.is_some() {
            self.counts.had_link += sample.observations();
            return false;
        }
        let Some(process) = self.processes.of(resource, sample.attributes) else {
            self.counts.no_process += sample.observations();
            return false;
        };
        let key = (process, sample.attributes.or(profile.attributes));
        let lane = match self.last {
            Some((last, lane)) if last == key => lane,
            _ => self.lane(profiles, key.0, key.1),
        };
        self.last = Some((key, lane));
        let count = match lane {
            SampleLane::SpanTimeline(at) => {
                self.at = at as usize;
                let (start, duration) = (profile.time_unix_nano, profile.duration_nano);
                self.range = (start > 0).then(|| (start, start.saturating_add(duration)));
                return true;
            }
            SampleLane::NoSpan => &mut self.counts.no_span,
            SampleLane::NoThread => &mut self.counts.no_thread,
            SampleLane::NoProcess => &mut self.counts.no_process,
        };
        *count += sample.observations();
        false
    }

    #[inline]
    fn observation(&mut self, time: Option<u64>) -> Option<Link> {
        let timeline = &mut self.timelines[self.at];
        let active = match (time, self.range) {
            (Some(time), _) => Some(timeline.at(time)),
            (None, Some((start, end))) => timeline.throughout(start, end),
            (None, None) => None,
        };
        match active {
            Some(ActiveSpan::Span(span)) => {
                self.counts.linked += 1;
                return Some(self.known.link(span));
            }
            Some(ActiveSpan::Nothing) => self.counts.no_span += 1,
            Some(ActiveSpan::Several) => self.counts.ambiguous += 1,
            None => self.counts.no_time += 1,
        }
        None
    }
}

/// Remembers which threads run an event loop according to their stacks, before their samples are linked.
fn note_event_loops(profiles: &Profiles, processes: &mut Processes, known: &mut KnownSpans) {
    let dictionary = profiles.dictionary();
    let Some(mut stacks) = EventLoopStacks::new(dictionary) else { return };
    let mut noted = HashSet::<(u32, Option<AttributeSetId>)>::default();
    for (resource, of_resource) in profiles.resources().iter().enumerate() {
        for profile in of_resource.scopes.iter().flat_map(|scope| &scope.profiles) {
            for sample in profiles.samples(profile) {
                let set = sample.attributes.or(profile.attributes);
                let Some(process) = processes.of(resource as u32, sample.attributes) else { continue };
                if !noted.contains(&(process, set)) && stacks.has(dictionary, sample.stack) {
                    noted.insert((process, set));
                    let thread = SampleThread::of(dictionary, set);
                    thread.iter().for_each(|of| known.mark_interleaved(processes.get(process).identity.hash, &of.id));
                }
            }
        }
    }
}

/// The time range of a batch.
fn times(profiles: &Profiles) -> TimeRange {
    let mut all = TimeRange { start: u64::MAX, end: 0 };
    let mut add = |start: u64, end: u64| (all.start, all.end) = (all.start.min(start), all.end.max(end));
    for profile in profiles.profiles() {
        if profile.time_unix_nano > 0 {
            add(profile.time_unix_nano, profile.time_unix_nano.saturating_add(profile.duration_nano));
        }
        profiles.samples(profile).for_each(|sample| sample.timestamps().for_each(|time| add(time, time)));
    }
    all
}
