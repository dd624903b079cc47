//! What is remembered of the profiles that pass: which process was observed by which profiler, its threads, and when.
//!
//! Not the profiles themselves: Sentry finds a profile by the profiler, the thread and the time, so a span needs no more.

use std::num::NonZeroU64;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use profbridge_identity::{Identity, Processes, RequestId, Rules, Side};
use profbridge_model::thread::{self, Thread};
use profbridge_model::{AttributeSetId, IdentityStrength, Meaning, ProfilerId, Profiles};

use crate::covered::{Covered, Stretch};

/// Observations of a thread that are not further apart cover the time between them, where the profiler looks at threads
/// that wait as well: the sampler says what it saw of a waiting thread twice a second.
const WALL_GAP: u64 = 1_000_000_000;

/// The same of profilers that look at running threads only, at least, in nanoseconds; else twice the period.
const LEAST_GAP: u64 = 100_000_000;

/// What a process takes beside its threads, and a thread beside its stretches, in bytes, about.
const PROCESS: u64 = 400;
const THREAD: u64 = 128;

/// What it takes that a thread is found by its pointer, in bytes, about.
const POINTER: u64 = 80;

/// The processes that were observed.
#[derive(Debug)]
pub(crate) struct Index {
    rules: Rules,
    requests: u64,
    by_identity: HashMap<u128, Process, RandomState>,
    by_name: HashMap<u128, Vec<u128>, RandomState>,
    /// By the names of their threads ([`Side::thread_name`]).
    by_thread: HashMap<u128, Vec<u128>, RandomState>,
    bytes: u64,
}

#[derive(Debug)]
struct Process {
    identity: Identity,
    side: Side,
    threads: HashMap<Box<str>, ThreadSeen, RandomState>,
    /// The last observation, in nanoseconds since the Unix epoch.
    last: u64,
    /// When profiles of it came last, in the monotonic time.
    seen: u64,
}

#[derive(Debug, Default)]
struct ThreadSeen {
    name: Option<Box<str>>,
    /// The thread pointer, where it is known.
    pointer: Option<NonZeroU64>,
    covered: Covered,
}

/// Who a span says that it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// What its resource says of the process.
    pub(crate) side: &'a Side,
    /// The pointer of its thread, where it says that.
    pub(crate) pointer: Option<NonZeroU64>,
}

/// Why no process is found for a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotFound {
    /// None that it could be was observed.
    Unknown,
    /// What it could be was not observed up to its end yet.
    NotCovered,
    /// It was observed, and nothing in the span's time.
    Unobserved,
    /// It could be several that were observed in its time.
    Ambiguous,
}

/// A process that was observed during a span.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    process: &'a Process,
    rules: &'a Rules,
    during: Stretch,
    /// Whether nothing named the process but the pointer of one of its threads.
    pub(crate) by_thread: bool,
}

/// A thread that was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundThread<'a> {
    pub(crate) id: &'a str,
    pub(crate) name: Option<&'a str>,
}

impl Index {
    pub(crate) fn new(rules: &Rules) -> Self {
        Self {
            rules: rules.clone(),
            requests: 0,
            by_identity: HashMap::default(),
            by_name: HashMap::default(),
            by_thread: HashMap::default(),
            bytes: 0,
        }
    }

    /// The memory of it, in bytes, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The hosts of processes whose profiles came since a monotonic time ([`Side::hosts`]).
    pub(crate) fn hosts_since(&self, since: u64) -> impl Iterator<Item = u128> {
        self.by_identity.values().filter(move |process| process.seen >= since).flat_map(|process| process.side.hosts())
    }

    /// Remembers what a batch observed. `arrival` is in nanoseconds since the Unix epoch, `now` in the monotonic time.
    pub(crate) fn learn(&mut self, profiles: &Profiles, arrival: u64, now: u64) {
        self.requests += 1;
        let request = RequestId { arrival, number: self.requests };
        let mut processes = Processes::new(profiles, &self.rules, request);
        let mut observed: HashMap<(u32, Option<AttributeSetId>), Vec<Stretch>, RandomState> = HashMap::default();
        let mut gap = LEAST_GAP;
        for (at, resource) in profiles.resources().iter().enumerate() {
            for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
                let meaning = Meaning::of(profiles.dictionary(), profile);
                gap = gap.max(match meaning {
                    Some(meaning) if meaning.wall => WALL_GAP,
                    Some(meaning) if !meaning.timed_values => meaning.unit_nanos.saturating_mul(2).min(WALL_GAP),
                    _ => LEAST_GAP,
                });
                let end = profile.time_unix_nano.saturating_add(profile.duration_nano);
                for sample in profiles.samples(profile) {
                    let Some(process) = processes.of(at as u32, sample.attributes) else { continue };
                    let set = sample.attributes.or(profile.attributes);
                    let stretches = observed.entry((process, set)).or_default();
                    let before = stretches.len();
                    stretches.extend(sample.timestamps().map(|time| Stretch { start: time, end: time }));
                    if stretches.len() == before && profile.time_unix_nano > 0 {
                        stretches.push(Stretch { start: profile.time_unix_nano, end });
                    }
                }
            }
        }
        let dictionary = profiles.dictionary();
        for ((process, set), mut stretches) in observed {
            let process = processes.get(process);
            // What nobody can be told from is nobody's.
            if process.identity.alone || process.identity.strength == IdentityStrength::Weak {
                continue;
            }
            stretches.sort_unstable();
            let known = self.by_identity.entry(process.identity.hash).or_insert_with(|| {
                let side = Side::of(dictionary, processes.merged(process).into_iter());
                for name in side.names() {
                    self.by_name.entry(name).or_default().push(process.identity.hash);
                }
                self.bytes += PROCESS;
                Process { identity: process.identity, side, threads: HashMap::default(), last: 0, seen: now }
            });
            known.seen = now;
            let Some(last) = stretches.last() else { continue };
            known.last = known.last.max(last.end);
            let thread = Thread::of(dictionary, set);
            let (id, name) = match &thread {
                Some(thread) => (thread.id.as_str(), thread.name.map(|name| dictionary.string(Some(name)))),
                // Observed, but nobody knows which thread.
                None => ("", None),
            };
            let seen = known.threads.entry(id.into()).or_insert_with(|| {
                self.bytes += THREAD + id.len() as u64;
                ThreadSeen::default()
            });
            if let Some(name) = name.filter(|_| seen.name.is_none()) {
                self.bytes += name.len() as u64;
                seen.name = Some(name.into());
            }
            let pointer = thread::pointer(dictionary, set);
            if let Some(pointer) = pointer.filter(|_| pointer != seen.pointer) {
                seen.pointer = Some(pointer);
                if let Some(name) = known.side.thread_name(pointer) {
                    let of_name = self.by_thread.entry(name).or_default();
                    if !of_name.contains(&process.identity.hash) {
                        of_name.push(process.identity.hash);
                        self.bytes += POINTER;
                    }
                }
            }
            let before = seen.covered.len();
            stretches.into_iter().for_each(|stretch| seen.covered.add(stretch, gap));
            let size = size_of::<Stretch>() as u64;
            self.bytes = (self.bytes + seen.covered.len() as u64 * size).saturating_sub(before as u64 * size);
        }
    }

    /// The process of a span, given what is said of it, which was observed in the span's time.
    pub(crate) fn find(&self, wanted: Wanted<'_>, during: Stretch) -> Result<Found<'_>, NotFound> {
        let (candidates, by_thread) = self.candidates(wanted);
        if candidates.is_empty() {
            return Err(NotFound::Unknown);
        }
        let observed = |process: &&Process| {
            let wanted_thread = |seen: &&ThreadSeen| !by_thread || seen.pointer == wanted.pointer;
            process.threads.values().filter(wanted_thread).any(|thread| thread.covered.overlaps(during))
        };
        let mut found = candidates.iter().copied().filter(observed);
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => Err(NotFound::Ambiguous),
            (Some(process), None) if process.last >= during.end => {
                Ok(Found { process, rules: &self.rules, during, by_thread })
            }
            // Which thread it was is known when all of its time is.
            (Some(_), None) => Err(NotFound::NotCovered),
            (None, _) if candidates.iter().any(|process| process.last >= during.end) => Err(NotFound::Unobserved),
            (None, _) => Err(NotFound::NotCovered),
        }
    }

    /// The same of a span that does not wait any longer: what was observed of its time up to now has to do.
    pub(crate) fn find_at_last(&self, wanted: Wanted<'_>, during: Stretch) -> Result<Found<'_>, NotFound> {
        match self.find(wanted, during) {
            Err(NotFound::NotCovered) => {
                // Nothing is later than what was observed: the rest of the span's time is not asked for.
                let last = self.candidates(wanted).0.iter().map(|process| process.last).max().unwrap_or(0);
                let last = last.min(during.end);
                if last < during.start {
                    return Err(NotFound::NotCovered);
                }
                self.find(wanted, Stretch { start: during.start, end: last }).map(|found| Found { during, ..found })
            }
            other => other,
        }
    }

    /// The processes that a span may be of, and whether only the pointer of its thread says that: where nothing that the
    /// span says names one.
    fn candidates(&self, wanted: Wanted<'_>) -> (Vec<&Process>, bool) {
        let mut found: Vec<&Process> = Vec::new();
        let mut add = |hashes: Option<&Vec<u128>>| {
            for hash in hashes.into_iter().flatten() {
                let Some(process) = self.by_identity.get(hash) else { continue };
                let is_new = !found.iter().any(|known| known.identity.hash == *hash);
                if is_new && process.side.agrees(wanted.side) {
                    found.push(process);
                }
            }
        };
        wanted.side.names().for_each(|name| add(self.by_name.get(&name)));
        if !found.is_empty() {
            return (found, false);
        }
        let name = wanted.pointer.and_then(|pointer| wanted.side.thread_name(pointer));
        let hashes = name.and_then(|name| self.by_thread.get(&name)).into_iter().flatten();
        let processes = hashes.filter_map(|hash| self.by_identity.get(hash));
        (processes.filter(|process| process.side.agrees(wanted.side)).collect(), true)
    }

    /// Forgets what ended `keep` nanoseconds before the last observation of its process, and processes of which nothing
    /// came for so long.
    pub(crate) fn forget(&mut self, now: u64, keep: u64) {
        self.by_identity.retain(|_, process| {
            let before = process.last.saturating_sub(keep);
            process.threads.retain(|_, thread| thread.covered.forget_before(before));
            now.saturating_sub(process.seen) <= keep && !process.threads.is_empty()
        });
        self.drop_names();
    }

    /// Forgets the processes that were not seen for the longest time, until so many bytes are left. How many.
    pub(crate) fn shrink(&mut self, max_bytes: u64) -> u64 {
        if self.bytes <= max_bytes {
            return 0;
        }
        let mut by_age: Vec<(u64, u128)> = self.by_identity.iter().map(|(hash, of)| (of.seen, *hash)).collect();
        by_age.sort_unstable();
        let mut forgotten = 0;
        for (_, hash) in by_age {
            if self.bytes <= max_bytes / 2 {
                break;
            }
            if let Some(process) = self.by_identity.remove(&hash) {
                self.bytes = self.bytes.saturating_sub(process.bytes());
                forgotten += 1;
            }
        }
        self.drop_names();
        forgotten
    }

    /// Forgets the names of processes and threads that are forgotten.
    fn drop_names(&mut self) {
        let known = &self.by_identity;
        self.by_name.retain(|_, hashes| {
            hashes.retain(|hash| known.contains_key(hash));
            !hashes.is_empty()
        });
        self.by_thread.clear();
        for process in known.values() {
            let names = process.threads.values().filter_map(|thread| process.side.thread_name(thread.pointer?));
            for name in names {
                let hashes = self.by_thread.entry(name).or_default();
                // The pointer of a thread that ended is used again.
                if !hashes.contains(&process.identity.hash) {
                    hashes.push(process.identity.hash);
                }
            }
        }
        let of_threads: usize = self.by_thread.values().map(Vec::len).sum();
        self.bytes = known.values().map(Process::bytes).sum::<u64>() + of_threads as u64 * POINTER;
    }
}

impl Process {
    fn bytes(&self) -> u64 {
        let threads = self.threads.iter().map(|(id, thread)| {
            let texts = id.len() + thread.name.as_ref().map_or(0, |name| name.len());
            THREAD + (texts + thread.covered.len() * size_of::<Stretch>()) as u64
        });
        PROCESS + threads.sum::<u64>()
    }
}

impl<'a> Found<'a> {
    /// The id of the profiler that observed it when the span began.
    pub(crate) fn profiler_id(&self) -> ProfilerId {
        let identity = self.process.identity;
        self.rules.profiler_id(identity, self.rules.cell(identity, self.during.start))
    }

    /// The thread with an id, if it was observed in the span's time.
    pub(crate) fn thread(&self, id: &str) -> Option<FoundThread<'a>> {
        let (id, thread) = self.process.threads.get_key_value(id)?;
        (!id.is_empty() && thread.covered.overlaps(self.during))
            .then_some(FoundThread { id, name: thread.name.as_deref() })
    }

    /// Whether the process has a thread with this id, observed or not in the span's time.
    pub(crate) fn has_thread(&self, id: &str) -> bool {
        self.process.threads.contains_key(id)
    }

    /// The thread with this pointer that was observed in the span's time, if it is the only one.
    pub(crate) fn thread_at(&self, pointer: NonZeroU64) -> Option<FoundThread<'a>> {
        let mut all = self.process.threads.iter().filter(|(id, thread)| {
            !id.is_empty() && thread.pointer == Some(pointer) && thread.covered.overlaps(self.during)
        });
        let (id, thread) = all.next().filter(|_| all.next().is_none())?;
        Some(FoundThread { id, name: thread.name.as_deref() })
    }

    /// Whether the process has a thread with this pointer, observed or not in the span's time.
    pub(crate) fn has_thread_at(&self, pointer: NonZeroU64) -> bool {
        self.process.threads.values().any(|thread| thread.pointer == Some(pointer))
    }

    /// The only thread for which a condition on its name holds, if it was observed in the span's time.
    pub(crate) fn thread_named(&self, is: impl Fn(&str) -> bool) -> Option<FoundThread<'a>> {
        let named = |thread: &&ThreadSeen| thread.name.as_deref().is_some_and(&is);
        let mut all = self.process.threads.iter().filter(|(_, thread)| named(thread));
        let (id, thread) = all.next().filter(|_| all.next().is_none())?;
        thread.covered.overlaps(self.during).then_some(FoundThread { id, name: thread.name.as_deref() })
    }
}
