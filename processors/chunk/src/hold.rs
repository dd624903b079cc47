//! Puts requests into windows. With `service.identity.window: 0s`, the windows close when the request is in them.

#[cfg(test)]
mod tests;

mod request;
mod under_way;

use std::collections::{HashMap, HashSet};

use profbridge_engine::component::{Now, Outbox};
use profbridge_identity::{Processes, RequestId};
use profbridge_model::{Profiles, Reason};
use profbridge_windows::Store;

use self::request::take_in;
use self::under_way::PartlyAbsorbedRequest;
use crate::budget::AmplificationBudget;
use crate::config::Settings;
use crate::key::ProcessCell;

/// Times further than this from their arrival, in nanoseconds, close no other windows of their process: ten minutes.
const FAR: u64 = 600 * 1_000_000_000;

/// The maximum number of closed windows that may wait to be flushed while a request is absorbed.
const WAITING: usize = 16;

/// Holds requests until their windows close.
pub(crate) struct Hold {
    settings: Settings,
    /// The number of requests so far.
    requests: u64,
    windows: Store<ProcessCell>,
    budget: AmplificationBudget,
    /// The request that is only partly absorbed.
    under_way: Option<Box<PartlyAbsorbedRequest>>,
}

impl Hold {
    pub(crate) fn new(settings: Settings) -> Self {
        let windows = Store::new(settings.limits());
        Self { windows, settings, requests: 0, budget: AmplificationBudget::default(), under_way: None }
    }

    /// Lowers the bounds to fit this much memory, in bytes.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.settings.fit_memory(limit);
        self.windows = Store::new(self.settings.limits());
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn is_absorbing(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether nothing is held and no request is partly absorbed.
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_none() && self.windows.is_empty()
    }

    pub(crate) fn observations(&self) -> u64 {
        self.windows.observations() + self.under_way.as_ref().map_or(0, |work| work.found.left)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.windows.bytes() + self.under_way.as_ref().map_or(0, |work| work.bytes())
    }

    pub(crate) fn distinct_bytes(&self) -> u64 {
        self.windows.distinct_bytes()
    }

    /// The time at which the next window is due.
    pub(crate) fn due(&self) -> Option<u64> {
        self.windows.due()
    }

    /// Adds the bytes of a request to the output budget.
    pub(crate) fn add_allowance(&mut self, bytes: u64) {
        self.budget.add_allowance(bytes);
    }

    /// The processes of a request. Its number distinguishes it from all other requests.
    pub(crate) fn processes_of(&mut self, profiles: &Profiles, now: Now) -> Processes {
        self.requests += 1;
        let id = RequestId { arrival: now.unix_nano, number: self.requests };
        Processes::new(profiles, &self.settings.rules, id)
    }

    /// Puts a request, or its first part, into the windows of its processes and times.
    pub(crate) fn take(&mut self, profiles: Profiles, now: Now, out: &mut Outbox) {
        let processes = self.processes_of(&profiles, now);
        self.take_of(profiles, processes, HashMap::new(), now, out);
    }

    /// Like [`Self::take`], with `phases`: the starts of cells by process hash, where they are not at the usual
    /// boundaries.
    pub(crate) fn take_of(
        &mut self,
        profiles: Profiles,
        processes: Processes,
        phases: HashMap<u128, u64>,
        now: Now,
        out: &mut Outbox,
    ) {
        self.under_way = Some(Box::new(PartlyAbsorbedRequest::new(profiles, processes, phases, &self.settings, now)));
        self.absorb(now, out);
        self.note_closed_early(out);
    }

    /// Flushes a window and absorbs more of the current request.
    pub(crate) fn advance(&mut self, now: Now, out: &mut Outbox) {
        // Without a window length, windows wait for the rest of their request.
        let is_all = self.settings.rules.window > 0 || !self.is_absorbing();
        self.windows.close_due(if is_all { now.monotonic_nano } else { 0 });
        self.flush_one(out);
        if self.windows.due().is_none_or(|due| due > now.monotonic_nano) {
            self.windows.sweep();
        }
        self.absorb(now, out);
        self.note_closed_early(out);
    }

    /// Flushes a window because memory is short. Returns whether there is more to do.
    pub(crate) fn on_memory_pressure(&mut self, out: &mut Outbox) -> bool {
        self.windows.on_memory_pressure();
        self.flush_one(out);
        self.note_closed_early(out);
        // Closed windows are flushed first; after the last of them, unused dictionaries are freed.
        let more = self.windows.is_relieving();
        if !more {
            self.windows.sweep();
        }
        more
    }

    /// Flushes a window because the pipeline ends. Returns whether there is more to do.
    pub(crate) fn flush(&mut self, out: &mut Outbox) -> bool {
        self.windows.close_for_the_end();
        self.flush_one(out);
        let more = !self.windows.is_empty();
        if !more {
            self.windows.sweep();
        }
        more
    }

    /// Flushes the next closed window that the budget allows.
    fn flush_one(&mut self, out: &mut Outbox) {
        while let Some(flushed) = self.windows.flush(!self.budget.is_used_up()) {
            let Some(mut batch) = flushed.batch else {
                out.drop_observations(Reason::LimitExceeded, flushed.observations);
                continue;
            };
            self.budget.charge(batch.size_bytes(), flushed.observations);
            batch.window = Some(self.settings.rules.window(flushed.key.identity, flushed.key.cell));
            out.send(batch);
            return;
        }
    }

    fn note_closed_early(&mut self, out: &mut Outbox) {
        out.note(crate::CLOSED_EARLY, self.windows.take_closed_early());
    }

    /// Absorbs as much of the current request as fits into one step.
    fn absorb(&mut self, now: Now, out: &mut Outbox) {
        let Some(mut work) = self.under_way.take() else { return };
        let found = &mut work.found;
        found.may_wait = found.may_wait.min(self.windows.closed() + WAITING);
        found.intake.resume(&self.windows);
        let is_done = take_in(&mut work, &self.settings, &mut self.windows, out);
        let found = &mut work.found;
        found.intake.settle(&mut self.windows);
        out.note(crate::WEAK_IDENTITY, std::mem::take(&mut found.weak));
        if !is_done {
            self.under_way = Some(work);
            return;
        }
        debug_assert_eq!(found.left, 0);
        close_passed(&mut self.windows, &mut found.touched, &self.settings, now);
        work.found.intake.end(&mut self.windows);
    }
}

/// Closes windows that end before the current time of their process, if windows have a length. Times far in the future
/// do not count, because a wrong clock would otherwise close every window at once.
fn close_passed(windows: &mut Store<ProcessCell>, touched: &mut HashSet<u128>, settings: &Settings, now: Now) {
    for process in in_order(touched) {
        if settings.rules.window == 0 {
            continue;
        }
        let process = ProcessCell::first(process);
        if windows.group(&process).nth(1).is_none() {
            continue;
        }
        let times = windows.group(&process).map(|window| window.latest);
        let latest = times.filter(|&time| time.abs_diff(now.unix_nano) <= FAR).max().unwrap_or(0);
        windows.close_group(&process, |window| window.key.cell.end.saturating_add(settings.lateness) <= latest);
    }
}

/// Drains a set of processes in an order that is the same in every run.
fn in_order(processes: &mut HashSet<u128>) -> Vec<u128> {
    let mut processes: Vec<u128> = std::mem::take(processes).into_iter().collect();
    processes.sort_unstable();
    processes
}
