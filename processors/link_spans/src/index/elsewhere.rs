//! Spans that say another process than that in which they ran: an SDK that was set up before a fork says the id of the
//! process that forked, as of workers of a server that loads the program first. The system's id of their thread tells
//! which process it was.

use hashbrown::HashMap;
use profbridge_identity::ProcessClaims;

use super::find::{Candidates, are_one};
use super::threads::{Thread, ThreadId};
use super::{Found, FoundThread, Index, NotFound, Process};
use crate::covered::Stretch;

/// Which processes have a thread with an id of the system's, of ids that were asked for: many spans are of one thread.
#[derive(Debug, Default)]
pub(crate) struct Owners<'a>(HashMap<u32, Vec<&'a Process>>);

impl Index {
    /// The process that has a thread with an id of the system's, for a span whose process, as the span says it, has
    /// none: one of the same host, whose thread was observed in the span's time. It looks at all processes.
    pub(crate) fn elsewhere<'a>(
        &'a self,
        said: &Found<'a>,
        thread: u32,
        at_last: bool,
        owners: &mut Owners<'a>,
    ) -> Result<Found<'a>, NotFound> {
        let id = ThreadId::of_system(thread);
        let owners = owners.0.entry(thread).or_insert_with(|| {
            let has_it = |process: &&Process| id.as_ref().and_then(|id| process.threads.get(id)).is_some();
            let of_system = |process: &&Process| process.has_system_ids(&process.claims);
            self.processes.values().map(|process| &**process).filter(has_it).filter(of_system).collect()
        });
        let during = said.during;
        let is_it = |process: &&Process| {
            let thread = id.as_ref().and_then(|id| process.threads.get(id));
            process.number != said.process.number
                && process.claims.is_of_host_of(&said.process.claims)
                && thread.is_some_and(|(_, thread)| thread.covered.overlaps(during.into()))
        };
        let all: Vec<&Process> = owners.iter().copied().filter(is_it).collect();
        let best = all.iter().copied().max_by_key(|process| (process.profiler.wall, process.identity.hash));
        let process = best.ok_or(NotFound::Unknown)?;
        if !are_one(&all) {
            return Err(NotFound::Ambiguous);
        }
        if !at_last && !process.reaches(during) {
            return Err(NotFound::NotCovered);
        }
        Ok(Found { process, has_system_ids: true, several: all.len() > 1, ..*said })
    }
}

impl<'a> Candidates<'a> {
    /// The thread of a process with an id of the system's, for a span that ran there and says another process: one of
    /// these.
    pub(crate) fn elsewhere(
        &self,
        identity: u128,
        during: Stretch,
        thread: u32,
        owners: &mut Owners<'a>,
    ) -> Option<FoundThread<'a>> {
        let said = self.best(during)?;
        let id = thread.to_string();
        if !said.has_system_ids || said.has_thread(&id) {
            return None;
        }
        // What has not come by now does not come in time.
        let other = self.index.elsewhere(&said, thread, true, owners).ok()?;
        self.index.process(identity, during).filter(|_| other.may_be(identity))?.thread(&id)
    }
}

impl Process {
    /// The names under which those of its threads are found by their ids that were observed in some time.
    pub(super) fn names_of_threads(&self, during: Stretch) -> impl Iterator<Item = u128> {
        let has_system_ids = self.has_system_ids(&self.claims);
        let is_observed = move |thread: &Thread| has_system_ids && thread.covered.overlaps(during.into());
        let ids = self.threads.iter().filter(move |(_, thread)| is_observed(thread)).filter_map(|(id, _)| id.system());
        ids.flat_map(|id| self.claims.names_of_thread(id))
    }

    /// Whether its ids, and those of its threads, are known to be the system's, also as somebody says them who says
    /// this of the process: not where either says that it is in a container and nobody found out what its ids are
    /// there.
    pub(super) fn has_system_ids(&self, said: &ProcessClaims) -> bool {
        let (pid, own) = (self.claims.pid(), self.claims.own_pid());
        let are_same = match own {
            Some(_) => own == pid,
            None => self.has_same_ids || !self.claims.may_have_another_pid() && !said.may_have_another_pid(),
        };
        are_same && pid.is_some() && pid == said.pid()
    }
}
