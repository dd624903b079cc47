//! Which of the processes that were observed a span is of.

use std::num::NonZeroU64;

use profbridge_identity::Side;
use profbridge_model::dictionary::Link;

use super::found::{Found, FoundThread};
use super::threads::Thread;
use super::{CLOCKS_OFF, Index, Process, SILENT};
use crate::covered::Stretch;

/// Who a span says that it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// What its resource says of the process.
    pub(crate) side: &'a Side,
    /// The pointer of its thread, where it says that.
    pub(crate) pointer: Option<NonZeroU64>,
}

/// Where samples say that they are of a span.
#[derive(Debug)]
pub(crate) struct Own<'a> {
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
    pub(crate) fn own(&self, link: &Link, during: Stretch) -> Option<Own<'_>> {
        let place = self.own_links.get(link)?;
        let process = self.processes.get(&place.process).filter(|process| !process.inherited(place, during.start))?;
        let found = Found { process, index: self, during, by_thread: false, several: false, has_system_ids: false };
        let thread = process.threads.get(place.thread).and_then(|thread| found.of(thread));
        Some(Own { found, thread, is_live: process.profiler.reads_contexts })
    }

    /// The process with an identity, for a span that is of it and lasted for some time.
    pub(crate) fn process(&self, identity: u128, during: Stretch) -> Option<Found<'_>> {
        let process = self.processes.get(self.by_identity.get(&identity)?)?;
        Some(Found { process, index: self, during, by_thread: false, several: false, has_system_ids: false })
    }

    /// The process of a span, given what is said of it, which was observed in the span's time, up to its end and as far
    /// as clocks may be off. Of a span that does not wait any longer, `at_last`, what was observed of its time up to
    /// now has to do.
    pub(crate) fn find(&self, wanted: Wanted<'_>, during: Stretch, at_last: bool) -> Result<Found<'_>, NotFound> {
        let (candidates, by_thread) = self.candidates(wanted);
        if candidates.is_empty() {
            return Err(NotFound::Unknown);
        }
        let may_come =
            |process: &Process| !process.reaches(during) && during.end.saturating_sub(process.last) <= SILENT;
        // Which of them it was is known when the time about the span's is, of each.
        let all_came = at_last
            || candidates.iter().any(|process| process.reaches(during))
                && !candidates.iter().any(|process| may_come(process));
        let found = observed(&candidates, wanted, by_thread, during, all_came)?;
        let several = found.len() > 1;
        let Some(process) = found.into_iter().max_by_key(|process| (process.profiler.wall, process.identity.hash))
        else {
            let is_past = all_came && (!at_last || candidates.iter().any(|process| process.last >= during.start));
            return Err(if is_past { NotFound::Unobserved } else { NotFound::NotCovered });
        };
        // Which thread it was is known when all of its time is; and one that observes waiting threads is worth waiting
        // for.
        let is_better = |other: &&Process| other.profiler.wall && !process.profiler.wall && process.is_also(other);
        if !at_last && (!process.reaches(during) || candidates.iter().copied().filter(is_better).any(may_come)) {
            return Err(NotFound::NotCovered);
        }
        let has_system_ids = process.has_system_ids(wanted.side);
        Ok(Found { process, index: self, during, by_thread, several, has_system_ids })
    }

    /// The processes that spans may be of which say this.
    pub(crate) fn candidates_of<'a>(&'a self, wanted: Wanted<'a>) -> Candidates<'a> {
        let (processes, by_thread) = self.candidates(wanted);
        Candidates { index: self, wanted, processes, by_thread }
    }

    /// The processes that a span may be of, and whether only the pointer of its thread says that: where nothing that
    /// the span says names one.
    fn candidates(&self, wanted: Wanted<'_>) -> (Vec<&Process>, bool) {
        let mut found: Vec<&Process> = Vec::new();
        for name in wanted.side.names() {
            for process in self.by_name.find(name).filter_map(|number| self.processes.get(&number)) {
                let is_new = !found.iter().any(|known| known.number == process.number);
                if is_new && process.side.agrees(wanted.side) && process.side.names().any(|own| own == name) {
                    found.push(process);
                }
            }
        }
        if !found.is_empty() {
            return (found, false);
        }
        let Some((pointer, name)) =
            wanted.pointer.and_then(|pointer| Some((pointer, wanted.side.thread_name(pointer)?)))
        else {
            return (found, true);
        };
        let has_it = |process: &&Process| {
            process.side.agrees(wanted.side)
                && process.side.thread_name(pointer) == Some(name)
                && process.threads.iter().any(|thread| thread.pointer == Some(pointer))
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
            let own = process.side.names().chain(process.thread_names());
            own.chain(process.names_of_threads(during))
        })
    }
}

/// The processes that spans may be of which say the same of their process.
#[derive(Debug)]
pub(crate) struct Candidates<'a> {
    pub(super) index: &'a Index,
    wanted: Wanted<'a>,
    processes: Vec<&'a Process>,
    by_thread: bool,
}

impl<'a> Candidates<'a> {
    /// The one that is taken of those that were observed in a span's time, as [`Index::find`] takes it.
    pub(super) fn best(&self, during: Stretch) -> Option<Found<'a>> {
        let &Self { index, wanted, by_thread, .. } = self;
        let found = observed(&self.processes, wanted, by_thread, during, true).ok()?;
        let several = found.len() > 1;
        let process = found.into_iter().max_by_key(|process| (process.profiler.wall, process.identity.hash))?;
        let has_system_ids = process.has_system_ids(wanted.side);
        Some(Found { process, index, during, by_thread, several, has_system_ids })
    }

    /// The process with an identity, for a span that lasted for some time, where it is one of those that the span may
    /// be of: of several that were observed then, all have to be one, seen by several profilers.
    pub(crate) fn get(&self, identity: u128, during: Stretch) -> Option<Found<'a>> {
        let &Self { index, wanted, by_thread, .. } = self;
        let of = |found: &[&'a Process]| found.iter().copied().find(|process| process.identity.hash == identity);
        let (process, several) = match &self.processes[..] {
            // The usual case, in which the time is looked at with the thread.
            one @ [_] if !by_thread => (of(one)?, false),
            all => {
                // What has not come by now does not come in time.
                let found = observed(all, wanted, by_thread, during, true).ok()?;
                (of(&found)?, found.len() > 1)
            }
        };
        let has_system_ids = process.has_system_ids(wanted.side);
        Some(Found { process, index, during, by_thread, several, has_system_ids })
    }
}

/// Those processes that were observed in a span's time. All of them may be one, observed by several profilers. Of which
/// nothing was observed in it, those that were observed about then ([`CLOCKS_OFF`]): only where all that the span may
/// be of are one process, since of others, which may have run too shortly to be observed, nearness tells nothing, and
/// once profiles of that time do not come any more (`all_came`).
fn observed<'a>(
    candidates: &[&'a Process],
    wanted: Wanted<'_>,
    by_thread: bool,
    during: Stretch,
    all_came: bool,
) -> Result<Vec<&'a Process>, NotFound> {
    let within = |during: Stretch, is_wanted: &dyn Fn(&&Thread) -> bool| -> Vec<&'a Process> {
        let is_observed = |process: &&Process| {
            let Some(during) = process.scale.part_of(during) else { return false };
            process.threads.iter().filter(is_wanted).any(|thread| thread.covered.overlaps(during))
        };
        candidates.iter().copied().filter(is_observed).collect()
    };
    let found = within(during, &|thread| !by_thread || thread.pointer == wanted.pointer);
    match found.is_empty() {
        true if all_came && are_one(candidates) => Ok(match wanted.pointer.filter(|_| by_thread) {
            Some(pointer) => {
                let is_near = |process: &&Process| process.near(pointer, during).is_some();
                candidates.iter().copied().filter(is_near).collect()
            }
            None => within(about(during), &|_| true),
        }),
        true => Ok(found),
        false if are_one(&found) => Ok(found),
        false => Err(NotFound::Ambiguous),
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
    pub(super) fn threads_at(&self, pointer: NonZeroU64) -> impl Iterator<Item = &Thread> {
        self.threads.iter().filter(move |thread| thread.pointer == Some(pointer))
    }

    /// The thread with a pointer that was observed about a span's time, where none that has it was in it. Nearness
    /// tells something only where nobody else can have had the pointer in between: no other thread is known with it,
    /// and none was observed in the span's time of which the pointer is not known.
    pub(super) fn near(&self, pointer: NonZeroU64, during: Stretch) -> Option<&Thread> {
        let (within, about) = (self.scale.part_of(during), self.scale.part_of(about(during))?);
        let mut all = self.threads_at(pointer);
        let thread = all.next().filter(|thread| all.next().is_none() && thread.covered.overlaps(about))?;
        let observed = |thread: &Thread| within.is_some_and(|within| thread.covered.overlaps(within));
        let may_have_it = |thread: &Thread| thread.pointer.is_none() && observed(thread);
        (!self.threads.iter().any(may_have_it)).then_some(thread)
    }

    /// Whether both may be one process that two profilers observed: one profiler knows a process once.
    pub(super) fn is_also(&self, other: &Self) -> bool {
        self.profiler.name != other.profiler.name && self.side.agrees(&other.side)
    }

    /// Whether it was observed up to the end of the time about a span's.
    pub(super) fn reaches(&self, during: Stretch) -> bool {
        self.last >= about(during).end
    }
}
