//! Samples running threads by perf events: decides which threads have an event, and reads the records from the rings.
//!
//! An event costs its thread microseconds at each context switch, so only threads that ran recently have one, and
//! threads with very many switches have one only for a part of the time. The ledger compensates for both.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::active::Active;
use super::captures::MOST_CAPTURED;
use super::ledger::WhatFollows;
use super::processors::{MachineUsage, Processors};
use super::reader::SampleReader;
use super::rings::{Board, RingItem, RunningSample, SharedRing, ThreadChange, ThreadChangeKind};
use super::run::Engine;
use super::states::{PendingCheck, RunningThreadMethod};
use super::thread_event::{EventFiles, ThreadEvent};
use crate::message::{Level, ProblemKind, Stops};
use crate::os::signal::Waker;
use crate::os::time;
use crate::perf::attr::EventAttr;
use crate::perf::open::{
    EventSubject, KernelOpener, Lack, OpenFailure, Opened, Opener, next_right, online_processors, open, write_into,
};
use crate::perf::record::User;
use crate::threads::is_for_an_event;

/// If the kernel does not permit all events, it is asked again after this time: the right may have been granted.
pub(super) const ASKED_AGAIN: Duration = Duration::from_secs(60);

/// Readers end after this time without anything to read.
const READERS_IDLE: Duration = Duration::from_secs(10);

/// The best level that could be opened, and the error of each better one.
type OpenedLevel = (Level, Vec<(Level, Errno)>);

/// How an event of a thread takes samples.
#[derive(Debug, Clone, Copy)]
struct EventSampling {
    /// The time before the first sample, and the average time between the others, in nanoseconds.
    first: u64,
    others: u64,
    /// The best level to try.
    from: Level,
    /// How many times the thread was given a processor so far.
    given: u64,
    /// Whether each sample has to wake a reader.
    wakes: bool,
}

/// The open events, and what is needed to wait for their samples.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) opener: Box<dyn Opener>,
    epoll: Epoll,
    /// The rings into which events of threads write, one for each processor.
    rings: Vec<Arc<SharedRing>>,
    readers: Vec<SampleReader>,
    /// Until this time, readers are kept although they have nothing to read.
    readers_until: Option<Instant>,
    pub(super) board: Arc<Board>,
    waker: Option<Waker>,
    /// For each ring that still had records in the last tick: how often its reader had emptied it by then.
    waited: Vec<Option<u64>>,
    pub(super) processors: Vec<Processors>,
    pub(super) machine: MachineUsage,
    pub(super) buffer: Vec<u8>,
}

impl Events {
    /// Creates an empty set of events; `waker` wakes the sampling thread.
    pub(super) fn new(waker: Option<Waker>) -> Result<Self, Errno> {
        Self::with(Box::new(KernelOpener), waker)
    }

    fn with(opener: Box<dyn Opener>, waker: Option<Waker>) -> Result<Self, Errno> {
        Ok(Self {
            opener,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            rings: Vec::new(),
            readers: Vec::new(),
            readers_until: None,
            board: Arc::default(),
            waker,
            waited: Vec::new(),
            processors: Vec::new(),
            machine: MachineUsage::default(),
            buffer: Vec::new(),
        })
    }

    /// The descriptor to wait for; `None` while there are no events.
    pub(super) fn awaited(&self) -> Option<BorrowedFd<'_>> {
        (!self.rings.is_empty() || !self.processors.is_empty()).then(|| self.epoll.0.as_fd())
    }

    /// Adds an event's ring to the set that the sampling thread waits for.
    pub(super) fn wait_for(&self, event: BorrowedFd<'_>) -> Result<(), Errno> {
        // Edge-triggered: the ring is read when the tick is due, not as soon as it has a record.
        self.epoll.add(event, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))
    }

    /// The ring of a processor; opened if it is not open yet.
    fn ring(&mut self, processor: u32) -> Result<&SharedRing, OpenFailure> {
        let known = self.rings.iter().position(|ring| ring.processor == processor);
        let index = match known {
            Some(index) => index,
            None => {
                let ring = SharedRing::open(&*self.opener, processor)?;
                if !is_for_an_event(ring.event().as_raw_fd()) {
                    return Err(OpenFailure::Exhausted(Lack::Descriptors));
                }
                self.wait_for(ring.event()).map_err(|error| OpenFailure::Exhausted(Lack::of_other(error)))?;
                self.rings.push(Arc::new(ring));
                self.rings.len() - 1
            }
        };
        Ok(&self.rings[index])
    }

    fn open(&mut self, thread: u32, sampling: EventSampling) -> Result<(ThreadEvent, OpenedLevel), OpenFailure> {
        let EventSampling { first, others, from, given, wakes } = sampling;
        let (mut files, mut level, mut reasons) = (EventFiles::default(), from, Vec::new());
        for processor in online_processors().unwrap_or_else(|_| vec![0]) {
            let Opened { event, level: opened, refused } =
                open(&*self.opener, (thread, Some(processor)), first, level, !wakes)?;
            level = opened;
            reasons.extend(refused);
            let subject = EventSubject::Thread { thread, processor: Some(processor) };
            let switches =
                if level < Level::Kernel { None } else { self.opener.open(&EventAttr::of_switches(), subject).ok() };
            let ring = self.ring(processor)?;
            let into = |event: BorrowedFd<'_>| {
                if !is_for_an_event(event.as_raw_fd()) {
                    return Err(OpenFailure::Exhausted(Lack::Descriptors));
                }
                write_into(event, ring.event()).map_err(|error| OpenFailure::Exhausted(Lack::of_other(error)))
            };
            into(event.as_fd())?;
            files.samples.push((processor, event));
            if let Some(switches) = switches {
                into(switches.as_fd())?;
                files.switches.push(switches);
            }
        }
        (files.hide, files.wake) = (level < Level::Kernel, wakes);
        let event = ThreadEvent::new(files, first, others, given);
        Ok((event, (level, reasons)))
    }

    /// Starts a reader for the ring of this processor, unless there is one.
    fn read_at(&mut self, processor: u32, now: Instant) {
        self.readers_until = Some(now + READERS_IDLE);
        let Some(ring) = self.rings.iter().find(|ring| ring.processor == processor && !ring.is_read()) else { return };
        // A record wakes either the reader or the sampling thread, not both.
        if let Ok(reader) = SampleReader::start(Arc::clone(ring), Arc::clone(&self.board), self.waker) {
            self.epoll.delete(ring.event()).ok();
            self.readers.push(reader);
        }
    }

    /// Ends the readers after a long time without anything to read.
    fn end_idle_readers(&mut self, now: Instant) {
        if self.readers_until.is_none_or(|until| now < until) {
            return;
        }
        self.readers_until = None;
        for reader in std::mem::take(&mut self.readers) {
            let ring = Arc::clone(&reader.ring);
            drop(reader);
            self.wait_for(ring.event()).ok();
        }
    }

    /// Takes the items that readers have passed on, and reads those in the other rings.
    fn take_items(&mut self, spare: &mut Vec<crate::stack_copy::StackPieces>, items: &mut Vec<RingItem>, all: bool) {
        self.waited.resize(self.rings.len(), None);
        for (ring, waited) in self.rings.iter().zip(&mut self.waited) {
            // A reader empties its ring as soon as it gets a processor. If that takes longer than a tick, the sampling
            // thread does it.
            *waited = ring.drain_for_tick(&self.board, (*waited, all), spare, &mut self.buffer, items);
        }
        self.board.exchange(spare);
    }
}

impl Engine<'_> {
    /// Decides how the running threads of a process are sampled, and asks the kernel from time to time whether it
    /// permits more.
    pub(super) fn decide(&mut self, index: usize, now: Instant) {
        let process = &mut self.processes[index];
        if process.watch.level() >= Level::Kernel || now < process.asked_again {
            return;
        }
        if process.attached.settings.stops == Stops::Always {
            process.watch = RunningThreadMethod::Stops;
            process.attached.status.level = Level::None;
            return;
        }
        // If all threads have ended, this is tried again in the next tick.
        let Some(answer) = self.ask_for_events(index) else { return };
        let process = &mut self.processes[index];
        process.asked_again = now + ASKED_AGAIN;
        let (level, refused) = match answer {
            Ok(answer) => answer,
            Err(OpenFailure::Refused(refused)) => (Level::None, refused),
            // It is still unknown what the kernel permits, which is no reason to stop threads.
            Err(OpenFailure::Exhausted(lack)) => {
                if process.watch == RunningThreadMethod::Undecided {
                    process.watch = RunningThreadMethod::Not;
                }
                return self.lack(index, lack);
            }
            Err(OpenFailure::Ended) => return,
        };
        let is_new = process.watch == RunningThreadMethod::Undecided || level > process.attached.status.level;
        // The second condition: earlier, resources such as descriptors were exhausted; now the kernel has answered that
        // it permits nothing.
        if is_new
            || (level == process.attached.status.level
                && process.watch != RunningThreadMethod::for_level(level, process.attached.settings.stops))
        {
            self.change_watch(index, level, now);
        }
        let process = &self.processes[index];
        let Some(right) = next_right(process.attached.status.level, crate::rights::in_container()) else { return };
        let reason = refused.first().map_or(String::new(), |(_, error)| format!(" ({error})"));
        let instead = match process.watch {
            RunningThreadMethod::Stops => {
                "; those that stay in their own code are stopped for microseconds instead (stops: user-bound), of others only the amount of time is known"
            }
            RunningThreadMethod::Not => "; only the amount of their time is known (stops: never)",
            _ => "",
        };
        self.problem(index, ProblemKind::Events, format!("{right}{reason}{instead}"));
    }

    /// Opens an event for the first thread that has not ended, and closes it again. Returns the result; `None` if there
    /// is no such thread.
    fn ask_for_events(&mut self, index: usize) -> Option<Result<OpenedLevel, OpenFailure>> {
        let process = &self.processes[index];
        let Some(events) = &mut self.events else { return Some(Err(OpenFailure::Refused(Vec::new()))) };
        let period = process.event_period();
        let sampling = EventSampling { first: period, others: period, from: Level::Kernel, given: 0, wakes: false };
        let mut answers = process.threads.iter().map(|thread| events.open(thread.id(), sampling));
        answers.find(|answer| !matches!(answer, Err(OpenFailure::Ended))).map(|answer| answer.map(|(_, answer)| answer))
    }

    /// Switches to sampling running threads at this level.
    fn change_watch(&mut self, index: usize, level: Level, now: Instant) {
        if self.processes[index].watch != RunningThreadMethod::Undecided {
            self.leave_watch(index, now);
        }
        let process = &mut self.processes[index];
        process.attached.status.level = level;
        process.watch = RunningThreadMethod::for_level(level, process.attached.settings.stops);
    }

    /// Reports that some threads have no event, although the kernel permits events, so that only the amount of their
    /// running time is known.
    fn lack(&mut self, index: usize, lack: Lack) {
        self.precedence.lacking = true;
        let message = format!("running threads are not sampled, only the amount of their time is known: {lack}");
        self.problem(index, ProblemKind::Lack, message);
    }

    /// Called when the kernel refuses an event that it permitted before: asks again what it permits, but not too often.
    fn permitted_less(&mut self, index: usize, now: Instant) {
        if now >= self.processes[index].asked_again {
            self.leave_watch(index, now);
        }
    }

    /// Ends the current method of sampling running threads, and divides their time up to now among their samples.
    fn leave_watch(&mut self, index: usize, now: Instant) {
        self.drain_all();
        let process = &mut self.processes[index];
        process.settle_all(now, WhatFollows::Same);
        process.close_events();
        process.watch = RunningThreadMethod::Undecided;
    }

    /// Opens an event for a thread. Returns whether resources for it are exhausted, so that not all running threads can
    /// have an event.
    pub(super) fn watch_thread(&mut self, index: usize, thread: usize) -> bool {
        let process = &mut self.processes[index];
        let (watch @ RunningThreadMethod::Threads { .. }, Some(events)) = (process.watch, &mut self.events) else {
            return false;
        };
        let others = process.event_period();
        let wakes = process.wants_reader(thread);
        let state = &mut process.threads[thread];
        let now = Instant::now();
        if state.event.is_some() || state.duty_cycle.is_away(now) {
            return false;
        }
        let sampling = EventSampling {
            first: state.duty_cycle.first(others),
            others,
            from: watch.level(),
            given: state.sched.timeslices,
            wakes,
        };
        match events.open(state.id(), sampling) {
            Ok((event, _)) => {
                state.event = Some(event);
                process.begin_recording(thread, now);
                process.show(thread, &events.board);
            }
            Err(OpenFailure::Ended) => {}
            Err(OpenFailure::Refused(_)) => self.permitted_less(index, now),
            Err(OpenFailure::Exhausted(lack)) => {
                self.lack(index, lack);
                return true;
            }
        }
        false
    }

    /// Closes the events that a process no longer needs.
    pub(super) fn tend_events(&mut self, index: usize, now: Instant) {
        self.processes[index].tend_events(now);
        if let Some(events) = &mut self.events {
            self.processes[index].show_again(&events.board);
            events.end_idle_readers(now);
        }
    }

    /// Reads the samples that are ready.
    pub(super) fn drain_ready(&mut self) {
        let Some(events) = self.events.as_ref().filter(|events| events.awaited().is_some()) else { return };
        // This only clears the readiness that woke the thread. Which rings have samples is seen from the rings
        // themselves: the kernel reports a ring only once, and the wait may have consumed that report.
        let mut ready = [EpollEvent::empty(); 64];
        while events.epoll.wait(&mut ready, EpollTimeout::ZERO).is_ok_and(|count| count == ready.len()) {}
        self.take_samples(false);
        self.drop_strangers();
    }

    /// Reads the samples of all rings; with `all`, also of those that a reader is about to read.
    fn take_samples(&mut self, all: bool) {
        let Some(events) = &mut self.events else { return };
        let mut items = std::mem::take(&mut self.items);
        let began = time::thread_cpu();
        events.take_items(&mut self.captures.spare, &mut items, all);
        let switches = items
            .iter()
            .filter(|item| matches!(item, RingItem::Changed(ThreadChange { what: ThreadChangeKind::In, .. })));
        let (switches, now) = (switches.count(), Instant::now());
        for item in items.drain(..) {
            self.take_item(item, now);
        }
        self.items = items;
        self.record_cost.note(time::thread_cpu().saturating_sub(began), switches);
        self.drain_processors();
    }

    fn take_item(&mut self, item: RingItem, now: Instant) {
        let sample = match item {
            RingItem::Sample(sample) => sample,
            RingItem::Resumed(sample) => return self.resumed(sample),
            RingItem::Leaving(left) => {
                if let Some(process) = self.with_pid(left.process) {
                    process.note_leaving(left.thread, left.at, left.registers, &left.stack);
                }
                return;
            }
            RingItem::Changed(happened) => {
                if let Some(process) = self.with_pid(happened.process) {
                    process.note_switch(happened);
                }
                return;
            }
            RingItem::Mapped { process, at, entry } => {
                if let Some(process) = self.with_pid(process) {
                    process.attached.mapped(at, entry);
                }
                return;
            }
            RingItem::Missing(shortfall) => {
                // It is not known whose records were lost, so the loss is counted for each process with events of
                // threads.
                let of_threads = |process: &&mut Active| matches!(process.watch, RunningThreadMethod::Threads { .. });
                let processes = self.processes.iter_mut().filter(of_threads);
                return processes.for_each(|process| process.lost(shortfall));
            }
        };
        let Some(process) = self.processes.iter_mut().find(|process| process.attached.files.pid() == sample.process)
        else {
            return;
        };
        let thread = process.find(sample.thread);
        let event = thread.and_then(|thread| process.threads[thread].event.as_mut());
        let period_nano = event.map(|event| {
            event.count_sample(sample.processor);
            event.period()
        });
        let period_nano = period_nano.unwrap_or_else(|| process.event_period());
        if sample.user == User::OtherArchitecture {
            process.concern = PendingCheck::OtherArchitecture;
        }
        if thread.is_some_and(|thread| process.wants_reader(thread))
            && let Some(events) = &mut self.events
        {
            events.read_at(sample.processor, now);
        }
        let process = (process.attached.id, process.attached.space_generation);
        self.captures.take_sample(process, sample, period_nano, None);
        self.make_room();
    }

    /// Handles the sample of a thread that has resumed after being preempted.
    fn resumed(&mut self, sample: RunningSample) {
        let process = self.processes.iter_mut().find(|process| process.attached.files.pid() == sample.process);
        let preempted = process.and_then(|process| {
            let thread = process.find(sample.thread)?;
            if let Some(event) = &mut process.threads[thread].event {
                event.resumed(sample.processor);
            }
            let of = (process.attached.id, process.attached.space_generation);
            Some((of, process.take_preempted_wait(thread, sample.at)?))
        });
        match preempted {
            Some((of, preempted)) => self.captures.take_sample(of, sample, 0, Some(preempted)),
            None => self.captures.spare.push(sample.pieces),
        }
        self.make_room();
    }

    /// Requests a sample for the moment when a preempted thread resumes.
    pub(super) fn arm(&mut self, index: usize, thread: usize) {
        let Some(events) = &self.events else { return };
        let thread = &mut self.processes[index].threads[thread];
        let id = thread.id();
        let Some(event) = &mut thread.event else { return };
        event.arm(|processor| {
            let ring = events.rings.iter().find(|ring| ring.processor == processor)?;
            let subject = EventSubject::Thread { thread: id, processor: Some(processor) };
            let event = events.opener.open(&EventAttr::of_resumption(), subject).ok()?;
            let fits = is_for_an_event(event.as_raw_fd()) && write_into(event.as_fd(), ring.event()).is_ok();
            fits.then_some(event)
        });
    }

    fn with_pid(&mut self, pid: u32) -> Option<&mut Active> {
        self.processes.iter_mut().find(|process| process.attached.files.pid() == pid)
    }

    /// Reads all samples in the rings, and unwinds them.
    pub(super) fn drain_all(&mut self) {
        self.take_samples(true);
        self.drop_strangers();
        while let Some(captured) = self.captures.waiting.pop_front() {
            self.finish(captured);
        }
    }

    /// Unwinds waiting stacks, if too many are waiting.
    pub(super) fn make_room(&mut self) {
        if self.captures.waiting.len() < MOST_CAPTURED {
            return;
        }
        self.drop_strangers();
        while self.captures.waiting.len() >= MOST_CAPTURED {
            let Some(captured) = self.captures.waiting.pop_front() else { break };
            self.finish(captured);
        }
    }

    /// Drops the waiting samples of a process that has executed another program, or whose id was reused: some samples
    /// may belong to the new program, and would be unwound with the mappings of the old one. If the process is
    /// unchanged now, it was unchanged when they were taken.
    fn drop_strangers(&mut self) {
        for process in &mut self.processes {
            let id = process.attached.id;
            if self.captures.has_samples_of(id) && process.attached.is_another() {
                self.captures.drop_samples_of(id);
                process.concern.may_be_gone();
            }
        }
    }
}

#[cfg(test)]
mod tests;
