//! Which of the processes that were observed a span is of.

use std::num::NonZeroU64;

use profbridge_identity::ProcessClaims;
use profbridge_model::dictionary::Link;

use super::found::{Found, FoundThread};
use super::threads::{Thread, ThreadId};
use super::{CLOCKS_OFF, Index, Process, SILENT};
use crate::covered::Stretch;

/// Who a span says that it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// What its resource says of the process.
    pub(crate) claims: &'a ProcessClaims,
    /// The pointer of its thread, where it says that.
    pub(crate) pointer: Option<NonZeroU64>,
}

/// Where samples say that they are of a span.
#[derive(Debug)]
pub(crate) struct SampledSpan<'a> {
    pub(crate) found: Found<'a>,
    /// The thread; `None` where the samples name none.
    pub(crate) thread: Option<FoundThread<'a>>,
    /// Whether the samples' profiler read it from the live context of the thread.
    pub(crate) is_live: bool,
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
    /// Where samples say that they are of a span that lasted for some time.
    pub(crate) fn sampled_span(&self, link: &Link, during: Stretch) -> Option<SampledSpan<'_>> {
        let place = self.sampled_links.get(link)?;
        let process = self.processes.get(&place.process).filter(|process| !process.inherited(place, during.start))?;
        let found = self.known(process, during);
        let thread = process.threads.get(&place.thread).and_then(|thread| found.of(thread));
        Some(SampledSpan { found, thread, is_live: process.profiler.reads_contexts })
    }

    /// The process with an identity, for a span that is of it and lasted for some time.
    pub(crate) fn process(&self, identity: u128, during: Stretch) -> Option<Found<'_>> {
        Some(self.known(self.processes.get(self.by_identity.get(&identity)?)?, during))
    }

    /// A process that is known to be the one of a span, whatever the span says.
    fn known<'a>(&'a self, process: &'a Process, during: Stretch) -> Found<'a> {
        Found { process, index: self, during, by_thread: false, several: false, has_system_ids: false }
    }

    /// The process of a span, given what is said of it, which was observed in the span's time, up to its end and as far
    /// as clocks may be off. Of a span that does not wait any longer, `at_last`, what was observed of its time up to
    /// now has to do.
    pub(crate) fn find(&self, wanted: Wanted<'_>, during: Stretch, at_last: bool) -> Result<Found<'_>, NotFound> {
        let candidates = self.candidates_of(wanted);
        let all = &candidates.processes;
        if all.is_empty() {
            return Err(NotFound::Unknown);
        }
        let may_come =
            |process: &Process| !process.reaches(during) && during.end.saturating_sub(process.last) <= SILENT;
        // Which of them it was is known when the time about the span's is, of each.
        let all_came = at_last
            || all.iter().any(|process| process.reaches(during)) && !all.iter().any(|process| may_come(process));
        let Some(found) = candidates.best_of(candidates.observed(during, all_came)?, during) else {
            let is_past = all_came && (!at_last || all.iter().any(|process| process.last >= during.start));
            return Err(if is_past { NotFound::Unobserved } else { NotFound::NotCovered });
        };
        // Which thread it was is known when all of its time is; and one that observes waiting threads is worth waiting
        // for.
        let process = found.process;
        let is_better = |other: &&Process| other.profiler.wall && !process.profiler.wall && process.is_also(other);
        if !at_last && (!process.reaches(during) || all.iter().copied().filter(is_better).any(may_come)) {
            return Err(NotFound::NotCovered);
        }
        Ok(found)
    }

    /// The processes that spans may be of which say this.
    pub(crate) fn candidates_of(&self, wanted: Wanted<'_>) -> Candidates<'_> {
        let (processes, by_thread) = self.candidates(wanted);
        Candidates { index: self, claims: *wanted.claims, pointer: wanted.pointer, processes, by_thread }
    }

    /// The processes that a span may be of, and whether only the pointer of its thread says that: where nothing that
    /// the span says names one.
    fn candidates(&self, wanted: Wanted<'_>) -> (Vec<&Process>, bool) {
        let mut found: Vec<&Process> = Vec::new();
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
        let has_it = |process: &&Process| {
            process.claims.agrees(wanted.claims)
                && process.claims.thread_name(pointer) == Some(name)
                && process.threads.iter().any(|(_, thread)| thread.pointer == Some(pointer))
        };
        let processes = self.by_thread.find(name).filter_map(|number| self.processes.get(&number));
        found.extend(processes.map(|process| &**process).filter(has_it));
        (found, true)
    }

    /// The names under which a process is found that was observed: its own, and those of its threads, by their ids of
    /// those only that were observed in some time.
    pub(crate) fn names(&self, identity: u128, during: Stretch) -> impl Iterator<Item = u128> {
        let number = self.by_identity.get(&identity);
        let process = number.and_then(|number| self.processes.get(number)).into_iter();
        process.flat_map(move |process| {
            let own = process.claims.names().chain(process.thread_names());
            own.chain(process.names_of_threads(during))
        })
    }
}

/// The processes that spans may be of which say the same of their process.
#[derive(Debug)]
pub(crate) struct Candidates<'a> {
    pub(super) index: &'a Index,
    claims: ProcessClaims,
    pointer: Option<NonZeroU64>,
    processes: Vec<&'a Process>,
    by_thread: bool,
}

impl<'a> Candidates<'a> {
    /// The one that is taken of those that were observed in a span's time, as [`Index::find`] takes it.
    pub(super) fn best(&self, during: Stretch) -> Option<Found<'a>> {
        self.best_of(self.observed(during, true).ok()?, during)
    }

    /// The process with an identity, for a span that lasted for some time, where it is one of those that the span may
    /// be of: of several that were observed then, all have to be one, seen by several profilers.
    pub(crate) fn get(&self, identity: u128, during: Stretch) -> Option<Found<'a>> {
        let observed = match &self.processes[..] {
            // The usual case, in which the time is looked at with the thread.
            one @ [_] if !self.by_thread => one.to_vec(),
            // What has not come by now does not come in time.
            _ => self.observed(during, true).ok()?,
        };
        let process = observed.iter().copied().find(|process| process.identity.hash == identity)?;
        Some(self.found(process, during, observed.len() > 1))
    }

    /// Of one process that several profilers observed what that one knows which comes before the others.
    fn best_of(&self, observed: Vec<&'a Process>, during: Stretch) -> Option<Found<'a>> {
        let several = observed.len() > 1;
        let process = observed.into_iter().max_by_key(|process| (process.profiler.wall, process.identity.hash))?;
        Some(self.found(process, during, several))
    }

    fn found(&self, process: &'a Process, during: Stretch, several: bool) -> Found<'a> {
        let &Self { index, by_thread, .. } = self;
        let has_system_ids = process.has_system_ids(&self.claims);
        Found { process, index, during, by_thread, several, has_system_ids }
    }

    /// Those that were observed in a span's time. All of them may be one, observed by several profilers. Of which
    /// nothing was observed in it, those that were observed about then ([`CLOCKS_OFF`]): only where all that the span
    /// may be of are one process, since of others, which may have run too shortly to be observed, nearness tells
    /// nothing, and once profiles of that time do not come any more (`all_came`).
    fn observed(&self, during: Stretch, all_came: bool) -> Result<Vec<&'a Process>, NotFound> {
        let pointer = self.pointer.filter(|_| self.by_thread);
        let within = |during: Stretch| {
            let is_observed = |thread: &Thread| {
                pointer.is_none_or(|pointer| thread.pointer == Some(pointer)) && thread.covered.overlaps(during.into())
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
            Some(pointer) => self.matching(|process| process.near(pointer, during).is_some()),
            None => within(about(during)),
        })
    }

    fn matching(&self, is_wanted: impl Fn(&Process) -> bool) -> Vec<&'a Process> {
        self.processes.iter().copied().filter(|process| is_wanted(process)).collect()
    }
}

/// Whether all may be one process.
pub(super) fn are_one(all: &[&Process]) -> bool {
    let mut pairs = all.iter().enumerate().flat_map(|(at, one)| all[..at].iter().map(move |other| (one, other)));
    pairs.all(|(one, other)| one.is_also(other))
}

/// A span's time, and what may belong to it where clocks are off.
pub(super) fn about(during: Stretch) -> Stretch {
    let Stretch { start, end } = during;
    Stretch { start: start.saturating_sub(CLOCKS_OFF), end: end.saturating_add(CLOCKS_OFF) }
}

impl Process {
    /// The threads that have, or had, a pointer.
    pub(super) fn threads_at(&self, pointer: NonZeroU64) -> impl Iterator<Item = (&ThreadId, &Thread)> {
        self.threads.iter().filter(move |(_, thread)| thread.pointer == Some(pointer))
    }

    /// The thread with a pointer that was observed about a span's time, where none that has it was in it. Nearness
    /// tells something only where nobody else can have had the pointer in between: no other thread is known with it,
    /// and none was observed in the span's time of which the pointer is not known.
    pub(super) fn near(&self, pointer: NonZeroU64, during: Stretch) -> Option<(&ThreadId, &Thread)> {
        let mut all = self.threads_at(pointer);
        let is_near = |thread: &Thread| thread.covered.overlaps(about(during).into());
        let thread = all.next().filter(|(_, thread)| all.next().is_none() && is_near(thread))?;
        let may_have_it = |thread: &Thread| thread.pointer.is_none() && thread.covered.overlaps(during.into());
        (!self.threads.iter().any(|(_, thread)| may_have_it(thread))).then_some(thread)
    }

    /// Whether both may be one process that two profilers observed: one profiler knows a process once.
    pub(super) fn is_also(&self, other: &Self) -> bool {
        self.profiler.name != other.profiler.name && self.claims.agrees(&other.claims)
    }

    /// Whether it was observed up to the end of the time about a span's.
    pub(super) fn reaches(&self, during: Stretch) -> bool {
        self.last >= about(during).end
    }
}
