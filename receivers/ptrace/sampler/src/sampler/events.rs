//! Samples running threads by perf events: which threads have one, and what is read from their rings.
//!
//! An event costs its thread microseconds at each switch to another thread, so only threads that ran lately have one,
//! and those that are switched very often have it for a part of the time. The ledger compensates for both.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::active::Active;
use super::captures::{Captures, MOST_CAPTURED};
use super::ledger::Next;
use super::processors::{Machine, Processors};
use super::run::Engine;
use super::states::{Concern, Watch};
use super::thread_event::ThreadEvent;
use crate::message::{Level, ProblemKind, Stops};
use crate::os::affinity;
use crate::perf::open::{Failure, Kernel, Lack, Opener, next_right, open};
use crate::perf::record::User;
use crate::perf::ring::Ring;
use crate::threads::is_for_an_event;

/// The sizes of rings, in bytes, by how many are open. The first are large enough for a quarter of a second at the
/// usual rate in which the sampler gets no processor; later ones are smaller, since all together take locked memory.
const RINGS: [(usize, usize); 3] = [(8, 256 << 10), (64, 128 << 10), (512, 64 << 10)];

/// Where the kernel does not permit everything, it is asked again after this time, in case the right was given
/// meanwhile.
pub(super) const ASKED_AGAIN: Duration = Duration::from_secs(60);

/// The best level that could be opened, and why each better one could not.
type Answer = (Level, Vec<(Level, Errno)>);

/// The time between samples in nanoseconds: before the first one, and on average between the others.
#[derive(Debug, Clone, Copy)]
struct Periods {
    first: u64,
    others: u64,
}

/// The open events, and what is needed to wait for their samples.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) opener: Box<dyn Opener>,
    epoll: Epoll,
    /// How many threads have an event, counting events that were closed since the last tick.
    open: usize,
    pub(super) processors: Vec<Processors>,
    pub(super) machine: Machine,
    pub(super) buffer: Vec<u8>,
}

impl Events {
    pub(super) fn new() -> Result<Self, Errno> {
        Self::with(Box::new(Kernel))
    }

    fn with(opener: Box<dyn Opener>) -> Result<Self, Errno> {
        Ok(Self {
            opener,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            open: 0,
            processors: Vec::new(),
            machine: Machine::default(),
            buffer: Vec::new(),
        })
    }

    /// The descriptor to wait for; `None` while there are no events.
    pub(super) fn awaited(&self) -> Option<BorrowedFd<'_>> {
        (self.open > 0 || !self.processors.is_empty()).then(|| self.epoll.0.as_fd())
    }

    /// Adds the ring of a processor to what is waited for.
    pub(super) fn wait_for(&self, event: BorrowedFd<'_>) -> Result<(), Errno> {
        self.epoll.add(event, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))
    }

    /// Opens an event for a thread.
    fn open(
        &mut self,
        thread: u32,
        periods: Periods,
        from: Level,
        switches: u64,
    ) -> Result<(ThreadEvent, Answer), Failure> {
        let Some(&(_, bytes)) = RINGS.iter().find(|(most, _)| self.open < *most) else {
            return Err(Failure::Exhausted(Lack::Places));
        };
        let opened = open(&*self.opener, thread, periods.first, from)?;
        if !is_for_an_event(opened.event.as_raw_fd()) {
            return Err(Failure::Exhausted(Lack::Descriptors));
        }
        let ring = Ring::map(opened.event.as_fd(), bytes).map_err(|error| {
            Failure::Exhausted(match error.raw_os_error() {
                Some(libc::EPERM) => Lack::LockedMemory,
                error => Lack::Other(Errno::from_raw(error.unwrap_or(libc::EIO))),
            })
        })?;
        // Edge-triggered: otherwise a thread that ended would be reported again and again until its event is closed.
        let interest = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, u64::from(thread));
        self.epoll.add(&opened.event, interest).map_err(|error| Failure::Exhausted(Lack::Other(error)))?;
        self.open += 1;
        let hides = opened.level < Level::Kernel;
        let event = ThreadEvent::new(opened.event, ring, periods.first, periods.others, hides, switches);
        Ok((event, (opened.level, opened.refused)))
    }
}

impl Engine<'_> {
    /// Decides how running threads of a process are sampled, and asks the kernel again from time to time whether it
    /// permits more.
    pub(super) fn decide(&mut self, index: usize, now: Instant) {
        let process = &mut self.processes[index];
        if process.watch.level() >= Level::Kernel || now < process.asked_again {
            return;
        }
        if process.attached.settings.stops == Stops::Always {
            process.watch = Watch::Stops;
            process.attached.status.level = Level::None;
            return;
        }
        // If all threads have ended, the next tick tries again.
        let Some(answer) = self.ask_for_events(index) else { return };
        let process = &mut self.processes[index];
        process.asked_again = now + ASKED_AGAIN;
        let (level, refused) = match answer {
            Ok(answer) => answer,
            Err(Failure::Refused(refused)) => (Level::None, refused),
            // Then it stays unknown what the kernel permits, which is no reason to stop threads.
            Err(Failure::Exhausted(lack)) => {
                if process.watch == Watch::Undecided {
                    process.watch = Watch::Not;
                }
                return self.lack(index, lack);
            }
            Err(Failure::Ended) => return,
        };
        let is_new = process.watch == Watch::Undecided || level > process.attached.status.level;
        // The second case: before, there were too few descriptors or the like to find it out, and now the kernel
        // permits none.
        if is_new
            || (level == process.attached.status.level
                && process.watch != Watch::of(level, process.attached.settings.stops))
        {
            self.change_watch(index, level, now);
        }
        let process = &self.processes[index];
        let Some(right) = next_right(process.attached.status.level, crate::rights::in_container()) else { return };
        let reason = refused.first().map_or(String::new(), |(_, error)| format!(" ({error})"));
        let instead = match process.watch {
            Watch::Stops => {
                "; those that stay in their own code are stopped for microseconds instead (stops: user-bound), of others only the amount of time is known"
            }
            Watch::Not => "; only the amount of their time is known (stops: never)",
            _ => "",
        };
        self.problem(index, ProblemKind::Events, format!("{right}{reason}{instead}"));
    }

    /// Opens an event for the first thread that has not ended, and closes it again. Returns the result, or `None` if
    /// there is no such thread.
    fn ask_for_events(&mut self, index: usize) -> Option<Result<Answer, Failure>> {
        let process = &self.processes[index];
        let Some(events) = &mut self.events else { return Some(Err(Failure::Refused(Vec::new()))) };
        let period = process.event_period();
        let periods = Periods { first: period, others: period };
        let mut answers = process.threads.iter().map(|thread| events.open(thread.id(), periods, Level::Kernel, 0));
        let answer = answers.find(|answer| !matches!(answer, Err(Failure::Ended)))?.map(|(_, answer)| answer);
        events.open -= usize::from(answer.is_ok());
        Some(answer)
    }

    /// Samples running threads by this level from now on.
    fn change_watch(&mut self, index: usize, level: Level, now: Instant) {
        if self.processes[index].watch != Watch::Undecided {
            self.leave_watch(index, now);
        }
        let process = &mut self.processes[index];
        process.attached.status.level = level;
        process.watch = Watch::of(level, process.attached.settings.stops);
    }

    /// Reports that some threads have no event although the kernel permits it, so that only the amount of their time is
    /// known.
    fn lack(&mut self, index: usize, lack: Lack) {
        self.precedence.lacking = true;
        let message = format!("running threads are not sampled, only the amount of their time is known: {lack}");
        self.problem(index, ProblemKind::Lack, message);
    }

    /// The kernel refuses what it permitted before: what it permits is found out anew, but not again and again.
    fn permitted_less(&mut self, index: usize, now: Instant) {
        if now >= self.processes[index].asked_again {
            self.leave_watch(index, now);
        }
    }

    /// Ends the present way of sampling running threads, and settles their time up to now.
    fn leave_watch(&mut self, index: usize, now: Instant) {
        self.drain_process(index);
        let process = &mut self.processes[index];
        process.settle_all(now, Next::Same);
        process.close_events();
        process.watch = Watch::Undecided;
    }

    /// Opens an event for a thread. Returns whether there was none left for it, because not all running threads can
    /// have one.
    pub(super) fn watch_thread(&mut self, index: usize, thread: usize) -> bool {
        let process = &mut self.processes[index];
        let (watch @ Watch::Threads { .. }, Some(events)) = (process.watch, &mut self.events) else { return false };
        let others = process.event_period();
        let state = &mut process.threads[thread];
        let now = Instant::now();
        if state.event.is_some() || state.duty_cycle.is_away(now) {
            return false;
        }
        let periods = Periods { first: state.duty_cycle.first(others), others };
        match events.open(state.id(), periods, watch.level(), state.sched.timeslices) {
            Ok((event, _)) => state.event = Some(event),
            Err(Failure::Ended) => {}
            Err(Failure::Refused(_)) => self.permitted_less(index, now),
            Err(Failure::Exhausted(lack)) => {
                self.lack(index, lack);
                return true;
            }
        }
        false
    }

    /// Closes the events that a process does not need any more.
    pub(super) fn tend_events(&mut self, index: usize, now: Instant) {
        self.processes[index].tend_events(now);
        if let Some(events) = &mut self.events {
            let of = |process: &Active| process.threads.iter().filter(|thread| thread.event.is_some()).count();
            events.open = self.processes.iter().map(of).sum();
        }
    }

    /// Takes the samples of all rings that have any.
    pub(super) fn drain_ready(&mut self) {
        if self.events.as_ref().is_none_or(|events| events.awaited().is_none()) {
            return;
        }
        if self.processes.iter().any(|process| process.attached.interpreters.has_frames_in_memory()) {
            // First of all, since the threads run on.
            self.take_samples();
        }
        let Some(events) = &self.events else { return };
        // This only clears the readiness that woke the thread. Which rings have samples is read from the rings
        // themselves, because the kernel reports a ring only once, and the sleep may have consumed that.
        let mut ready = [EpollEvent::empty(); 64];
        while events.epoll.wait(&mut ready, EpollTimeout::ZERO).is_ok_and(|count| count == ready.len()) {}
        self.take_samples();
        self.drop_strangers();
    }

    /// Takes the samples of all rings, and reads the frames of those whose frames are in memory.
    fn take_samples(&mut self) {
        for index in 0..self.processes.len() {
            self.drain_rings(index);
        }
        self.drain_processors();
        self.read_interpreted();
    }

    /// Reads the frames that interpreters have in their own memory, of running threads whose samples wait: those first
    /// that were sampled on the processor that executes this, since they cannot run on meanwhile.
    fn read_interpreted(&mut self) {
        let here = affinity::here();
        for is_here in [true, false] {
            for at in 0..self.captures.waiting.len() {
                let captured = &self.captures.waiting[at];
                let process = captured.process;
                if !captured.is_to_be_read() || (captured.processor == here) != is_here {
                    continue;
                }
                let Some(index) = self.find(process) else { continue };
                if self.processes[index].attached.interpreters.has_frames_in_memory() {
                    self.charge(process);
                    let current = self.current.replace(process);
                    self.captures.waiting[at].read_if_known(&mut self.processes[index]);
                    self.current = current;
                }
            }
        }
    }

    fn drain_rings(&mut self, index: usize) {
        for thread_index in 0..self.processes[index].threads.len() {
            let event = self.processes[index].threads[thread_index].event.as_ref();
            if event.is_some_and(|event| !event.is_drained()) {
                self.drain_thread(index, thread_index);
            }
        }
    }

    /// Takes and unwinds all samples that there are of a process.
    pub(super) fn drain_process(&mut self, index: usize) {
        self.drain_rings(index);
        self.drain_processors();
        self.drop_strangers();
        while let Some(captured) = self.captures.waiting.pop_front() {
            self.finish(captured);
        }
    }

    pub(super) fn drain_thread(&mut self, index: usize, thread_index: usize) {
        let Self { processes, captures, events: Some(events), .. } = self else { return };
        drain(&mut processes[index], thread_index, captures, &mut events.buffer);
        self.make_room();
    }

    /// Unwinds waiting stacks if there are too many of them.
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

    /// Drops the waiting samples of a process that executes another program by now, or whose id was reused: some may be
    /// of the new program, and would be unwound with the mappings of the old one. If the process is still the same now,
    /// it was the same when they were taken.
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

fn drain(process: &mut Active, thread_index: usize, captures: &mut Captures, buffer: &mut Vec<u8>) {
    let (id, pid, space) = (process.attached.id, process.attached.files.pid(), process.attached.space_generation);
    let Some(event) = &mut process.threads[thread_index].event else { return };
    let concern = &mut process.concern;
    let shortfall = event.drain(
        |process| process == pid,
        buffer,
        |sample| {
            // A sample without registers is of a thread that is ending: it is left out.
            captures.take_sample(id, space, sample);
            if sample.user == User::OtherArchitecture {
                *concern = Concern::OtherArchitecture;
            }
        },
    );
    shortfall.add_to(&mut process.attached.status);
}

#[cfg(test)]
mod tests;
