//! One tick of one process: examines all threads, asks running ones to stop, and samples blocked ones.

use std::time::Instant;

use super::SamplerOutput;
use super::active::{Examination, Passive, TickStart};
use super::ledger::WhatFollows;
use super::run::Engine;
use super::states::RunningThreadMethod;
use crate::message::ProblemKind;

/// After examining this many threads, which takes about 30 microseconds, threads that have stopped are released.
/// Records are read as well: with thousands of threads, the rings would overflow otherwise.
pub(super) const LOOKS: usize = 32;

impl Engine<'_> {
    /// One tick of one process.
    pub(super) fn tick(&mut self, index: usize) {
        let now = Instant::now();
        let id = self.processes[index].attached.id;
        self.charge(id);
        self.current = Some(id);
        match self.processes[index].begin_tick(now) {
            TickStart::Sample => {}
            TickStart::LetGo(why) => return self.let_go(index, why),
            TickStart::OtherArchitecture => {
                let message = "a thread executes 32-bit code, which cannot be unwound".to_owned();
                return self.fail(index, ProblemKind::Architecture, message);
            }
        }
        self.prepare_events(index, now);
        let process = &mut self.processes[index];
        process.confirm_places();
        let idle_stride = process.idle_stride();
        for (number, id) in process.threads_in_doubt().into_iter().enumerate() {
            // Reading the records may have inserted threads before this one.
            if let Some(thread) = self.processes[index].find(id) {
                self.look(index, thread, idle_stride, false);
            }
            if number % LOOKS == LOOKS - 1 {
                self.drain_processors();
                self.harvest();
            }
        }
        self.watch_noted(index, now);
        self.processes[index].note_clock();
        self.ask_to_stop(index);
        self.sample_blocked(index, now);
        self.tend_events(index, Instant::now());
        self.review_precedence(Instant::now());
        self.serve();
        let now = Instant::now();
        self.charge(id);
        self.processes[index].charge_tick(&mut self.cpu, self.record_cost.of_switch(), now);
        self.send_regular(index, now);
    }

    /// Lists the threads, and decides how running ones are sampled.
    pub(super) fn prepare_events(&mut self, index: usize, now: Instant) {
        self.processes[index].list_threads(now, &self.pending_stops, &mut self.ids);
        self.decide(index, now);
        self.review_coverage(index, now);
    }

    /// Examines one thread, and adds it to the lists of threads to be stopped, unwound or given an event.
    pub(super) fn look(&mut self, index: usize, thread: usize, idle_stride: u64, all: bool) {
        let process = &mut self.processes[index];
        match process.look(thread, idle_stride, all) {
            Examination::Nothing => {}
            Examination::Preempted => {
                if process.look_at_preempted(thread) {
                    self.arm(index, thread);
                }
            }
            Examination::Stands => process.look_at_waiting(thread, &mut self.unwinder),
            Examination::Unchanged => {
                if process.wants_blocked() {
                    process.notice_stop(thread);
                    process.account_blocked(thread, Instant::now());
                }
            }
            Examination::Running => match process.watch {
                RunningThreadMethod::Threads { .. } if process.threads[thread].event.is_none() => {
                    self.unwatched.push(process.threads[thread].id());
                }
                RunningThreadMethod::Stops => {
                    if process.may_stop(thread, Instant::now()) {
                        self.running.push(process.threads[thread].id());
                    }
                }
                RunningThreadMethod::Undecided
                | RunningThreadMethod::Threads { .. }
                | RunningThreadMethod::Group
                | RunningThreadMethod::Machine
                | RunningThreadMethod::Not => {}
            },
            Examination::Blocked(seen) => {
                let moved = std::mem::take(&mut process.threads[thread].moved);
                if process.wants_blocked() {
                    self.blocked.push((process.threads[thread].id(), seen));
                }
                if moved {
                    self.unwatched.push(process.threads[thread].id());
                }
            }
            Examination::Ended => {
                process.settle_ended(thread, Instant::now());
                process.thread_ended();
                if process.threads.len() == 1 {
                    process.concern.may_be_gone();
                }
            }
        }
    }

    /// Samples the threads that were found blocked in this tick.
    fn sample_blocked(&mut self, index: usize, now: Instant) {
        let mut blocked = std::mem::take(&mut self.blocked);
        for (number, (thread, seen)) in blocked.drain(..).enumerate() {
            if number % LOOKS == LOOKS - 1 {
                self.drain_processors();
            }
            let process = &mut self.processes[index];
            let Some(state) = process.find(thread) else { continue };
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

    /// Sends the batch, the counters and the reload request, as far as they are due.
    fn send_regular(&mut self, index: usize, now: Instant) {
        let is_unknown = self.captures.has_unknown(self.processes[index].attached.id);
        if self.processes[index].flush_is_due(now, is_unknown) {
            self.send_batch(index, WhatFollows::Same);
        }
        let process = &mut self.processes[index];
        if let Some(status) = process.take_status(now) {
            self.sender.send(SamplerOutput::Status(status));
        }
        if process.attached.reload.is_due(now) {
            let mapped = process.attached.spaces.take_records();
            self.sender.send(SamplerOutput::Reload { process: process.attached.id, mapped });
        }
    }
}
