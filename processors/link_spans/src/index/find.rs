//! Finds the observed process that a span belongs to.

use std::num::NonZeroU64;

use profbridge_identity::ProcessClaims;
use profbridge_model::dictionary::Link;

use super::matched::{MatchedProcess, MatchedThread};
use super::threads::{ObservedThread, ThreadId};
use super::{CLOCKS_OFF, Index, ObservedProcess, SILENT};
use crate::observed_times::TimeRange;

/// How a span identifies its process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpanProcess<'a> {
    /// The identity attributes of its resource.
    pub(crate) claims: &'a ProcessClaims,
    /// The pointer of its thread, if the span has it.
    pub(crate) pointer: Option<NonZeroU64>,
}

/// Where the samples were taken that name a span.
#[derive(Debug)]
pub(crate) struct SampledSpan<'a> {
    pub(crate) found: MatchedProcess<'a>,
    /// The thread, or `None` if the samples have no thread.
    pub(crate) thread: Option<MatchedThread<'a>>,
    /// Whether the profiler read the span from the live context of the thread.
    pub(crate) is_live: bool,
}

/// Why no process is found for a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotFound {
    /// No process that could match was observed.
    Unknown,
    /// A matching process was not observed up to the end of the span yet.
    NotCovered,
    /// A matching process was observed, but not during the span.
    Unobserved,
    /// Several matching processes were observed during the span.
    Ambiguous,
}

impl Index {
    /// Where the samples were taken that name a span of this time range.
    pub(crate) fn sampled_span(&self, link: &Link, during: TimeRange) -> Option<SampledSpan<'_>> {
        let place = self.sampled_links.get(link)?;
        let process = self.processes.get(&place.process).filter(|process| !process.inherited(place, during.start))?;
        let found = self.known(process, during);
        let thread = process.threads.get(&place.thread).and_then(|thread| found.matched(thread));
        Some(SampledSpan { found, thread, is_live: process.profiler.reads_contexts })
    }

    /// The process with this identity, for one of its spans with this time range.
    pub(crate) fn process(&self, identity: u128, during: TimeRange) -> Option<MatchedProcess<'_>> {
        Some(self.known(self.processes.get(self.by_identity.get(&identity)?)?, during))
    }

    /// The result for a process that is known to be the right one, whatever the span claims.
    fn known<'a>(&'a self, process: &'a ObservedProcess, during: TimeRange) -> MatchedProcess<'a> {
        MatchedProcess { process, index: self, during, by_thread: false, several: false, has_system_ids: false }
    }

    /// The process of a span. It must have been observed during the span, and up to the span's end plus the clock
    /// tolerance. If the span cannot wait any longer (`at_last`), the observations so far are used.
    pub(crate) fn find(
        &self,
        wanted: SpanProcess<'_>,
        during: TimeRange,
        at_last: bool,
    ) -> Result<MatchedProcess<'_>, NotFound> {
        let candidates = self.candidates_of(wanted);
        let all = &candidates.processes;
        if all.is_empty() {
            return Err(NotFound::Unknown);
        }
        let may_come =
            |process: &ObservedProcess| !process.reaches(during) && during.end.saturating_sub(process.last) <= SILENT;
        // The choice between candidates is safe once every candidate's profiles reach past the span.
        let all_came = at_last
            || all.iter().any(|process| process.reaches(during)) && !all.iter().any(|process| may_come(process));
        let Some(found) = candidates.best_of(candidates.observed(during, all_came)?, during) else {
            let is_past = all_came && (!at_last || all.iter().any(|process| process.last >= during.start));
            return Err(if is_past { NotFound::Unobserved } else { NotFound::NotCovered });
        };
        // The thread is certain once profiles cover all of the span's time; and a profiler that also observes waiting
        // threads is worth waiting for.
        let process = found.process;
        let is_better =
            |other: &&ObservedProcess| other.profiler.wall && !process.profiler.wall && process.may_equal(other);
        if !at_last && (!process.reaches(during) || all.iter().copied().filter(is_better).any(may_come)) {
            return Err(NotFound::NotCovered);
        }
        Ok(found)
    }

    /// The processes that match these attributes.
    pub(crate) fn candidates_of(&self, wanted: SpanProcess<'_>) -> Candidates<'_> {
        let (processes, by_thread) = self.candidates(wanted);
        Candidates { index: self, claims: *wanted.claims, pointer: wanted.pointer, processes, by_thread }
    }

    /// The processes that a span may belong to, and whether they were found by thread pointer alone, which is used only
    /// if no attribute of the span names a process.
    fn candidates(&self, wanted: SpanProcess<'_>) -> (Vec<&ObservedProcess>, bool) {
        let mut found: Vec<&ObservedProcess> = Vec::new();
        for name in wanted.claims.names() {
            for process in self.by_name.find(name).filter_map(|number| self.processes.get(&number)) {
                let is_new = !found.iter().any(|known| known.number == process.number);
                if is_new && process.claims.agrees(wanted.claims) && process.claims.names().any(|own| own == name) {
                    found.push(process);
                }
            }
        }
        if !found.is_empty() {
            return (found, false);
        }
        let Some((pointer, name)) =
            wanted.pointer.and_then(|pointer| Some((pointer, wanted.claims.thread_name(pointer)?)))
        else {
            return (found, true);
        };
        let has_it = |process: &&ObservedProcess| {
            process.claims.agrees(wanted.claims)
                && process.claims.thread_name(pointer) == Some(name)
                && process.threads.iter().any(|(_, thread)| thread.pointer == Some(pointer))
        };
        let processes = self.by_thread.find(name).filter_map(|number| self.processes.get(&number));
        found.extend(processes.map(|process| &**process).filter(has_it));
        (found, true)
    }

    /// The names under which an observed process is found: its own, and those of its threads. Threads count only if
    /// they were observed in the time range.
    pub(crate) fn names(&self, identity: u128, during: TimeRange) -> impl Iterator<Item = u128> {
        let number = self.by_identity.get(&identity);
        let process = number.and_then(|number| self.processes.get(number)).into_iter();
        process.flat_map(move |process| {
            let own = process.claims.names().chain(process.thread_names());
            own.chain(process.names_of_threads(during))
        })
    }
}

/// The processes that match spans with the same process attributes.
#[derive(Debug)]
pub(crate) struct Candidates<'a> {
    pub(super) index: &'a Index,
    claims: ProcessClaims,
    pointer: Option<NonZeroU64>,
    processes: Vec<&'a ObservedProcess>,
    by_thread: bool,
}

impl<'a> Candidates<'a> {
    /// The best candidate that was observed during a span, chosen like in [`Index::find`].
    pub(super) fn best(&self, during: TimeRange) -> Option<MatchedProcess<'a>> {
        self.best_of(self.observed(during, true).ok()?, during)
    }

    /// The process with this identity, if it is a candidate for a span of this time range. If several candidates were
    /// observed then, they must be one process seen by several profilers.
    pub(crate) fn get(&self, identity: u128, during: TimeRange) -> Option<MatchedProcess<'a>> {
        let observed = match &self.processes[..] {
            // The usual case: the time is checked later, together with the thread.
            one @ [_] if !self.by_thread => one.to_vec(),
            // Profiles that are missing by now will not arrive in time.
            _ => self.observed(during, true).ok()?,
        };
        let process = observed.iter().copied().find(|process| process.identity.hash == identity)?;
        Some(self.found(process, during, observed.len() > 1))
    }

    /// If several profilers observed the process, takes the one with the highest priority.
    fn best_of(&self, observed: Vec<&'a ObservedProcess>, during: TimeRange) -> Option<MatchedProcess<'a>> {
        let several = observed.len() > 1;
        let process = observed.into_iter().max_by_key(|process| (process.profiler.wall, process.identity.hash))?;
        Some(self.found(process, during, several))
    }

    fn found(&self, process: &'a ObservedProcess, during: TimeRange, several: bool) -> MatchedProcess<'a> {
        let &Self { index, by_thread, .. } = self;
        let has_system_ids = process.has_system_ids(&self.claims);
        MatchedProcess { process, index, during, by_thread, several, has_system_ids }
    }

    /// The candidates that were observed during a span. They must all be one process, observed by several profilers. If
    /// none was observed during the span, those observed within [`CLOCKS_OFF`] of it count, under two conditions: all
    /// candidates are one process (of several, another one may have run too shortly to be observed, so being near
    /// proves nothing), and no more profiles of that time will arrive (`all_came`).
    fn observed(&self, during: TimeRange, all_came: bool) -> Result<Vec<&'a ObservedProcess>, NotFound> {
        let pointer = self.pointer.filter(|_| self.by_thread);
        let within = |during: TimeRange| {
            let is_observed = |thread: &ObservedThread| {
                pointer.is_none_or(|pointer| thread.pointer == Some(pointer)) && thread.covered.overlaps(during)
            };
            self.matching(|process| process.threads.iter().any(|(_, thread)| is_observed(thread)))
        };
        let found = within(during);
        if !are_one(&found) {
            return Err(NotFound::Ambiguous);
        }
        if !found.is_empty() || !all_came || !are_one(&self.processes) {
            return Ok(found);
        }
        Ok(match pointer {
            Some(pointer) => self.matching(|process| process.thread_near(pointer, during).is_some()),
            None => within(with_tolerance(during)),
        })
    }

    fn matching(&self, is_wanted: impl Fn(&ObservedProcess) -> bool) -> Vec<&'a ObservedProcess> {
        self.processes.iter().copied().filter(|process| is_wanted(process)).collect()
    }
}

/// Whether all of them may be one process.
pub(super) fn are_one(all: &[&ObservedProcess]) -> bool {
    let mut pairs = all.iter().enumerate().flat_map(|(at, one)| all[..at].iter().map(move |other| (one, other)));
    pairs.all(|(one, other)| one.may_equal(other))
}

/// A span's time, extended on both sides by the clock tolerance.
pub(super) fn with_tolerance(during: TimeRange) -> TimeRange {
    let TimeRange { start, end } = during;
    TimeRange { start: start.saturating_sub(CLOCKS_OFF), end: end.saturating_add(CLOCKS_OFF) }
}

impl ObservedProcess {
    /// The threads that have, or once had, this pointer.
    pub(super) fn threads_with_pointer(
        &self,
        pointer: NonZeroU64,
    ) -> impl Iterator<Item = (&ThreadId, &ObservedThread)> {
        self.threads.iter().filter(move |(_, thread)| thread.pointer == Some(pointer))
    }

    /// The thread with this pointer that was observed near the span, if none with the pointer was observed during it.
    /// This is only safe if no other thread can have had the pointer in between: no other known thread has it, every
    /// thread observed during the span has a known pointer, and waiting threads are not observed. A profiler of those
    /// would have observed this thread during the span, so the span ran on one that lived too briefly to be noticed.
    pub(super) fn thread_near(&self, pointer: NonZeroU64, during: TimeRange) -> Option<(&ThreadId, &ObservedThread)> {
        let mut all = self.threads_with_pointer(pointer);
        let is_near = |thread: &ObservedThread| thread.covered.overlaps(with_tolerance(during));
        let thread = all.next().filter(|(_, thread)| all.next().is_none() && is_near(thread))?;
        let may_have_it = |thread: &ObservedThread| thread.pointer.is_none() && thread.covered.overlaps(during);
        let is_certain = !self.profiler.wall && !self.threads.iter().any(|(_, thread)| may_have_it(thread));
        is_certain.then_some(thread)
    }

    /// Whether both may be one process observed by two profilers: a single profiler knows each process only once.
    pub(super) fn may_equal(&self, other: &Self) -> bool {
        self.profiler.name != other.profiler.name && self.claims.agrees(&other.claims)
    }

    /// Whether it was observed up to the end of the span plus the clock tolerance.
    pub(super) fn reaches(&self, during: TimeRange) -> bool {
        self.last >= with_tolerance(during).end
    }
}
