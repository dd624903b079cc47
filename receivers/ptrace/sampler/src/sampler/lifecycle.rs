//! Attaches processes, starts and stops sampling them, and detaches them: when the owner asks for it, when they end,
//! and when sampling fails. The states are described in `states.rs`.

use std::time::{Duration, Instant};

use super::active::Active;
use super::attached::Attached;
use super::ledger::WhatFollows;
use super::run::Engine;
use super::stack_unwinder::StackUnwinder;
use super::states::LastSeen;
use super::{SamplerOutput, ThreadCommand};
use crate::message::{Detached, ProblemKind, ProcessId};
use crate::perf_map::Growth;

/// How long the sampling thread waits, at its end, for threads that were asked to stop. When it ends, the kernel
/// releases the remaining ones.
const DRAIN: Duration = Duration::from_millis(500);

impl Engine<'_> {
    /// The index of a process that is sampled.
    pub(super) fn find(&self, id: ProcessId) -> Option<usize> {
        self.processes.iter().position(|process| process.attached.id == id)
    }

    /// The index of a process that is attached but not sampled now.
    fn find_attached(&self, id: ProcessId) -> Option<usize> {
        self.attached.iter().position(|process| process.id == id)
    }

    /// The attached state of a process, whether it is sampled or not.
    fn attached_mut(&mut self, id: ProcessId) -> Option<&mut Attached> {
        let sampled = self.processes.iter_mut().map(|process| &mut process.attached);
        sampled.chain(&mut self.attached).find(|attached| attached.id == id)
    }

    /// Executes a command from the handle of the sampling thread.
    pub(super) fn obey(&mut self, command: ThreadCommand) {
        let now = Instant::now();
        match command {
            ThreadCommand::Attach { process, files, space, settings } => {
                self.current = Some(process);
                self.attached.push(Attached::new(process, files, space, settings, now));
            }
            ThreadCommand::SetSpace(process, at, space) => {
                if let Some(index) = self.find(process) {
                    self.charge(process);
                    self.current = Some(process);
                    self.processes[index].set_space(at, space);
                    for unknown in self.captures.take_unknown(process) {
                        self.harvest();
                        let process = &mut self.processes[index];
                        self.captures.retry(process, unknown, &mut self.unwinder, &mut self.locations);
                    }
                } else if let Some(index) = self.find_attached(process) {
                    self.attached[index].set_space(at, space);
                }
            }
            ThreadCommand::SetPerfMap(process, file) => {
                if let Some(attached) = self.attached_mut(process) {
                    attached.perf_map = Some(Growth::new(file));
                }
            }
            ThreadCommand::SetSchema(process, schema) => {
                if let Some(attached) = self.attached_mut(process) {
                    attached.contexts.set_schema(schema);
                }
            }
            ThreadCommand::Sample(process, true) => {
                self.switch_on(process, false, now);
            }
            ThreadCommand::Sample(process, false) => {
                if let Some(index) = self.find(process) {
                    self.current = Some(process);
                    let attached = self.switch_off(index);
                    self.attached.push(attached);
                }
            }
            ThreadCommand::SampleFromStart(process, ready) => {
                if let Some(index) = self.switch_on(process, true, now) {
                    self.prepare_events(index, now);
                    // The process has only one thread, and its first moments must not be missed.
                    for thread in 0..self.processes[index].threads.len() {
                        self.watch_thread(index, thread);
                    }
                    let status = self.processes[index].attached.status();
                    self.sender.send(SamplerOutput::Status(status));
                }
                // Sending fails only if the handle no longer waits.
                ready.try_send(()).ok();
            }
            ThreadCommand::Detach(process) => {
                self.current = Some(process);
                if let Some(index) = self.find(process) {
                    self.let_go(index, Detached::Asked);
                } else if let Some(index) = self.find_attached(process) {
                    self.attached.swap_remove(index);
                    self.sender.send(SamplerOutput::Gone { process, why: Detached::Asked });
                }
            }
            ThreadCommand::Stop => {
                while let Some(process) = self.processes.first() {
                    self.current = Some(process.attached.id);
                    self.let_go(0, Detached::Asked);
                }
                for process in self.attached.drain(..) {
                    self.sender.send(SamplerOutput::Gone { process: process.id, why: Detached::Asked });
                }
                self.stopping.get_or_insert(now + DRAIN);
            }
        }
    }

    /// Begins sampling an attached process. Returns its index, unless it is sampled already or not attached.
    fn switch_on(&mut self, id: ProcessId, started: bool, now: Instant) -> Option<usize> {
        let index = self.find_attached(id)?;
        self.current = Some(id);
        let attached = self.attached.swap_remove(index);
        let mut process = Active::new(attached, started, now);
        process.list_threads(now, &self.pending_stops, &mut self.ids);
        process.begin_counting();
        self.processes.push(process);
        Some(self.processes.len() - 1)
    }

    /// Stops sampling a process, and sends the samples taken so far.
    fn switch_off(&mut self, index: usize) -> Attached {
        let now = Instant::now();
        self.drain_all();
        self.leave_processors(self.processes[index].attached.id);
        self.processes[index].begin_last_looks(now);
        for thread in 0..self.processes[index].threads.len() {
            if matches!(self.processes[index].threads[thread].last_seen, LastSeen::Blocked(_)) {
                self.look(index, thread, 1, true);
            }
        }
        self.forget_noted();
        self.send_batch(index, WhatFollows::Nothing);
        let mut attached = self.processes.swap_remove(index).attached;
        self.sender.send(SamplerOutput::Status(attached.status()));
        attached
    }

    /// Sends the batch of a process. `next` says what follows.
    pub(super) fn send_batch(&mut self, index: usize, next: WhatFollows) {
        // The rings now contain all records of earlier events.
        let now = Instant::now();
        self.drain_all();
        let process = &mut self.processes[index];
        self.captures.settle_unknown(process);
        if let Some((first, functions)) = process.attached.interpreters.lock().take_fresh() {
            self.sender.send(SamplerOutput::Functions { process: process.attached.id, first, functions });
        }
        process.confirm_places();
        if let Some(batch) = process.flush(now, next) {
            process.attached.status.lost_observations += self.sender.send_batch(batch);
        }
    }

    /// Drops the lists of threads that were to be stopped, sampled or given an event in this tick.
    fn forget_noted(&mut self) {
        self.running.clear();
        self.blocked.clear();
        self.unwatched.clear();
    }

    /// Sends the samples of a process, and detaches it. Threads that were asked to stop are released when they have
    /// stopped.
    pub(super) fn let_go(&mut self, index: usize, why: Detached) {
        self.serve();
        let process = self.switch_off(index).id;
        self.sender.send(SamplerOutput::Gone { process, why });
    }

    pub(super) fn fail(&mut self, index: usize, kind: ProblemKind, message: String) {
        self.problem(index, kind, message);
        self.let_go(index, Detached::Failed);
    }

    pub(super) fn problem(&mut self, index: usize, kind: ProblemKind, message: String) {
        let attached = &mut self.processes[index].attached;
        if attached.is_new(kind) {
            self.sender.send(SamplerOutput::Problem { process: attached.id, kind, message });
        }
    }

    /// After a panic: detaches the process that was being worked on. Sampling continues with the others.
    pub(super) fn give_up(&mut self) {
        self.unwinder = StackUnwinder::default();
        self.forget_noted();
        let Some(process) = self.current.take() else { return };
        // The process's state may be inconsistent, so it is not used any more.
        self.captures.forget(process);
        self.leave_processors(process);
        let sampled = self.find(process).map(|index| self.processes.swap_remove(index).attached);
        let attached = self.find_attached(process).map(|index| self.attached.swap_remove(index));
        if sampled.or(attached).is_some() {
            self.sender.send(SamplerOutput::Problem {
                process,
                kind: ProblemKind::Internal,
                message: "sampling it failed; please report this as a defect".to_owned(),
            });
            self.sender.send(SamplerOutput::Gone { process, why: Detached::Failed });
        }
    }
}
