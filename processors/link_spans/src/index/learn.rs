//! Learns from passing profiles: which thread was observed when, and which spans samples name.

use hashbrown::HashMap;
use profbridge_identity::{IdentifiedProcess, ProcessClaims, Processes, RequestId};
use profbridge_model::thread::{self, SampleThread};
use profbridge_model::{Attribute, AttributeSetId, Dictionary, IdentityStrength, LinkId, Meaning, Profiles, Value};
use profbridge_wire::sentry::timestamp::Timestamp;
use xxhash_rust::xxh3::xxh3_64;

use super::innermost_ids::ContainerIds;
use super::sampled_links::SampledPlace;
use super::threads::{ObservedThreads, ThreadId};
use super::{Index, OF_LINKS, ObservedProcess, ProcessProfiler};
use crate::observed_times::TimeRange;

/// Observations of a thread at most this far apart, in nanoseconds, cover the time between them if the profiler also
/// looks at waiting threads: the sampler reports a waiting thread twice a second.
const WALL_GAP: u64 = 1_000_000_000;

/// The minimum of this gap, in nanoseconds, for profilers that only look at running threads; otherwise it is twice the
/// sampling period.
const LEAST_GAP: u64 = 100_000_000;

/// The scope of the built-in sampler. All links of its samples come from live contexts.
const SAMPLER: &str = "profbridge-receiver-ptrace";

/// What a batch contains about one thread of a process, by the attributes of its samples.
#[derive(Debug, Default)]
struct ThreadObservations {
    /// Stretches nearer to each other than `LEAST_GAP` are merged.
    stretches: Vec<TimeRange>,
    /// The spans that samples name, each with its first time.
    links: Vec<(LinkId, u64)>,
}

impl ThreadObservations {
    /// Adds an observation. They arrive mostly in order.
    fn add(&mut self, new: TimeRange) {
        match self.stretches.last_mut() {
            Some(last) if new.start >= last.start && new.start <= last.end.saturating_add(LEAST_GAP) => {
                last.end = last.end.max(new.end);
            }
            _ => self.stretches.push(new),
        }
    }

    /// Adds a span that a sample names.
    fn link(&mut self, link: LinkId, first: u64) {
        match self.links.last_mut() {
            Some((last, time)) if *last == link => *time = (*time).min(first),
            _ => self.links.push((link, first)),
        }
    }
}

impl Index {
    /// Remembers what a batch observed. `arrival` is in nanoseconds since the Unix epoch, `now` is monotonic.
    pub(crate) fn learn(&mut self, profiles: &Profiles, arrival: u64, now: u64) {
        self.requests += 1;
        let request = RequestId { arrival, number: self.requests };
        let mut processes = Processes::new(profiles, &self.rules, request);
        let mut observed: HashMap<(u32, Option<AttributeSetId>), ThreadObservations> = HashMap::default();
        let mut observers: HashMap<u32, Observer> = HashMap::default();
        for (at, resource) in profiles.resources().iter().enumerate() {
            let scopes = resource.scopes.iter();
            for (scope, profile) in
                scopes.flat_map(|scope| scope.profiles.iter().map(|profile| (&scope.scope, profile)))
            {
                let meaning = Meaning::of(profiles.dictionary(), profile);
                let name = profiles.dictionary().string_bytes(scope.name);
                let profiler = ProcessProfiler {
                    name: xxh3_64(name),
                    wall: meaning.is_some_and(|meaning| meaning.wall),
                    reads_contexts: name == SAMPLER.as_bytes(),
                };
                let gap = match meaning {
                    Some(meaning) if meaning.wall => WALL_GAP,
                    Some(meaning) if !meaning.timed_values => meaning.unit_nanos.saturating_mul(2).min(WALL_GAP),
                    _ => LEAST_GAP,
                };
                let end = profile.time_unix_nano.saturating_add(profile.duration_nano);
                for sample in profiles.samples(profile) {
                    let Some(process) = processes.of(at as u32, sample.attributes) else { continue };
                    observers.entry(process).or_insert(Observer { profiler, gap: LEAST_GAP }).join(profiler.wall, gap);
                    let set = sample.attributes.or(profile.attributes);
                    let observed = observed.entry((process, set)).or_default();
                    let mut first = None;
                    for time in sample.timestamps() {
                        observed.add(TimeRange { start: time, end: time });
                        first = Some(first.unwrap_or(time).min(time));
                    }
                    if first.is_none() && profile.time_unix_nano > 0 {
                        observed.add(TimeRange { start: profile.time_unix_nano, end });
                        first = Some(profile.time_unix_nano);
                    }
                    if let Some((link, first)) = sample.link.zip(first) {
                        observed.link(link, first);
                    }
                }
            }
        }
        let batch = ArrivedBatch { profiles, processes: &processes, arrival, now };
        for of in by_process(&processes, observers, observed).into_values() {
            self.learn_process(&batch, of);
        }
    }

    /// Remembers what a batch observed of a process.
    fn learn_process(
        &mut self,
        batch: &ArrivedBatch<'_>,
        ProcessObservations { mut observers, mut threads }: ProcessObservations,
    ) {
        let &ArrivedBatch { profiles, processes, arrival, now, .. } = batch;
        // In their order in the request.
        observers.sort_unstable_by_key(|(position, _)| *position);
        let Some((first, mut observer)) = observers.first().copied().filter(|_| !threads.is_empty()) else { return };
        let of = processes.get(first);
        let number = match self.by_identity.get(&of.identity.hash) {
            Some(known) => *known,
            None => self.add(processes, of, profiles, observer.profiler),
        };
        observers.iter().for_each(|(position, _)| self.merge_claims(number, batch, processes.get(*position)));
        let Some(known) = self.processes.get_mut(&number) else { return };
        known.seen = now;
        observers.iter().for_each(|(_, of)| observer.join(of.profiler.wall, of.gap));
        known.profiler.wall |= observer.profiler.wall;
        let mut stretches: Vec<&mut Vec<TimeRange>> = threads.iter_mut().map(|(_, of)| &mut of.stretches).collect();
        self.times_left_out += known.filter_times(&mut stretches, arrival, now);
        // The latest observation of a thread comes last, so that its name is the one kept.
        threads.sort_by_cached_key(|(set, of)| (of.stretches.iter().map(|stretch| stretch.end).max(), *set));
        let before = known.bytes();
        for (set, observed) in threads {
            self.learn_thread(batch, number, observer.gap, set, observed);
        }
        let after = self.processes.get(&number).map_or(0, |known| known.bytes());
        self.bytes = (self.bytes + after).saturating_sub(before);
    }

    /// Remembers what a batch observed of one thread. Observations at most `gap` apart cover the time between them.
    fn learn_thread(
        &mut self,
        &ArrivedBatch { profiles, now, .. }: &ArrivedBatch<'_>,
        number: u32,
        gap: u64,
        set: Option<AttributeSetId>,
        ThreadObservations { mut stretches, links }: ThreadObservations,
    ) {
        let dictionary = profiles.dictionary();
        let Some(known) = self.processes.get_mut(&number) else { return };
        stretches.sort_unstable();
        let Some(first) = stretches.first().copied() else { return };
        let thread = SampleThread::of(dictionary, set);
        // Observed, but on an unknown thread.
        let id = thread.as_ref().map(|thread| ThreadId::new(&thread.id));
        let id = id.unwrap_or(ThreadId::UNKNOWN);
        let seen = known.threads.get_or_add(id.clone(), first);
        let is_latest = stretches.iter().any(|stretch| stretch.end >= seen.covered.end());
        seen.covered.add(stretches.into_iter(), gap);
        if let Some(name) = thread.as_ref().and_then(|thread| thread.name) {
            seen.learn_name(dictionary.string(Some(name)), is_latest, known.last);
        }
        let pointer = thread::pointer(dictionary, set);
        if let Some(pointer) = pointer.filter(|_| pointer != seen.pointer) {
            seen.pointer = Some(pointer);
            if let Some(name) = known.claims.thread_name(pointer) {
                self.by_thread.add(name, number);
            }
        }
        self.questions.add(known.identity.hash, known.contained.as_mut(), &id);
        for (link, first) in links {
            let place = SampledPlace { process: number, thread: id.clone(), first };
            self.last_link = Some(now);
            self.make_room_for_a_link();
            let known = &self.processes;
            let worth = |place: &SampledPlace, other: &SampledPlace| {
                let process = known.get(&place.process)?;
                let is_forks = |of: &ObservedProcess| process.is_younger(of) || process.inherited(place, other.first);
                let is_own = !known.get(&other.process).is_some_and(|of| is_forks(of));
                let is_named = place.thread != ThreadId::UNKNOWN;
                let earlier = std::cmp::Reverse((place.first, process.identity.hash, place.thread.clone()));
                Some((is_own, process.profiler.wall, is_named, earlier))
            };
            self.sampled_links.add(dictionary.link(link), place, |one, other| worth(one, other) > worth(other, one));
        }
    }

    /// Forgets the older half of the spans named by samples if one more would exceed their memory.
    fn make_room_for_a_link(&mut self) {
        let growth = self.sampled_links.growth();
        if growth > 0
            && self.sampled_links.bytes() + growth > self.share / OF_LINKS
            && self.bytes() + growth > self.share
        {
            self.forgotten.named_spans += self.sampled_links.forget_old();
        }
    }

    /// Adds what a batch says about the identity of a process. Some of it may arrive later than its first profiles,
    /// such as attributes that the process publishes itself, or that an agent in between has to look up.
    fn merge_claims(
        &mut self,
        number: u32,
        &ArrivedBatch { profiles, processes, .. }: &ArrivedBatch<'_>,
        of: IdentifiedProcess,
    ) {
        let is_strong = of.identity.strength == IdentityStrength::Strong;
        let Some(known) = self.processes.get_mut(&number).filter(|_| is_strong) else { return };
        let dictionary = profiles.dictionary();
        known.began = began(dictionary, processes.claimed_attributes(of)).or(known.began);
        let claims = ProcessClaims::of(dictionary, processes.claimed_attributes(of)).or(&known.claims);
        if claims == known.claims {
            return;
        }
        let was_contained = known.claims.may_have_another_pid();
        known.claims = claims;
        claims.names().for_each(|name| self.by_name.add(name, number));
        known.thread_names().for_each(|name| self.by_thread.add(name, number));
        self.any_renamed = true;
        if !was_contained && known.contained.is_none() {
            known.contained = ContainerIds::of(&claims, dictionary, &processes.merged(of));
            self.bytes += known.contained_bytes();
        }
    }

    /// Adds an unknown process and returns its number.
    fn add(
        &mut self,
        processes: &Processes,
        of: IdentifiedProcess,
        profiles: &Profiles,
        profiler: ProcessProfiler,
    ) -> u32 {
        let (dictionary, attributes) = (profiles.dictionary(), processes.merged(of));
        // A process with a weak identity must not be found by its attributes: others may have the same ones.
        let is_strong = of.identity.strength == IdentityStrength::Strong;
        let claims = ProcessClaims::of(dictionary, attributes.iter().copied().filter(|_| is_strong));
        let mut number = self.next;
        while self.processes.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        self.next = number.wrapping_add(1);
        claims.names().for_each(|name| self.by_name.add(name, number));
        self.by_identity.insert(of.identity.hash, number);
        let process = ObservedProcess {
            number,
            identity: of.identity,
            contained: ContainerIds::of(&claims, dictionary, &attributes),
            has_same_ids: false,
            began: began(dictionary, attributes.iter().copied()),
            claims,
            profiler,
            threads: ObservedThreads::default(),
            last: 0,
            leap: None,
            seen: 0,
        };
        self.bytes += process.bytes();
        self.processes.insert(number, Box::new(process));
        number
    }
}

/// When a process began, according to its attributes: of several with the same key the first one counts.
fn began<'a>(dictionary: &Dictionary, mut attributes: impl Iterator<Item = &'a Attribute>) -> Option<u64> {
    let creation = attributes.find(|attribute| dictionary.string(attribute.key) == "process.creation.time")?;
    let Value::String(text) = creation.value else { return None };
    Timestamp::parse(dictionary.string(text)).map(|Timestamp(unix_nano)| unix_nano)
}

/// The profiler that observed a process in a batch, and how.
#[derive(Debug, Clone, Copy)]
struct Observer {
    profiler: ProcessProfiler,
    /// Observations at most this far apart cover the time between them, in nanoseconds.
    gap: u64,
}

impl Observer {
    /// Adds how another profile or resource observed the process.
    fn join(&mut self, wall: bool, gap: u64) {
        self.profiler.wall |= wall;
        self.gap = self.gap.max(gap);
    }
}

/// What a batch contains about one process.
#[derive(Debug, Default)]
struct ProcessObservations {
    /// Its positions in the request, each with its observer: several resources may describe one process.
    observers: Vec<(u32, Observer)>,
    /// Its threads, by the attributes of their samples.
    threads: Vec<(Option<AttributeSetId>, ThreadObservations)>,
}

/// The contents of a batch, by the hash of the identity of the process.
fn by_process(
    processes: &Processes,
    observers: HashMap<u32, Observer>,
    observed: HashMap<(u32, Option<AttributeSetId>), ThreadObservations>,
) -> HashMap<u128, ProcessObservations> {
    let mut all: HashMap<u128, ProcessObservations> = HashMap::default();
    for (position, observer) in observers {
        let identity = processes.get(position).identity;
        if !identity.alone {
            all.entry(identity.hash).or_default().observers.push((position, observer));
        }
    }
    for ((position, set), observed) in observed {
        let identity = processes.get(position).identity;
        // Observations of an indistinguishable process are useless unless they name spans.
        let is_weak = identity.strength == IdentityStrength::Weak && observed.links.is_empty();
        if let Some(of) = all.get_mut(&identity.hash).filter(|_| !is_weak) {
            of.threads.push((set, observed));
        }
    }
    all
}

/// A batch that is being learned.
struct ArrivedBatch<'a> {
    profiles: &'a Profiles,
    processes: &'a Processes,
    /// When it arrived, in nanoseconds since the Unix epoch and in monotonic time.
    arrival: u64,
    now: u64,
}
