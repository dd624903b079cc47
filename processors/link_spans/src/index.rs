//! What is remembered of the profiles that pass: which process was observed by which profiler, its threads, and when;
//! and which spans samples name by themselves.
//!
//! Not the profiles themselves: Sentry finds a profile by the profiler, the thread and the time, so a span needs no
//! more.

use hashbrown::HashMap;
use profbridge_identity::{Identity, ProcessClaims, Rules};

use self::names::Names;
use self::own_ids::{Contained, Questions};
use self::sampled_links::SampledLinks;
use self::texts::Texts;
use self::threads::Threads;
use self::times::Leap;
use crate::covered::ALLOCATION;

pub(crate) use self::elsewhere::Owners;
pub(crate) use self::find::{NotFound, SampledSpan, Wanted};
pub(crate) use self::found::{At, Found, FoundThread};

mod elsewhere;
mod find;
mod forget;
mod found;
mod learn;
mod names;
mod own_ids;
mod sampled_links;
mod texts;
mod threads;
mod times;

/// How far the clocks of spans and profiles may be off from each other, in nanoseconds: a thread that was observed so
/// much before a span began, or after it ended, was observed in its time. Both are taken on one machine, whose programs
/// share a clock, but many read it once and count on from there, while it is corrected.
pub(crate) const CLOCKS_OFF: u64 = 50_000_000;

/// For how long a profiler that observes waiting threads may have said nothing of a process, in nanoseconds, so that it
/// is waited for where another one was faster. Profilers send every few seconds.
const SILENT: u64 = 20_000_000_000;

/// Of the memory that is for all that is remembered, so much may be spans that samples name, whatever else there is: a
/// quarter.
const OF_LINKS: u64 = 4;

/// The processes that were observed.
#[derive(Debug)]
pub(crate) struct Index {
    rules: Rules,
    requests: u64,
    /// By their numbers, which begin anew at 2^32.
    processes: HashMap<u32, Box<Process>>,
    next: u32,
    by_identity: HashMap<u128, u32>,
    by_name: Names,
    /// Whether a process has other names than it had when `by_name` was made, so that old ones are there as well.
    any_renamed: bool,
    /// By the names of their threads ([`ProcessClaims::thread_name`]).
    by_thread: Names,
    texts: Texts,
    sampled_links: SampledLinks,
    /// When samples came last that name spans, in the monotonic time.
    last_link: Option<u64>,
    questions: Questions,
    /// The memory of `processes`, in bytes.
    bytes: u64,
    /// What all of it may take at least, in bytes: what is more may be needed for other things.
    share: u64,
    /// What was forgotten early since that was asked last.
    forgotten: Forgotten,
    /// How many times were left out since that was asked last.
    times_left_out: u64,
}

/// What was forgotten early, for want of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Forgotten {
    pub(crate) processes: u64,
    /// Spans that samples name.
    pub(crate) named_spans: u64,
}

#[derive(Debug)]
struct Process {
    number: u32,
    identity: Identity,
    claims: ProcessClaims,
    profiler: Profiler,
    /// What is asked about it, where it may have a PID namespace of its own, and what was answered.
    contained: Option<Box<Contained>>,
    /// Whether it was answered that its ids are the system's, though it is in a container.
    has_same_ids: bool,
    /// When it began, in nanoseconds since the Unix epoch, where profiles say that.
    began: Option<u64>,
    threads: Threads,
    /// The last observation, in nanoseconds since the Unix epoch: of the batch that came last, where that is far from
    /// those before.
    last: u64,
    /// When it last was far from those before.
    leap: Option<Leap>,
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
    /// Whether the links of its samples are live contexts.
    reads_contexts: bool,
}

impl Index {
    /// Which may take `share` bytes at least.
    pub(crate) fn new(rules: &Rules, share: u64) -> Self {
        Self {
            share,
            forgotten: Forgotten::default(),
            times_left_out: 0,
            rules: rules.clone(),
            requests: 0,
            processes: HashMap::default(),
            next: 0,
            by_identity: HashMap::default(),
            by_name: Names::default(),
            any_renamed: false,
            by_thread: Names::default(),
            texts: Texts::default(),
            sampled_links: SampledLinks::default(),
            last_link: None,
            questions: Questions::default(),
            bytes: 0,
        }
    }

    /// Makes its share of the memory another one, in bytes.
    pub(crate) fn fit_memory(&mut self, share: u64) {
        self.share = share;
    }

    /// What was forgotten early since the last call.
    pub(crate) fn forgotten(&mut self) -> Forgotten {
        std::mem::take(&mut self.forgotten)
    }

    /// How many times in which something was observed were left out since the last call, being weeks from others of
    /// their process, or minutes ahead of them.
    pub(crate) fn times_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.times_left_out)
    }

    /// The memory of it, in bytes, about.
    pub(crate) fn bytes(&self) -> u64 {
        let tables = self.processes.allocation_size() + self.by_identity.allocation_size();
        let names = self.by_name.bytes() + self.by_thread.bytes();
        self.bytes + tables as u64 + names + self.texts.bytes() + self.sampled_links.bytes()
    }

    /// The hosts of processes whose profiles came since a monotonic time ([`ProcessClaims::hosts`]).
    pub(crate) fn hosts_since(&self, since: u64) -> impl Iterator<Item = u128> {
        self.processes.values().filter(move |process| process.seen >= since).flat_map(|process| process.claims.hosts())
    }

    /// Whether samples name any span that is remembered.
    pub(crate) fn samples_name_spans(&self) -> bool {
        self.sampled_links.len() > 0
    }

    /// Whether samples that name spans came since a monotonic time, so that more of them may come.
    pub(crate) fn samples_named_spans_since(&self, since: u64) -> bool {
        self.last_link.is_some_and(|last| last >= since)
    }
}

impl Process {
    /// The names under which it is found by the pointers of its threads.
    fn thread_names(&self) -> impl Iterator<Item = u128> {
        self.threads.iter().filter_map(|(_, thread)| self.claims.thread_name(thread.pointer?))
    }

    fn bytes(&self) -> u64 {
        (size_of::<Self>() + 2 * ALLOCATION) as u64 + self.threads.bytes() + self.contained_bytes()
    }
}
