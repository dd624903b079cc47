//! One tick of one process: look at all threads, ask those that run to stop, sample those that are blocked.

use std::time::{Duration, Instant};

use super::Output;
use super::leases::Lease;
use super::look::{Look, Passive};
use super::run::Engine;
use super::thread_state::ThreadState;
use crate::lease::{self, Refused};
use crate::message::{Detached, Mode, ProblemKind};
use crate::process_files::Life;
use crate::process_info::StatusFile;

/// A living process is asked for its state in every so many ticks even if nothing seems wrong.
const LIFE_STRIDE: u64 = 16;

/// It takes some microseconds for a running thread to stop. To sleep for them and to be woken takes longer, and the thread would stand still
/// meanwhile. It is not asked all the time whether it stopped, since asking and stopping want the same lock of the kernel.
const SHORT_WAITS: usize = 3;
const SHORT_WAIT: Duration = Duration::from_micros(4);

/// Stops that are refused in a row before that is called a problem: a thread that is about to end refuses them, too.
const REFUSALS: u64 = 5;

/// After so many looks at threads, those that were asked to stop are let go if they did: about 30 microseconds.
const LOOKS: usize = 32;

/// More threads than this that come at once are not charged to the budget, at most once in so many seconds.
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
        let tick = process.grid.begin(now);
        process.status.ticks += 1;
        process.status.missed_ticks += tick.missed;
        process.status.lowered_ticks += process.grid.stride() - 1;
        process.slot = tick.slot;
        if process.foreign {
            let message = "a thread executes 32-bit code, which cannot be unwound".to_owned();
            return self.fail(index, ProblemKind::Architecture, message);
        }
        if process.doubt || process.status.ticks.is_multiple_of(LIFE_STRIDE) {
            process.doubt = false;
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
        self.ask_to_stop(index);
        self.sample_blocked(index, now);
        self.tend_events(index, Instant::now());
        self.serve();
        let now = Instant::now();
        self.account(index, now);
        self.say_regular(index, now);
    }

    /// Finds out which threads there are, and how they are sampled while they run.
    pub(super) fn prepare_events(&mut self, index: usize, now: Instant) {
        self.count_threads(index, now);
        self.decide(index);
        self.review_reach(index, now);
    }

    fn count_threads(&mut self, index: usize, now: Instant) {
        let process = &mut self.processes[index];
        let files = std::sync::Arc::clone(&process.files);
        match process.census.threads(files.task(), now, &mut self.ids) {
            Ok(None) => {}
            Ok(Some(ids)) => {
                if ids.is_empty() {
                    process.doubt = true;
                }
                let came = process.set_threads(ids);
                // Not again and again: threads that come and go all the time are what sampling the process costs.
                if came > MANY && process.slot >= process.settled_until {
                    process.settles_until = process.slot + process.idle_patience() + 1;
                    process.settled_until = process.settles_until + SETTLED * process.slots_per_second();
                }
                for state in &mut process.threads {
                    state.leased = self.leases.contains_key(&state.files.id);
                }
            }
            Err(_) => process.doubt = true,
        }
    }

    /// Looks at one thread, and notes what is to be done.
    pub(super) fn look(&mut self, index: usize, thread: usize, idle_stride: u64, all: bool) {
        let process = &mut self.processes[index];
        match process.look(thread, idle_stride, all) {
            Look::Nothing => {}
            Look::Unchanged => {
                if process.wants_blocked(thread) {
                    process.account_blocked(thread, Instant::now());
                }
            }
            Look::Running if process.watch.has_ledger() => self.watch_thread(index, thread),
            Look::Running => {
                let state = &process.threads[thread];
                if process.settings.mode == Mode::Wall || state.run_unsampled > 0 {
                    self.running.push(state.files.id);
                }
            }
            Look::Blocked(seen) => {
                let moved = std::mem::take(&mut process.threads[thread].moved);
                if process.wants_blocked(thread) {
                    self.blocked.push((process.threads[thread].files.id, seen));
                }
                if moved {
                    self.watch_thread(index, thread);
                }
            }
            Look::Ended => {
                process.census.invalidate();
                process.doubt |= process.threads.len() == 1;
            }
        }
    }

    /// Asks all running threads to stop.
    fn ask_to_stop(&mut self, index: usize) {
        let mut running = std::mem::take(&mut self.running);
        if let Some(&thread) = running.first() {
            self.prepare(index, thread);
        }
        for (turn, thread) in running.drain(..).enumerate() {
            if turn > 0 {
                self.harvest();
            }
            self.request(index, thread, false);
        }
        self.noticed = Instant::now();
        for _ in 0..SHORT_WAITS {
            if self.leases.is_empty() {
                break;
            }
            let end = Instant::now() + SHORT_WAIT;
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            self.harvest();
        }
        self.running = running;
    }

    /// Does once what will be done to a thread while it is held, so that the processor and the kernel have at hand what that needs.
    fn prepare(&mut self, index: usize, thread: u32) {
        let process = &self.processes[index];
        let state = process.find(thread).map(|place| &process.threads[place]);
        if let Some(sp) = state.and_then(|state| state.stopped_sp) {
            process.files.read_memory(sp, &mut [0; 64]);
        }
    }

    fn request(&mut self, index: usize, thread: u32, blocked: bool) {
        if self.stopping.is_some() {
            return;
        }
        let process = &mut self.processes[index];
        let Some(state) = process.find(thread) else {
            return;
        };
        if self.leases.is_empty() {
            // Nothing can have stopped before it was asked to.
            self.noticed = Instant::now();
        }
        match self.seizing.ask(process.files.pid(), || lease::request(thread)) {
            Ok(()) => {
                process.threads[state].leased = true;
                process.refusals = 0;
                let process = process.id;
                self.leases.insert(thread, Lease { process, blocked });
            }
            Err(Refused::Ended) => process.census.invalidate(),
            Err(Refused::Denied) => {
                // The time is lost: no later sample is to stand for it.
                let slot = process.slot;
                process.threads[state].credited = slot;
                process.threads[state].run_unsampled = 0;
                process.status.refused_stops += 1;
                process.refusals += 1;
                if process.refusals >= REFUSALS {
                    self.explain_refusal(index, state);
                }
            }
        }
    }

    fn explain_refusal(&mut self, index: usize, thread: usize) {
        let process = &mut self.processes[index];
        let (files, task) = (&mut process.threads[thread].files, process.files.task());
        let Some(StatusFile { tracer, .. }) = files.status(task) else {
            return;
        };
        // One that is about to end refuses as well, and one that was killed while it was held is still traced by this thread.
        let ends = !matches!(files.activity(task), Ok(activity) if !activity.is_end());
        if ends || tracer == nix::unistd::gettid().as_raw().unsigned_abs() {
            return;
        }
        let (kind, message) = if tracer != 0 {
            (
                ProblemKind::Traced,
                format!("process {tracer} traces it: only blocked threads are sampled until it lets go"),
            )
        } else {
            (
                ProblemKind::Permission,
                "the kernel refuses to have its threads stopped: only blocked threads are sampled (is ptrace denied by a seccomp profile or a security module?)".to_owned(),
            )
        };
        self.problem(index, kind, message);
    }

    /// Samples the blocked threads that were noted.
    fn sample_blocked(&mut self, index: usize, now: Instant) {
        let mut blocked = std::mem::take(&mut self.blocked);
        for (thread, seen) in blocked.drain(..) {
            let process = &mut self.processes[index];
            let Some(state) = process.find(thread) else {
                continue;
            };
            match process.passive(state, seen, &mut self.workshop, now) {
                Passive::Known => process.account_blocked(state, Instant::now()),
                Passive::Ran => {}
                // Where running threads are not stopped, blocked ones are not either.
                Passive::Stop if process.watch.has_ledger() => process.account_blocked(state, Instant::now()),
                Passive::Stop => self.request(index, thread, true),
            }
            self.harvest();
        }
        self.blocked = blocked;
    }

    /// Settles what the tick cost.
    fn account(&mut self, index: usize, now: Instant) {
        self.charge(self.processes[index].id);
        let process = &mut self.processes[index];
        if process.slot < process.settles_until {
            // What it takes to take in so many, until those that are idle are known to be, is no measure of what sampling them takes.
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
                process.status.lost_observations += self.voice.say_batch(batch);
            }
        }
        if let Some(status) = process.take_status(now) {
            self.voice.say(Output::Status(status));
        }
        if process.take_reload(now) {
            self.voice.say(Output::Reload(id));
        }
    }
}
