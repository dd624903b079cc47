//! The beginning and the end of a tick: its slot, the list of threads, its cost.

use std::time::{Duration, Instant};

use super::Active;
use crate::message::Detached;
use crate::process_files::Life;
use crate::sampler::budget::CpuMark;
use crate::sampler::pending_stops::PendingStops;
use crate::sampler::states::PendingCheck;
use crate::sampler::thread_state::ThreadState;

/// In one of this many ticks, check whether the process is alive, even if nothing indicates that it has ended.
const LIFE_STRIDE: u64 = 16;

/// If more threads than this are found at once, the cost of adding them is not charged to the budget. This exception is
/// granted at most once in `SETTLED` seconds.
const MANY: usize = 32;
const SETTLED: u64 = 10;

/// What a tick has to do with the process, after the check whether it is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sampler) enum TickStart {
    /// Sample the process.
    Sample,
    /// Detach the process.
    LetGo(Detached),
    /// Stop sampling the process: a thread executes 32-bit code.
    OtherArchitecture,
}

impl Active {
    /// Starts the tick that is due.
    pub(in crate::sampler) fn begin_tick(&mut self, now: Instant) -> TickStart {
        let tick = self.schedule.begin(now);
        let status = &mut self.attached.status;
        status.ticks += 1;
        status.missed_ticks += tick.missed;
        status.lowered_ticks += self.schedule.stride() - 1;
        self.slot = tick.slot;
        self.attached.contexts.check(&self.attached.files, now);
        match self.concern {
            PendingCheck::OtherArchitecture => return TickStart::OtherArchitecture,
            PendingCheck::None if !status.ticks.is_multiple_of(LIFE_STRIDE) => return TickStart::Sample,
            PendingCheck::None | PendingCheck::MayBeGone => self.concern = PendingCheck::None,
        }
        match self.attached.files.alive() {
            Life::Same => TickStart::Sample,
            Life::Executed => TickStart::LetGo(Detached::Executed),
            Life::Exited => TickStart::LetGo(Detached::Exited),
        }
    }

    /// Prepares the last examination of each thread: idle threads may have been skipped for some ticks.
    pub(in crate::sampler) fn begin_last_looks(&mut self, now: Instant) {
        self.slot = self.slot.max(self.schedule.slot(now));
        self.apply_records();
    }

    /// Lists the threads, if they may have changed. `ids` is a reusable buffer.
    pub(in crate::sampler) fn list_threads(&mut self, now: Instant, pending: &PendingStops, ids: &mut Vec<u32>) {
        let Ok(listed) = self.thread_lister.threads(self.attached.files.task(), now, ids) else {
            return self.concern.may_be_gone();
        };
        let Some(ids) = listed else { return self.listed(now) };
        if ids.is_empty() {
            self.concern.may_be_gone();
        }
        let came = self.set_threads(ids, now);
        // The exception is not granted repeatedly: if threads start and end all the time, that is the true cost of
        // sampling this process.
        if came > MANY && self.slot >= self.no_more_free_until {
            // The first batch contains the names of all threads.
            let batch = self.flush_interval().as_nanos() / u128::from(self.schedule.period_nano());
            self.free_until = self.slot + self.idle_patience().max(u64::try_from(batch).unwrap_or(u64::MAX)) + 1;
            self.no_more_free_until = self.free_until + SETTLED * self.slots_per_second();
        }
        for thread in &mut self.threads {
            match (thread.stop_turn.is_asked(), pending.contains_key(&thread.id())) {
                (false, true) => thread.stop_turn.ask(),
                (true, false) => thread.stop_turn.end(),
                (true, true) | (false, false) => {}
            }
        }
    }

    /// Charges the budget with the cost of the tick, and sets the rate. `of_switch` is the sampler's cost for the
    /// records of one switch.
    pub(in crate::sampler) fn charge_tick(&mut self, cpu: &mut CpuMark, of_switch: Duration, now: Instant) {
        if self.slot < self.free_until {
            // Adding many threads at once, and examining all of them until the idle ones are known, costs more than
            // sampling them later.
            cpu.take();
            self.budget.restart(now);
        }
        if let Some((switches, of_threads)) = self.review_records(now) {
            self.budget.spend_on_records(of_threads, of_switch.saturating_mul(switches));
        }
        if self.budget.is_due(now, self.flush_interval()) {
            self.budget.spend(cpu.take());
            let longest =
                |longest: Duration, thread: &mut ThreadState| longest.max(std::mem::take(&mut thread.stopped));
            let stopped = self.threads.iter_mut().fold(Duration::ZERO, longest);
            let stride = self.budget.review(now, stopped);
            self.set_stride(stride);
            #[allow(clippy::cast_precision_loss, reason = "at most 64")]
            let stride = stride as f64;
            self.attached.status.rate_hertz = self.attached.settings.rate_hertz / stride;
        }
    }

    /// Makes only one slot in `stride` have a tick from now on, and adapts the periods of events.
    fn set_stride(&mut self, stride: u64) {
        if stride == self.schedule.stride() {
            return;
        }
        self.schedule.set_stride(stride);
        let period = self.event_period();
        for event in self.threads.iter_mut().filter_map(|thread| thread.event.as_mut()) {
            event.set_period(period);
        }
    }
}
