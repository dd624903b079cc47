//! Says in the log, at most once a minute, that spans and profiles of one host came and none of the spans was linked,
//! with the likely cause and what to do about it.
//!
//! Two sides that say different things of a process are the usual reason why nothing is linked, and neither of them is
//! wrong by itself: without this line nobody would know where to look.

use std::collections::{BTreeMap, HashSet};

use hashbrown::HashMap;
use profbridge_engine::component::Outbox;
use profbridge_identity::ProcessClaims;

use crate::index::Index;

/// For how long outcomes are counted before something is said, in nanoseconds.
const MINUTE: u64 = 60_000_000_000;

/// The most hosts of which outcomes are counted in a minute.
const MAX_HOSTS: usize = 256;

/// The longest example, in bytes.
const MAX_EXAMPLE: usize = 80;

/// Why a span was not linked, as far as it makes a difference for what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A span of OpenTelemetry's says no process id.
    NoPid,
    /// A span of Sentry's says no process id, and no thread pointer by which the process could be found.
    SentryNoPid,
    /// No profile is of the process that the span names.
    NoSuchProcess,
    /// No profiled thread has the pointer that the span says.
    NoSuchPointer,
    /// The profiles of its time came too late.
    Late,
    /// Its process, or its thread, was not observed in its time.
    Unobserved,
    /// Several processes could be the one.
    Ambiguous,
    /// Threads of several processes have the pointer that the span says.
    SharedPointer,
    /// Its process does not have the thread that the span names, nor was any other observed that has it.
    NoSuchThread,
    /// Several threads of its process had it in its time.
    ReusedPointer,
}

impl Cause {
    const ALL: [Self; 10] = [
        Self::NoPid,
        Self::SentryNoPid,
        Self::NoSuchProcess,
        Self::NoSuchPointer,
        Self::Late,
        Self::Unobserved,
        Self::Ambiguous,
        Self::SharedPointer,
        Self::NoSuchThread,
        Self::ReusedPointer,
    ];

    /// What is the matter, behind the number of the spans, and what to do.
    fn said(self) -> &'static str {
        match self {
            Self::NoPid => {
                "do not say of which process they are. let their SDK detect it (OTEL_EXPERIMENTAL_RESOURCE_DETECTORS=process,host \
                 in Python, other SDKs have detectors of their own), or set the resource attribute process.pid"
            }
            Self::SentryNoPid => {
                "are of an SDK of Sentry's that does not say of which process they are. where it sends from this machine, \
                 `resolve_clients: true` of the receiver sentry finds that out"
            }
            Self::NoSuchProcess => {
                "name a process that no profile is of. either nobody profiles it (see the profiler's targets), or one claims \
                 runs in a container and counts process ids from 1: then both must say container.id"
            }
            Self::NoSuchPointer => {
                "name their thread by a pointer that no profiled thread has. only profiles of the built-in sampler (receiver \
                 ptrace) have thread pointers: let it sample these processes, and look whether server_name in the SDK is the \
                 host.name of the profiles"
            }
            Self::Late => {
                "had waited long enough before the profiles of their time came. let the profiler send more often, or raise \
                 span_wait"
            }
            Self::Unobserved => {
                "are of processes that were observed, but not in the time of the spans, or not on their thread. profilers that \
                 look at running threads only see nothing of a thread that waits; else compare the clocks"
            }
            Self::Ambiguous => {
                "could be of several profiled processes. let spans and profiles say more of their process: container.id, \
                 host.id, k8s.pod.uid"
            }
            Self::SharedPointer => {
                "name their thread by a pointer that several profiled processes have, as workers do that were forked. let \
                 their spans say process.pid, as OpenTelemetry's SDKs do"
            }
            Self::NoSuchThread => {
                "say the process id of the process they were forked from, or their thread was not observed. set the SDK up \
                 behind the fork (post_fork of gunicorn), and profile all of the service's processes"
            }
            Self::ReusedPointer => {
                "name their thread by a pointer that several threads of their process had in their time, one after the other. \
                 let spans say thread.native_id"
            }
        }
    }
}

/// What became of the spans of a host.
#[derive(Debug, Default)]
struct Tally {
    linked: u64,
    missed: [u64; Cause::ALL.len()],
    /// A span for each cause.
    examples: [Option<Box<str>>; Cause::ALL.len()],
}

impl Tally {
    fn all_missed(&self) -> u64 {
        self.missed.iter().sum()
    }
}

/// What became of spans since the last look.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// When the first of them was decided, in the monotonic time.
    since: Option<u64>,
    /// By a name of the host.
    hosts: HashMap<u128, Tally>,
    /// How many spans were linked in each way, and how many were not for each reason, by the names of the counts.
    outcomes: BTreeMap<&'static str, u64>,
}

impl Report {
    /// A span of a host was linked, in the way that this counts.
    pub(crate) fn linked(&mut self, claims: &ProcessClaims, count: &'static str, now: u64, out: &mut Outbox) {
        out.note(count, 1);
        *self.outcomes.entry(count).or_default() += 1;
        self.of_hosts(claims, now, |tally| tally.linked += 1);
    }

    /// A span of a host was not linked, for a reason that this counts. `example` is what it is called.
    pub(crate) fn missed(
        &mut self,
        claims: &ProcessClaims,
        (count, cause): (&'static str, Cause),
        now: u64,
        out: &mut Outbox,
        example: impl FnOnce() -> String,
    ) {
        out.note(count, 1);
        *self.outcomes.entry(count).or_default() += 1;
        let mut example = Some(example);
        self.of_hosts(claims, now, |tally| {
            tally.missed[cause as usize] += 1;
            let of_cause = &mut tally.examples[cause as usize];
            if of_cause.is_none()
                && let Some(example) = example.take()
            {
                let text = example();
                let end = (0..=text.len().min(MAX_EXAMPLE)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
                *of_cause = Some(text[..end].into());
            }
        });
    }

    fn of_hosts(&mut self, claims: &ProcessClaims, now: u64, mut change: impl FnMut(&mut Tally)) {
        for host in claims.hosts() {
            if self.hosts.len() < MAX_HOSTS || self.hosts.contains_key(&host) {
                self.since.get_or_insert(now);
                change(self.hosts.entry(host).or_default());
            }
        }
    }

    /// When there is something to look at, in the monotonic time.
    pub(crate) fn due(&self) -> Option<u64> {
        self.since.map(|since| since.saturating_add(MINUTE))
    }

    /// Forgets what was counted.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many spans of the last minute, and how many observations, were linked, how, and why not.
    pub(crate) fn outcomes(&self, observations: &[(&'static str, u64)]) -> String {
        let all: u64 = self.outcomes.values().sum();
        let of_spans = self.outcomes.iter().map(|(name, count)| (*name, *count));
        let each = of_spans.chain(observations.iter().copied()).map(|(name, count)| format!("{count} {name}"));
        format!("of {all} spans in a minute: {}", each.collect::<Vec<_>>().join(", "))
    }

    /// What is to be said of the last minute: of the host with the most spans, among those that had profiles as well, of
    /// whose spans none was linked.
    pub(crate) fn line(&mut self, index: &Index) -> Option<String> {
        let since = self.since?;
        let hosts = std::mem::take(self).hosts;
        // What is decided now may have come, and waited, a while ago.
        let profiled: HashSet<u128> = index.hosts_since(since.saturating_sub(MINUTE)).collect();
        let mute = hosts.into_iter().filter(|(host, tally)| tally.linked == 0 && profiled.contains(host));
        let worst = mute.map(|(_, tally)| tally).max_by_key(Tally::all_missed)?;
        let cause = Cause::ALL.into_iter().max_by_key(|cause| worst.missed[*cause as usize])?;
        let (all, most) = (worst.all_missed(), worst.missed[cause as usize]);
        let example = worst.examples[cause as usize].as_deref().filter(|example| !example.is_empty());
        let example = example.map_or_else(String::new, |example| format!(" (such as `{example}`)"));
        Some(format!(
            "spans and profiles of one host came, and in a minute none of {all} spans was linked: {most}{example} {}",
            cause.said()
        ))
    }
}
