//! Asks running threads to stop if the kernel permits no perf events: which of them and when, and what happens if a
//! stop is refused.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::interpreters::WHILE_STOPPED;
use super::pending_stops::{PendingStop, StopRequest};
use super::run::Engine;
use super::thread_state::ThreadState;
use crate::message::{ProblemKind, Stops};
use crate::process_info;
use crate::stop::{self, StopRefusal};

/// A running thread takes some microseconds to stop. The sampling thread spins meanwhile: it would take longer to sleep
/// and to be woken, and the stopped thread would have to wait for that. The thread checks only from time to time,
/// because checking and stopping take the same kernel lock.
const SHORT_WAITS: usize = 3;
const SHORT_WAIT: Duration = Duration::from_micros(4);

/// A problem is reported after this many refused stops in a row. Each refusal is followed by a pause without stops.
const REFUSALS: u64 = 2;

impl Engine<'_> {
    /// Asks the running threads that were found in this tick to stop: all at once, or, if stops are rationed, one after
    /// the other as long as the rules allow.
    pub(super) fn ask_to_stop(&mut self, index: usize) {
        if self.running.is_empty() {
            return;
        }
        let mut running = std::mem::take(&mut self.running);
        let rationed = self.processes[index].stop_rules.is_rationed();
        if rationed {
            // Checking for another tracer takes as long as a stop, so it is done only if a thread would be stopped.
            if self.processes[index].stop_rules.may_ask(Instant::now()) {
                self.leave_to_another_tracer(index);
            }
            // Threads that have waited longest for their turn come first.
            let process = &self.processes[index];
            let waited = |thread: u32| {
                process.find(thread).map_or(0, |thread_index| process.threads[thread_index].stop_turn.waited())
            };
            running.sort_by_key(|&thread| Reverse(waited(thread)));
        }
        if let Some(&thread) = running.first() {
            self.prepare(index, thread);
        }
        for (turn, thread) in running.drain(..).enumerate() {
            if turn > 0 {
                self.harvest();
            }
            let process = &mut self.processes[index];
            if process.stop_rules.may_ask(Instant::now()) {
                self.request(index, thread, false);
                if rationed {
                    self.await_stops();
                }
            } else if let Some(thread_index) = process.find(thread) {
                process.threads[thread_index].stop_turn.wait();
            }
        }
        if !rationed {
            self.await_stops();
        }
        self.running = running;
    }

    /// Waits some microseconds for threads to stop, and releases those that have stopped.
    fn await_stops(&mut self) {
        self.noticed = Instant::now();
        for _ in 0..SHORT_WAITS {
            if self.pending_stops.is_empty() {
                break;
            }
            let end = Instant::now() + SHORT_WAIT;
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            self.harvest();
        }
    }

    /// Reads the stack and the interpreter frames once before the thread is asked to stop, so that the same reads
    /// during the stop find the memory in processor caches.
    fn prepare(&mut self, index: usize, thread: u32) {
        let process = &mut self.processes[index];
        let Some(thread_index) = process.find(thread) else { return };
        if let Some(sp) = process.threads[thread_index].stopped_sp {
            process.attached.files.read_memory(sp, &mut [0; 64]);
            // The copy of the stack is not passed, because it is outdated.
            process.capture_interpreted(thread_index, WHILE_STOPPED, None, &mut self.unwinder.interpreted);
        }
    }

    /// Asks one thread to stop.
    pub(super) fn request(&mut self, index: usize, thread: u32, blocked: bool) {
        if self.stopping.is_some() {
            return;
        }
        let process = &mut self.processes[index];
        let Some(thread_index) = process.find(thread) else { return };
        let now = Instant::now();
        if self.pending_stops.is_empty() {
            // No other thread is stopped, so the next stop begins now at the earliest.
            self.noticed = now;
        }
        let files = std::sync::Arc::clone(&process.attached.files);
        let sched = process.threads[thread_index].files.schedstat(files.task());
        let woken = self.woken;
        let asked = sched.ok().filter(|sched| sched.kept()).map(|sched| StopRequest { sched, woken });
        match self.seizing.ask(files.pid(), || stop::request(thread)) {
            Ok(()) => {
                let turn = &mut process.threads[thread_index].stop_turn;
                let periods = turn.waited().saturating_add(1);
                turn.ask();
                process.attached.refusals = 0;
                process.stop_rules.asked(now);
                self.pending_stops
                    .insert(thread, PendingStop { process: process.attached.id, blocked, periods, asked });
            }
            Err(StopRefusal::Ended) => process.thread_ended(),
            Err(StopRefusal::Denied) => self.refused(index, thread_index),
        }
    }

    /// Reports the first time that a stop ended a system call early.
    pub(super) fn report_cut_call(&mut self, index: usize) {
        let Some((thread, call)) = self.processes[index].take_cut() else { return };
        let instead = match self.processes[index].attached.settings.stops {
            Stops::Always => "choose `stops: user-bound` or `never` where that must not be",
            Stops::UserBound | Stops::Never => {
                "the thread is left alone for a minute; choose `stops: never` where that must not be"
            }
        };
        let message = format!(
            "a stop ended a system call of thread {thread} early ({call}, which moved a part of its data); {instead}"
        );
        self.problem(index, ProblemKind::CutCall, message);
    }

    /// Handles a refused stop: the kernel refused it, or another process traces the thread.
    fn refused(&mut self, index: usize, thread_index: usize) {
        let process = &mut self.processes[index];
        let task = process.attached.files.task();
        let ThreadState { files, .. } = &mut process.threads[thread_index];
        // The kernel also refuses to stop a thread that is about to end, which says nothing about other threads. And a
        // thread that was killed during a stop is still traced by this thread.
        let ends = !matches!(files.activity(task), Ok(activity) if !activity.is_end());
        let Some(status) = files.status(task).filter(|status| !ends && !status.ended) else { return };
        if status.tracer == own_thread() {
            return;
        }
        self.pause_stops(index, status.tracer);
    }

    /// Stops no threads of the process for a while if another process traces it.
    fn leave_to_another_tracer(&mut self, index: usize) {
        let status = process_info::status(self.processes[index].attached.files.directory(), "status");
        let tracer = status.map_or(0, |status| status.tracer);
        if tracer != 0 && tracer != own_thread() {
            self.pause_stops(index, tracer);
        }
    }

    /// Stops no threads of a process for a while, so that another tracer can attach, and reports why running threads
    /// are missing.
    fn pause_stops(&mut self, index: usize, tracer: u32) {
        let process = &mut self.processes[index];
        process.stop_rules.pause_stops(Instant::now());
        process.attached.status.refused_stops += 1;
        process.attached.refusals += 1;
        if tracer != 0 {
            let message =
                format!("process {tracer} traces it: only blocked threads are sampled until that process detaches");
            self.problem(index, ProblemKind::Traced, message);
        } else if process.attached.refusals >= REFUSALS {
            let message = "the kernel refuses to have its threads stopped: only blocked threads are sampled (is ptrace denied by a seccomp \
                           profile or a security module?)";
            self.problem(index, ProblemKind::Permission, message.to_owned());
        }
    }
}

/// The id of this thread. The kernel shows it as the tracer of the threads that this thread stops.
fn own_thread() -> u32 {
    nix::unistd::gettid().as_raw().unsigned_abs()
}
