//! One tick of one process: look at all threads, ask those that run to stop, sample those that are blocked.

use std::time::{Duration, Instant};

use super::Output;
use super::events::Watch;
use super::look::{Look, Passive};
use super::run::Engine;
use super::thread_state::ThreadState;
use crate::message::{Detached, ProblemKind};
use crate::process_files::Life;

/// In one of this many ticks a process is asked whether it lives, even if nothing seems wrong.
const LIFE_STRIDE: u64 = 16;

/// After this many looks at threads, those that have stopped meanwhile are let go: that is every 30 microseconds or so.
const LOOKS: usize = 32;

/// If more threads than this come at once, adding them is not charged to the budget, but at most once in `SETTLED`
/// seconds.
const MANY: usize = 32;
const SETTLED: u64 = 10;

impl Engine<'_> {
    /// One tick of one process.
    pub(super) fn tick(&mut self, index: usize) {
        let now = Instant::now();
        let id = self.processes[index].id;
        self.charge(id);
        self.current = Some(id);
        let process = &mut self.processes[index];
        let tick = process.schedule.begin(now);
        process.status.ticks += 1;
        process.status.missed_ticks += tick.missed;
        process.status.lowered_ticks += process.schedule.stride() - 1;
        process.slot = tick.slot;
        if process.other_architecture {
            let message = "a thread executes 32-bit code, which cannot be unwound".to_owned();
            return self.fail(index, ProblemKind::Architecture, message);
        }
        if process.may_be_gone || process.status.ticks.is_multiple_of(LIFE_STRIDE) {
            process.may_be_gone = false;
            match process.files.alive() {
                Life::Same => {}
                Life::Executed => return self.let_go(index, Detached::Executed),
                Life::Exited => return self.let_go(index, Detached::Exited),
            }
        }
        self.prepare_events(index, now);
        let process = &mut self.processes[index];
        let idle_stride = process.idle_stride();
        let number = process.threads.len();
        for thread in 0..number {
            self.look(index, thread, idle_stride, false);
            if thread % LOOKS == LOOKS - 1 {
                self.harvest();
            }
        }
        self.watch_noted(index, now);
        self.processes[index].begin_unseen();
        self.ask_to_stop(index);
        self.sample_blocked(index, now);
        self.tend_events(index, Instant::now());
        self.review_precedence(Instant::now());
        self.serve();
        let now = Instant::now();
        self.account(index, now);
        self.say_regular(index, now);
    }

    /// Lists the threads, and decides how they are sampled while they run.
    pub(super) fn prepare_events(&mut self, index: usize, now: Instant) {
        self.count_threads(index, now);
        self.decide(index, now);
        self.review_coverage(index, now);
    }

    fn count_threads(&mut self, index: usize, now: Instant) {
        let process = &mut self.processes[index];
        let files = std::sync::Arc::clone(&process.files);
        match process.thread_lister.threads(files.task(), now, &mut self.ids) {
            Ok(None) => {}
            Ok(Some(ids)) => {
                if ids.is_empty() {
                    process.may_be_gone = true;
                }
                let came = process.set_threads(ids);
                // Not granted repeatedly: if threads come and go all the time, that is the cost of sampling this
                // process.
                if came > MANY && process.slot >= process.settled_until {
                    process.settles_until = process.slot + process.idle_patience() + 1;
                    process.settled_until = process.settles_until + SETTLED * process.slots_per_second();
                }
                for state in &mut process.threads {
                    state.stop_pending = self.pending_stops.contains_key(&state.files.id);
                }
            }
            Err(_) => process.may_be_gone = true,
        }
    }

    /// Looks at one thread, and notes whether it has to be stopped, unwound or given an event.
    pub(super) fn look(&mut self, index: usize, thread: usize, idle_stride: u64, all: bool) {
        let process = &mut self.processes[index];
        match process.look(thread, idle_stride, all) {
            Look::Nothing => {}
            Look::Unchanged => {
                if process.wants_blocked() {
                    process.account_blocked(thread, Instant::now());
                }
            }
            Look::Running => match process.watch {
                Watch::Events(_) if process.threads[thread].event.is_none() => {
                    self.unwatched.push(process.threads[thread].files.id);
                }
                Watch::Stops => {
                    if process.may_stop(thread, Instant::now()) {
                        self.running.push(process.threads[thread].files.id);
                    }
                }
                Watch::Events(_) | Watch::Not | Watch::Undecided => {}
            },
            Look::Blocked(seen) => {
                let moved = std::mem::take(&mut process.threads[thread].moved);
                if process.wants_blocked() {
                    self.blocked.push((process.threads[thread].files.id, seen));
                }
                if moved {
                    self.unwatched.push(process.threads[thread].files.id);
                }
            }
            Look::Ended => {
                process.thread_lister.invalidate();
                process.may_be_gone |= process.threads.len() == 1;
            }
        }
    }

    /// Samples the blocked threads that were noted.
    fn sample_blocked(&mut self, index: usize, now: Instant) {
        let mut blocked = std::mem::take(&mut self.blocked);
        for (thread, seen) in blocked.drain(..) {
            let process = &mut self.processes[index];
            let Some(state) = process.find(thread) else {
                continue;
            };
            match process.passive(state, seen, &mut self.unwinder, now) {
                Passive::Known => process.account_blocked(state, Instant::now()),
                Passive::Ran => {}
                Passive::Stop if process.may_stop_blocked(Instant::now()) => self.request(index, thread, true),
                Passive::Stop => process.account_blocked(state, Instant::now()),
            }
            self.harvest();
        }
        self.blocked = blocked;
    }

    /// Charges the budget with what the tick cost.
    fn account(&mut self, index: usize, now: Instant) {
        self.charge(self.processes[index].id);
        let process = &mut self.processes[index];
        if process.slot < process.settles_until {
            // Adding so many threads at once, and looking at all of them until the idle ones are known, says nothing
            // about what sampling them costs later.
            self.cpu.take();
            process.budget.restart(now);
        }
        if process.budget.is_due(now) {
            process.budget.spend(self.cpu.take());
            let longest =
                |longest: Duration, thread: &mut ThreadState| longest.max(std::mem::take(&mut thread.stopped));
            let stopped = process.threads.iter_mut().fold(Duration::ZERO, longest);
            let stride = process.budget.review(now, stopped);
            process.set_stride(stride);
            #[allow(clippy::cast_precision_loss, reason = "at most 64")]
            let stride = stride as f64;
            process.status.rate_hertz = process.settings.rate_hertz / stride;
        }
    }

    fn say_regular(&mut self, index: usize, now: Instant) {
        let process = &mut self.processes[index];
        let id = process.id;
        if process.flush_is_due(now) {
            self.captures.settle_unknown(process);
            if let Some(batch) = process.flush(now) {
                process.status.lost_observations += self.sender.send_batch(batch);
            }
        }
        if let Some(status) = process.take_status(now) {
            self.sender.send(Output::Status(status));
        }
        if process.take_reload(now) {
            self.sender.send(Output::Reload(id));
        }
    }
}
