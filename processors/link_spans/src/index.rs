//! What is remembered of the profiles that pass: which process was observed by which profiler, its threads, and when.
//!
//! Not the profiles themselves: Sentry finds a profile by the profiler, the thread and the time, so a span needs no more.

use std::num::NonZeroU64;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use profbridge_identity::{Identity, Processes, RequestId, Rules, Side};
use profbridge_model::thread::{self, Thread};
use profbridge_model::{AttributeSetId, IdentityStrength, Meaning, Profiles};
use xxhash_rust::xxh3::xxh3_64;

use self::own_ids::{Contained, Questions};
use crate::covered::{Covered, Stretch};

pub(crate) use self::found::{Found, FoundThread};

mod found;
mod own_ids;

/// Observations of a thread that are not further apart cover the time between them, where the profiler looks at threads
/// that wait as well: the sampler says what it saw of a waiting thread twice a second.
const WALL_GAP: u64 = 1_000_000_000;

/// The same of profilers that look at running threads only, at least, in nanoseconds; else twice the period.
const LEAST_GAP: u64 = 100_000_000;

/// For how long a profiler that observes waiting threads may have said nothing of a process, in nanoseconds, so that it is
/// waited for where another one was faster. Profilers send every few seconds.
const SILENT: u64 = 20_000_000_000;

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
    questions: Questions,
    bytes: u64,
}

#[derive(Debug)]
struct Process {
    identity: Identity,
    side: Side,
    profiler: Profiler,
    /// What is asked about it, where it may have a PID namespace of its own.
    contained: Option<Box<Contained>>,
    /// Whether it has one, so that it says other ids of itself and its threads than profiles do.
    own_ids: bool,
    threads: HashMap<Box<str>, ThreadSeen, RandomState>,
    /// The last observation, in nanoseconds since the Unix epoch.
    last: u64,
    /// When profiles of it came last, in the monotonic time.
    seen: u64,
}

/// Who observed a process.
#[derive(Debug, Clone, Copy, Default)]
struct Profiler {
    /// The hash of the name of its instrumentation scope.
    name: u64,
    /// Whether it observes threads that wait as well.
    wall: bool,
}

#[derive(Debug, Default)]
struct ThreadSeen {
    name: Option<Box<str>>,
    /// The thread pointer, where it is known.
    pointer: Option<NonZeroU64>,
    /// Its id in the PID namespace of its process, where that is another one.
    own_id: Option<u32>,
    /// Whether that was asked for.
    asked: bool,
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

impl Index {
    pub(crate) fn new(rules: &Rules) -> Self {
        Self {
            rules: rules.clone(),
            requests: 0,
            by_identity: HashMap::default(),
            by_name: HashMap::default(),
            by_thread: HashMap::default(),
            questions: Questions::default(),
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
        let mut profilers: HashMap<u32, Profiler, RandomState> = HashMap::default();
        let mut gap = LEAST_GAP;
        for (at, resource) in profiles.resources().iter().enumerate() {
            let scopes = resource.scopes.iter();
            for (scope, profile) in
                scopes.flat_map(|scope| scope.profiles.iter().map(|profile| (&scope.scope, profile)))
            {
                let meaning = Meaning::of(profiles.dictionary(), profile);
                let name = xxh3_64(profiles.dictionary().string_bytes(scope.name));
                let profiler = Profiler { name, wall: meaning.is_some_and(|meaning| meaning.wall) };
                gap = gap.max(match meaning {
                    Some(meaning) if meaning.wall => WALL_GAP,
                    Some(meaning) if !meaning.timed_values => meaning.unit_nanos.saturating_mul(2).min(WALL_GAP),
                    _ => LEAST_GAP,
                });
                let end = profile.time_unix_nano.saturating_add(profile.duration_nano);
                for sample in profiles.samples(profile) {
                    let Some(process) = processes.of(at as u32, sample.attributes) else { continue };
                    profilers.entry(process).or_insert(profiler).wall |= profiler.wall;
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
        for ((number, set), mut stretches) in observed {
            let process = processes.get(number);
            // What nobody can be told from is nobody's.
            if process.identity.alone || process.identity.strength == IdentityStrength::Weak {
                continue;
            }
            stretches.sort_unstable();
            let known = self.by_identity.entry(process.identity.hash).or_insert_with(|| {
                let attributes = processes.merged(process);
                let side = Side::of(dictionary, attributes.iter().copied());
                for name in side.names() {
                    self.by_name.entry(name).or_default().push(process.identity.hash);
                }
                self.bytes += PROCESS;
                let profiler = profilers.get(&number).copied().unwrap_or_default();
                Process {
                    identity: process.identity,
                    contained: Contained::of(&side, dictionary, &attributes),
                    own_ids: false,
                    side,
                    profiler,
                    threads: HashMap::default(),
                    last: 0,
                    seen: now,
                }
            });
            known.seen = now;
            known.profiler.wall |= profilers.get(&number).is_some_and(|profiler| profiler.wall);
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
            self.questions.add(process.identity.hash, known.contained.as_mut(), id, seen);
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

    /// The process of a span, given what is said of it, which was observed in the span's time, up to its end. Of a span
    /// that does not wait any longer, `at_last`, what was observed of its time up to now has to do.
    pub(crate) fn find(&self, wanted: Wanted<'_>, during: Stretch, at_last: bool) -> Result<Found<'_>, NotFound> {
        let (candidates, by_thread) = self.candidates(wanted);
        if candidates.is_empty() {
            return Err(NotFound::Unknown);
        }
        let observed = |process: &&Process| {
            let is_wanted = |seen: &&ThreadSeen| !by_thread || seen.pointer == wanted.pointer;
            process.threads.values().filter(is_wanted).any(|thread| thread.covered.overlaps(during))
        };
        let found: Vec<&Process> = candidates.iter().copied().filter(observed).collect();
        let several = found.len() > 1;
        let mut pairs =
            found.iter().enumerate().flat_map(|(at, one)| found[..at].iter().map(move |other| (one, other)));
        if !pairs.all(|(one, other)| one.is_also(other)) {
            return Err(NotFound::Ambiguous);
        }
        let Some(process) = found.into_iter().max_by_key(|process| (process.profiler.wall, process.identity.hash))
        else {
            let asked_for = if at_last { during.start } else { during.end };
            let is_past = candidates.iter().any(|process| process.last >= asked_for);
            return Err(if is_past { NotFound::Unobserved } else { NotFound::NotCovered });
        };
        // Which thread it was is known when all of its time is; and one that observes waiting threads is worth waiting for.
        let is_better = |other: &&Process| other.profiler.wall && !process.profiler.wall && process.is_also(other);
        let is_late = |other: &Process| other.last < during.end && during.end - other.last <= SILENT;
        let may_come = process.last < during.end || candidates.iter().copied().filter(is_better).any(is_late);
        if may_come && !at_last {
            return Err(NotFound::NotCovered);
        }
        Ok(Found { process, rules: &self.rules, during, by_thread, several })
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

    /// The names under which a process is found that was observed: its own, and those of its threads.
    pub(crate) fn names(&self, identity: u128) -> impl Iterator<Item = u128> {
        let process = self.by_identity.get(&identity).into_iter();
        process.flat_map(|process| process.side.names().chain(process.thread_names()))
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
            for name in process.thread_names() {
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
    /// Whether both may be one process that two profilers observed: one profiler knows a process once.
    fn is_also(&self, other: &Self) -> bool {
        self.profiler.name != other.profiler.name && self.side.agrees(&other.side)
    }

    /// The names under which it is found by the pointers of its threads.
    fn thread_names(&self) -> impl Iterator<Item = u128> {
        self.threads.values().filter_map(|thread| self.side.thread_name(thread.pointer?))
    }

    fn bytes(&self) -> u64 {
        let threads = self.threads.iter().map(|(id, thread)| {
            let texts = id.len() + thread.name.as_ref().map_or(0, |name| name.len());
            THREAD + (texts + thread.covered.len() * size_of::<Stretch>()) as u64
        });
        PROCESS + threads.sum::<u64>()
    }
}
