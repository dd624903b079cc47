//! Logs, at most once a minute, that spans and profiles of one host arrived but no span was linked, with the likely
//! cause and the remedy.
//!
//! Usually nothing is linked because spans and profiles describe their process differently. Neither side is wrong by
//! itself, so without this line nobody would know where to look.

use std::collections::{BTreeMap, HashSet};

use hashbrown::HashMap;
use profbridge_engine::component::Outbox;
use profbridge_identity::ProcessClaims;

use crate::index::Index;

/// For how long outcomes are counted before they are reported, in nanoseconds.
const MINUTE: u64 = 60_000_000_000;

/// Outcomes of at most this many hosts are counted per minute.
const MAX_HOSTS: usize = 256;

/// The longest example, in bytes.
const MAX_EXAMPLE: usize = 80;

/// Why a span was not linked, as far as this changes the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An OpenTelemetry span has no process id.
    NoPid,
    /// A Sentry span has neither a process id nor a thread pointer that could identify the process.
    SentryNoPid,
    /// No profile came from the process that the span names.
    NoSuchProcess,
    /// No profiled thread has the span's thread pointer.
    NoSuchPointer,
    /// The profiles of its time arrived too late.
    Late,
    /// Its process or thread was not observed during the span.
    Unobserved,
    /// Several processes match.
    Ambiguous,
    /// Threads of several processes have the span's thread pointer.
    SharedPointer,
    /// Neither its process nor any other observed process has the thread that the span names.
    NoSuchThread,
    /// Several threads of its process had the pointer during the span.
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

    /// The problem and its remedy, as they follow the number of spans in the log line.
    fn explanation(self) -> &'static str {
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

/// The outcomes of the spans of one host.
#[derive(Debug, Default)]
struct HostTally {
    linked: u64,
    missed: [u64; Cause::ALL.len()],
    /// An example span for each cause.
    examples: [Option<Box<str>>; Cause::ALL.len()],
}

impl HostTally {
    fn all_missed(&self) -> u64 {
        self.missed.iter().sum()
    }
}

/// The outcomes of spans since the last report.
#[derive(Debug, Default)]
pub(crate) struct LinkReport {
    /// When the first of them was decided, in monotonic time.
    since: Option<u64>,
    /// By a name of the host.
    hosts: HashMap<u128, HostTally>,
    /// How many spans had each outcome, by the name of its note.
    outcomes: BTreeMap<&'static str, u64>,
}

impl LinkReport {
    /// Counts a linked span of a host under the note `count`.
    pub(crate) fn linked(&mut self, claims: &ProcessClaims, count: &'static str, now: u64, out: &mut Outbox) {
        out.note(count, 1);
        *self.outcomes.entry(count).or_default() += 1;
        self.count_for_hosts(claims, now, |tally| tally.linked += 1);
    }

    /// Counts a span of a host that was not linked, with its note. `example` is the span's name.
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
        self.count_for_hosts(claims, now, |tally| {
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

    fn count_for_hosts(&mut self, claims: &ProcessClaims, now: u64, mut change: impl FnMut(&mut HostTally)) {
        for host in claims.hosts() {
            if self.hosts.len() < MAX_HOSTS || self.hosts.contains_key(&host) {
                self.since.get_or_insert(now);
                change(self.hosts.entry(host).or_default());
            }
        }
    }

    /// When the next report is due, in monotonic time.
    pub(crate) fn due(&self) -> Option<u64> {
        self.since.map(|since| since.saturating_add(MINUTE))
    }

    /// Drops all counts.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many spans and observations of the last minute had each outcome.
    pub(crate) fn outcomes(&self, observations: &[(&'static str, u64)]) -> String {
        let all: u64 = self.outcomes.values().sum();
        let of_spans = self.outcomes.iter().map(|(name, count)| (*name, *count));
        let each = of_spans.chain(observations.iter().copied()).map(|(name, count)| format!("{count} {name}"));
        format!("of {all} spans in a minute: {}", each.collect::<Vec<_>>().join(", "))
    }

    /// The line to log for the last minute: of the hosts that had profiles but no linked span, the one with the most
    /// spans.
    pub(crate) fn line(&mut self, index: &Index) -> Option<String> {
        let since = self.since?;
        let hosts = std::mem::take(self).hosts;
        // A span decided now may have arrived a while ago and waited.
        let profiled: HashSet<u128> = index.hosts_since(since.saturating_sub(MINUTE)).collect();
        let mute = hosts.into_iter().filter(|(host, tally)| tally.linked == 0 && profiled.contains(host));
        let worst = mute.map(|(_, tally)| tally).max_by_key(HostTally::all_missed)?;
        let cause = Cause::ALL.into_iter().max_by_key(|cause| worst.missed[*cause as usize])?;
        let (all, most) = (worst.all_missed(), worst.missed[cause as usize]);
        let example = worst.examples[cause as usize].as_deref().filter(|example| !example.is_empty());
        let example = example.map_or_else(String::new, |example| format!(" (such as `{example}`)"));
        Some(format!(
            "spans and profiles of one host came, and in a minute none of {all} spans was linked: {most}{example} {}",
            cause.explanation()
        ))
    }
}
