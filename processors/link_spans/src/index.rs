//! What is remembered of passing profiles: which profiler observed which process and thread, and when; and which spans
//! samples name.
//!
//! The profiles themselves are not kept: Sentry finds a profile by profiler, thread and time, so a span needs no more.

use hashbrown::HashMap;
use profbridge_identity::{Identity, ProcessClaims, Rules, profiler_name};
use profbridge_model::ProfilerId;
use profbridge_model::dictionary::Link;

use self::innermost_ids::{ContainerIds, PendingQuestions};
use self::names::ProcessNames;
use self::sampled_links::{RecentSpans, SampledLinks};
use self::threads::ObservedThreads;
use self::times::ClockLeap;
use crate::observed_times::{ALLOCATION, TimeRange};

pub(crate) use self::find::{NotFound, SampledSpan, SpanProcess};
pub(crate) use self::forked::ThreadOwners;
pub(crate) use self::matched::{MatchedProcess, MatchedThread, PointerMatch};

mod find;
mod forget;
mod forked;
mod innermost_ids;
mod learn;
mod matched;
mod names;
mod sampled_links;
mod threads;
mod times;

/// How far the clocks of spans and profiles may differ, in nanoseconds: a thread observed this shortly before or after
/// a span counts as observed during it. Both clocks are of one machine, but many programs read the system clock once
/// and count on from there while the system clock gets corrected.
pub(crate) const CLOCKS_OFF: u64 = 50_000_000;

/// A profiler that observes waiting threads may be silent about a process for this long, in nanoseconds, before spans
/// no longer wait for it where another profiler was faster. Profilers send every few seconds.
const SILENT: u64 = 20_000_000_000;

/// One part in this many of the index memory (a quarter) is reserved for spans named by samples.
const OF_LINKS: u64 = 4;

/// The observed processes.
#[derive(Debug)]
pub(crate) struct Index {
    rules: Rules,
    requests: u64,
    /// By number. Numbers wrap around at 2^32.
    processes: HashMap<u32, Box<ObservedProcess>>,
    next: u32,
    by_identity: HashMap<u128, u32>,
    by_name: ProcessNames,
    /// Whether a process changed its names since `by_name` was built, so that it still contains old ones.
    any_renamed: bool,
    /// By the names of their threads ([`ProcessClaims::thread_name`]).
    by_thread: ProcessNames,
    sampled_links: SampledLinks,
    /// The profilers that SDKs named in segments, the first spans of a process in a trace; `None` if a segment names
    /// none.
    segments: RecentSpans<Option<ProfilerId>>,
    /// When samples that name spans last arrived, in monotonic time.
    last_link: Option<u64>,
    questions: PendingQuestions,
    /// The memory of `processes`, in bytes.
    bytes: u64,
    /// The memory that is guaranteed to the index, in bytes; anything above may be needed elsewhere.
    pub(crate) share: u64,
    /// What was forgotten early and not yet noted.
    pub(crate) forgotten: ForgottenEarly,
    /// How many observation times were ignored, and not yet noted, because they were weeks from others of their
    /// process, or minutes ahead of them.
    pub(crate) times_left_out: u64,
}

/// What was forgotten early because memory was short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ForgottenEarly {
    pub(crate) processes: u64,
    /// Spans named by samples.
    pub(crate) named_spans: u64,
    /// Segments of SDKs.
    pub(crate) segments: u64,
}

#[derive(Debug)]
struct ObservedProcess {
    number: u32,
    identity: Identity,
    claims: ProcessClaims,
    profiler: ProcessProfiler,
    /// Questions and answers about its ids inside a container, if it may have its own PID namespace.
    contained: Option<Box<ContainerIds>>,
    /// Whether its ids turned out to be the system's although it is in a container.
    has_same_ids: bool,
    /// When it began, in nanoseconds since the Unix epoch, if profiles contain it.
    began: Option<u64>,
    threads: ObservedThreads,
    /// The end of its last observation, in nanoseconds since the Unix epoch. After a leap of its clock this is the end
    /// of the latest batch.
    last: u64,
    /// The last leap of its clock.
    leap: Option<ClockLeap>,
    /// When its profiles last arrived, in monotonic time.
    seen: u64,
}

/// The profiler that observed a process.
#[derive(Debug, Clone, Copy, Default)]
struct ProcessProfiler {
    /// The hash of the name of its instrumentation scope.
    name: u64,
    /// Whether it also observes waiting threads.
    wall: bool,
    /// Whether its samples are linked by live contexts.
    reads_contexts: bool,
}

impl Index {
    /// Creates an index with `share` bytes of guaranteed memory.
    pub(crate) fn new(rules: &Rules, share: u64) -> Self {
        Self {
            share,
            forgotten: ForgottenEarly::default(),
            times_left_out: 0,
            rules: rules.clone(),
            requests: 0,
            processes: HashMap::default(),
            next: 0,
            by_identity: HashMap::default(),
            by_name: ProcessNames::default(),
            any_renamed: false,
            by_thread: ProcessNames::default(),
            sampled_links: SampledLinks::default(),
            segments: RecentSpans::default(),
            last_link: None,
            questions: PendingQuestions::default(),
            bytes: 0,
        }
    }

    /// Approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let tables = self.processes.allocation_size() + self.by_identity.allocation_size();
        let names = self.by_name.bytes() + self.by_thread.bytes();
        self.bytes + tables as u64 + names + self.sampled_links.bytes() + self.segments.bytes()
    }

    /// The hosts of processes whose profiles arrived since a monotonic time ([`ProcessClaims::hosts`]).
    pub(crate) fn hosts_since(&self, since: u64) -> impl Iterator<Item = u128> {
        self.processes.values().filter(move |process| process.seen >= since).flat_map(|process| process.claims.hosts())
    }

    /// Remembers which profiler a segment names. Forgets the older half of the segments if one more would exceed their
    /// memory.
    pub(crate) fn add_segment(&mut self, segment: &Link, profiler: Option<ProfilerId>) {
        let growth = self.segments.growth();
        if growth > 0 && self.segments.bytes() + growth > self.share / OF_LINKS {
            self.forgotten.segments += self.segments.forget_old();
        }
        self.segments.insert(segment, profiler);
    }

    /// The profiler that a segment names, if the segment has come.
    pub(crate) fn profiler_of_segment(&self, segment: &Link) -> Option<Option<ProfilerId>> {
        self.segments.get(segment).copied()
    }

    /// The only thread in the profiles of an SDK's own profiler, as far as they have come.
    pub(crate) fn only_thread(&self, profiler: ProfilerId, during: TimeRange) -> Option<MatchedThread<'_>> {
        self.process(profiler_name(profiler), during)?.only_thread()
    }

    /// Whether any remembered span is named by samples.
    pub(crate) fn samples_name_spans(&self) -> bool {
        self.sampled_links.len() > 0
    }

    /// Whether samples that name spans arrived since a monotonic time, so that more of them may follow.
    pub(crate) fn samples_named_spans_since(&self, since: u64) -> bool {
        self.last_link.is_some_and(|last| last >= since)
    }
}

impl ObservedProcess {
    /// The names under which the pointers of its threads find it.
    fn thread_names(&self) -> impl Iterator<Item = u128> {
        self.threads.iter().filter_map(|(_, thread)| self.claims.thread_name(thread.pointer?))
    }

    fn bytes(&self) -> u64 {
        (size_of::<Self>() + 2 * ALLOCATION) as u64 + self.threads.bytes() + self.contained_bytes()
    }
}
