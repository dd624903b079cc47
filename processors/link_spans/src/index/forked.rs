//! Spans that name another process than the one they ran in. If an SDK is set up before a fork, its spans carry the id
//! of the parent, such as in server workers that load the program first. The system's thread id reveals the real
//! process.

use hashbrown::HashMap;
use profbridge_identity::ProcessClaims;

use super::find::{Candidates, are_one};
use super::threads::{ObservedThread, ThreadId};
use super::{Index, MatchedProcess, MatchedThread, NotFound, ObservedProcess};
use crate::observed_times::TimeRange;

/// Caches which processes have a thread with a system id: many spans share a thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadOwners<'a>(HashMap<u32, Vec<&'a ObservedProcess>>);

impl Index {
    /// Finds the process that has this system thread id, for a span whose claimed process has no such thread. It must
    /// be on the same host, and the thread must have been observed during the span. All processes are searched.
    pub(crate) fn elsewhere<'a>(
        &'a self,
        claimed: &MatchedProcess<'a>,
        thread: u32,
        at_last: bool,
        owners: &mut ThreadOwners<'a>,
    ) -> Result<MatchedProcess<'a>, NotFound> {
        let id = ThreadId::of_system(thread);
        let owners = owners.0.entry(thread).or_insert_with(|| {
            let has_it = |process: &&ObservedProcess| id.as_ref().and_then(|id| process.threads.get(id)).is_some();
            let of_system = |process: &&ObservedProcess| process.has_system_ids(&process.claims);
            self.processes.values().map(|process| &**process).filter(has_it).filter(of_system).collect()
        });
        let during = claimed.during;
        let is_it = |process: &&ObservedProcess| {
            let thread = id.as_ref().and_then(|id| process.threads.get(id));
            process.number != claimed.process.number
                && process.claims.is_of_host_of(&claimed.process.claims)
                && thread.is_some_and(|(_, thread)| thread.covered.overlaps(during))
        };
        let all: Vec<&ObservedProcess> = owners.iter().copied().filter(is_it).collect();
        let best = all.iter().copied().max_by_key(|process| (process.profiler.wall, process.identity.hash));
        let process = best.ok_or(NotFound::Unknown)?;
        if !are_one(&all) {
            return Err(NotFound::Ambiguous);
        }
        if !at_last && !process.reaches(during) {
            return Err(NotFound::NotCovered);
        }
        Ok(MatchedProcess { process, has_system_ids: true, several: all.len() > 1, ..*claimed })
    }
}

impl<'a> Candidates<'a> {
    /// The thread with this system id in a process, for a span that ran there but claims one of these candidates.
    pub(crate) fn elsewhere(
        &self,
        identity: u128,
        during: TimeRange,
        thread: u32,
        owners: &mut ThreadOwners<'a>,
    ) -> Option<MatchedThread<'a>> {
        let claimed = self.best(during)?;
        let id = thread.to_string();
        if !claimed.has_system_ids || claimed.has_thread(&id) {
            return None;
        }
        // Profiles that are missing by now will not arrive in time.
        let other = self.index.elsewhere(&claimed, thread, true, owners).ok()?;
        self.index.process(identity, during).filter(|_| other.may_be(identity))?.thread(&id)
    }
}

impl ObservedProcess {
    /// The names that lead to it by system thread id, for threads observed in a time range.
    pub(super) fn names_of_threads(&self, during: TimeRange) -> impl Iterator<Item = u128> {
        let has_system_ids = self.has_system_ids(&self.claims);
        let is_observed = move |thread: &ObservedThread| has_system_ids && thread.covered.overlaps(during);
        let ids = self.threads.iter().filter(move |(_, thread)| is_observed(thread)).filter_map(|(id, _)| id.system());
        ids.flat_map(|id| self.claims.names_of_thread(id))
    }

    /// Whether the process and thread ids in its profiles are known to be the system's, and those in `claimed` as well.
    /// They are not if either side claims to be in a container and the ids inside are unknown.
    pub(super) fn has_system_ids(&self, claimed: &ProcessClaims) -> bool {
        let (pid, own) = (self.claims.pid(), self.claims.inner_pid());
        let are_same = match own {
            Some(_) => own == pid,
            None => self.has_same_ids || !self.claims.may_have_another_pid() && !claimed.may_have_another_pid(),
        };
        are_same && pid.is_some() && pid == claimed.pid()
    }
}
