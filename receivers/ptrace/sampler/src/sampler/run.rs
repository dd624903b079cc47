//! The sampling thread's loop.
//!
//! Stopped threads come first: between any two steps that take longer than some microseconds, threads that have stopped
//! are sampled and let go.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use super::active::Active;
use super::budget::CpuMark;
use super::captures::{Captures, Taken};
use super::event_sender::{EventSender, RETRY};
use super::events::Events;
use super::look::{Seen, StackUnwinder};
use super::pending_stops::PendingStops;
use super::precedence::Precedence;
use super::processors::Review;
use super::seizing::Seizing;
use super::{Command, Options, Output, Shared};
use crate::message::{Detached, Location, ProblemKind, ProcessId};
use crate::os::priority;
use crate::os::signal::{Sleeper, Waker};
use crate::process_info;
use crate::stop::{self, StoppedThread};

/// How long the thread waits at its end for threads that were asked to stop. When it ends, the kernel lets go of the
/// rest.
const DRAIN: Duration = Duration::from_millis(500);

/// How often ended threads are looked for among those that were asked to stop, since their end may not be announced by
/// a signal.
const REAP: Duration = Duration::from_millis(10);

/// What the thread tells its handle when it starts.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) waker: Waker,
    pub(super) raised_priority: bool,
}

/// The sampling thread.
pub(super) fn run(
    shared: &Shared,
    options: Options,
    out: SyncSender<Output>,
    wake: &dyn Fn(),
    ready: &SyncSender<std::io::Result<Started>>,
) {
    let (sleeper, waker) = match Sleeper::new() {
        Ok(sleeper) => sleeper,
        Err(error) => {
            drop(ready.send(Err(error)));
            return;
        }
    };
    let seizing = match Seizing::start() {
        Ok(seizing) => seizing,
        Err(error) => {
            drop(ready.send(Err(error)));
            return;
        }
    };
    let raised_priority = priority::raise(options.realtime);
    // By default the kernel may wake a thread 50 microseconds late, which would delay the ticks.
    nix::sys::prctl::set_timerslack(1).ok();
    drop(ready.send(Ok(Started { waker, raised_priority })));
    let mut engine = Engine::new(out, wake, seizing, Events::new().ok());
    loop {
        let step = catch_unwind(AssertUnwindSafe(|| engine.step(shared)));
        match step {
            Ok(Next::Sleep(time)) => {
                let stops = !engine.pending_stops.is_empty();
                sleeper.sleep(time, stops, engine.events.as_ref().and_then(Events::awaited));
                engine.woken = Instant::now();
                engine.noticed = engine.woken;
            }
            Ok(Next::End) => break,
            Err(_) => engine.give_up(),
        }
    }
    engine.sender.send_rest();
}

enum Next {
    /// Sleep for this long at most; a command, a stop or a sample ends it earlier.
    Sleep(Option<Duration>),
    End,
}

/// Everything that the loop works on.
pub(super) struct Engine<'a> {
    pub(super) processes: Vec<Active>,
    pub(super) pending_stops: PendingStops,
    pub(super) seizing: Seizing,
    pub(super) captures: Captures,
    /// `None` where the kernel lacks epoll, with which samples are waited for.
    pub(super) events: Option<Events>,
    pub(super) unwinder: StackUnwinder,
    pub(super) locations: Vec<Location>,
    pub(super) ids: Vec<u32>,
    pub(super) running: Vec<u32>,
    pub(super) blocked: Vec<(u32, Seen)>,
    /// Threads that run and have no event yet, by their ids.
    pub(super) unwatched: Vec<u32>,
    pub(super) precedence: Precedence,
    pub(super) cpu: CpuMark,
    /// The process whose budget is charged with the processor time that is used from now on.
    payer: ProcessId,
    /// The process that is worked on. If a panic interrupts that, this process is given up.
    pub(super) current: Option<ProcessId>,
    /// A moment before the next stopped thread was noticed: stops are counted from there.
    pub(super) noticed: Instant,
    /// When this thread last woke up.
    pub(super) woken: Instant,
    pub(super) ends_due: Instant,
    pub(super) stopping: Option<Instant>,
    pub(super) sender: EventSender<'a>,
}

impl<'a> Engine<'a> {
    pub(super) fn new(out: SyncSender<Output>, wake: &'a dyn Fn(), seizing: Seizing, events: Option<Events>) -> Self {
        let now = Instant::now();
        Self {
            processes: Vec::new(),
            pending_stops: PendingStops::default(),
            seizing,
            captures: Captures::default(),
            events,
            unwinder: StackUnwinder::default(),
            locations: Vec::new(),
            ids: Vec::new(),
            running: Vec::new(),
            blocked: Vec::new(),
            unwatched: Vec::new(),
            precedence: Precedence::new(now),
            cpu: CpuMark::default(),
            payer: ProcessId::default(),
            current: None,
            noticed: now,
            woken: now,
            ends_due: now,
            stopping: None,
            sender: EventSender::new(out, wake),
        }
    }

    fn step(&mut self, shared: &Shared) -> Next {
        self.serve();
        while let Some(command) = shared.pop() {
            self.obey(command);
            self.serve();
        }
        self.reap(Instant::now());
        let now = Instant::now();
        if let Some(index) = self.next_due()
            && self.processes[index].schedule.due() <= now
        {
            self.tick(index);
        }
        self.sender.send_unsent();
        let now = Instant::now();
        if let Some(deadline) = self.stopping
            && (self.pending_stops.is_empty() || now >= deadline)
        {
            return Next::End;
        }
        self.current = None;
        let mut until = self.next_due().map(|index| self.processes[index].schedule.due());
        let mut earlier = |time: Instant| until = Some(until.map_or(time, |until| until.min(time)));
        if let Some(deadline) = self.stopping {
            earlier(deadline);
        }
        if !self.pending_stops.is_empty() {
            earlier(self.ends_due.max(now + REAP));
        }
        if self.sender.has_unsent() {
            earlier(now + RETRY);
        }
        Next::Sleep(until.map(|until| until.saturating_duration_since(now)))
    }

    fn next_due(&self) -> Option<usize> {
        (0..self.processes.len())
            .filter(|&index| self.processes[index].on)
            .min_by_key(|&index| self.processes[index].schedule.due())
    }

    fn find(&self, id: ProcessId) -> Option<usize> {
        self.processes.iter().position(|process| process.id == id)
    }

    /// A process that is being sampled.
    fn find_on(&self, id: ProcessId) -> Option<usize> {
        self.find(id).filter(|&index| self.processes[index].on)
    }

    fn obey(&mut self, command: Command) {
        let now = Instant::now();
        match command {
            Command::Attach { process, files, space, settings } => {
                self.current = Some(process);
                self.processes.push(Active::new(process, files, space, settings, now));
            }
            Command::SetSpace(process, space) => {
                if let Some(index) = self.find(process) {
                    self.charge(process);
                    self.current = Some(process);
                    self.processes[index].set_space(space);
                    for unknown in self.captures.take_unknown(process) {
                        self.harvest();
                        let process = &mut self.processes[index];
                        self.captures.retry(process, unknown, &mut self.unwinder, &mut self.locations);
                    }
                }
            }
            Command::Sample(process, on) => {
                if let Some(index) = self.find(process) {
                    self.current = Some(process);
                    match (self.processes[index].on, on) {
                        (false, true) => self.processes[index].switch_on(now),
                        (true, false) => self.switch_off(index),
                        _ => {}
                    }
                }
            }
            Command::SampleFromStart(process, ready) => {
                if let Some(index) = self.find(process) {
                    self.current = Some(process);
                    self.processes[index].switch_on(now);
                    self.processes[index].review = Review::new(now, true);
                    self.prepare_events(index, now);
                    // The process has one thread, and its first moments must not be missed.
                    for thread in 0..self.processes[index].threads.len() {
                        self.watch_thread(index, thread);
                    }
                    let status = self.processes[index].status();
                    self.sender.send(Output::Status(status));
                }
                // This fails only where the one who waited has given up.
                ready.try_send(()).ok();
            }
            Command::Detach(process) => {
                if let Some(index) = self.find(process) {
                    self.current = Some(process);
                    self.let_go(index, Detached::Asked);
                }
            }
            Command::Stop => {
                while let Some(process) = self.processes.first() {
                    self.current = Some(process.id);
                    self.let_go(0, Detached::Asked);
                }
                self.stopping.get_or_insert(now + DRAIN);
            }
        }
    }

    /// Lets go of all threads that stopped, then unwinds what was taken from them.
    pub(super) fn serve(&mut self) {
        self.drain_ready();
        loop {
            self.harvest();
            let Some(captured) = self.captures.waiting.pop_front() else {
                return;
            };
            self.finish(captured);
        }
    }

    pub(super) fn finish(&mut self, captured: super::captures::Captured) {
        let Some(index) = self.find_on(captured.process) else {
            return;
        };
        self.charge(captured.process);
        let current = self.current.replace(captured.process);
        let process = &mut self.processes[index];
        self.captures.finish(process, captured, &mut self.unwinder, &mut self.locations);
        self.current = current;
    }

    /// Charges the processor time from now on to this process, and what was used until now to the one before. Reading
    /// the clock is a system call, so it is only read when the process changes.
    pub(super) fn charge(&mut self, process: ProcessId) {
        if self.payer == process {
            return;
        }
        let spent = self.cpu.take();
        let before = std::mem::replace(&mut self.payer, process);
        if let Some(index) = self.find(before) {
            self.processes[index].budget.spend(spent);
        }
    }

    /// Samples all threads that have stopped, and lets them go. Removes no process.
    pub(super) fn harvest(&mut self) {
        if self.pending_stops.is_empty() {
            return;
        }
        loop {
            let Some(stopped) = StoppedThread::next() else {
                self.noticed = Instant::now();
                return;
            };
            let stop = self.pending_stops.remove(&stopped.thread());
            let found = stop.and_then(|stop| Some((stop, self.find_on(stop.process)?)));
            let Some((stop, index)) = found else {
                // No stack is needed of it, but reading its registers also restarts a system call that the stop
                // interrupted.
                stopped.registers().ok();
                let thread = stopped.thread();
                if !stopped.release() {
                    self.pending_stops.insert(thread, stop.unwrap_or_default());
                }
                continue;
            };
            let current = self.current.replace(stop.process);
            let process = &mut self.processes[index];
            let thread = stopped.thread();
            process.stop_ended(thread);
            let taken = self.captures.take(process, stopped, stop, self.noticed, &mut self.unwinder);
            self.noticed = Instant::now();
            match taken {
                Taken::Stack => {}
                Taken::Killed => {
                    process.may_be_gone = true;
                    self.pending_stops.insert(thread, stop);
                }
                Taken::Architecture => process.other_architecture = true,
            }
            self.say_cut(index);
            self.current = current;
            self.make_room();
            if self.pending_stops.is_empty() {
                return;
            }
        }
    }

    /// This thread traces none any more, although stops are pending: a thread that executed a program has the id of its
    /// process's first thread since.
    fn forget_pending_stops(&mut self) {
        for (thread, stop) in std::mem::take(&mut self.pending_stops) {
            if let Some(index) = self.find(stop.process) {
                let process = &mut self.processes[index];
                process.may_be_gone = true;
                process.stop_ended(thread);
            }
        }
    }

    /// Reaps the threads that ended before they could be let go: only then are their parents told.
    fn reap(&mut self, now: Instant) {
        if self.pending_stops.is_empty() || now < self.ends_due {
            return;
        }
        self.ends_due = now + REAP;
        let own = std::process::id();
        let (pending_stops, processes) = (&mut self.pending_stops, &mut self.processes);
        let reaped = stop::reap_ended(|thread| {
            let stop = pending_stops.remove(&thread);
            let process = stop.and_then(|stop| processes.iter_mut().find(|process| process.id == stop.process));
            if let Some(process) = process {
                process.thread_lister.invalidate();
                process.may_be_gone = true;
                process.stop_ended(thread);
            }
            is_child_of(own, thread)
        });
        if reaped.is_err() {
            self.forget_pending_stops();
        }
    }

    /// Ends sampling a process, and sends what was sampled.
    fn switch_off(&mut self, index: usize) {
        let now = Instant::now();
        self.drain_process(index);
        self.leave_processors(self.processes[index].id);
        let process = &mut self.processes[index];
        process.on = false;
        // Threads that were idle for long may have been skipped for some ticks: they are looked at once more.
        process.slot = process.slot.max(process.schedule.slot(now));
        for thread in 0..self.processes[index].threads.len() {
            if self.processes[index].threads[thread].blocked_sched.is_some() {
                self.look(index, thread, 1, true);
            }
        }
        self.running.clear();
        self.blocked.clear();
        self.unwatched.clear();
        let process = &mut self.processes[index];
        self.captures.settle_unknown(process);
        if let Some(batch) = process.flush(now) {
            process.status.lost_observations += self.sender.send_batch(batch);
        }
        let status = process.status();
        self.sender.send(Output::Status(status));
    }

    /// Sends what was sampled of a process, and forgets it. Threads that were asked to stop are let go when they do.
    pub(super) fn let_go(&mut self, index: usize, why: Detached) {
        self.serve();
        if self.processes[index].on {
            self.switch_off(index);
        }
        let process = self.processes.swap_remove(index).id;
        self.sender.send(Output::Gone { process, why });
    }

    pub(super) fn fail(&mut self, index: usize, kind: ProblemKind, message: String) {
        self.problem(index, kind, message);
        self.let_go(index, Detached::Failed);
    }

    pub(super) fn problem(&mut self, index: usize, kind: ProblemKind, message: String) {
        let process = self.processes[index].id;
        if self.processes[index].is_new(kind) {
            self.sender.send(Output::Problem { process, kind, message });
        }
    }

    /// After a panic: the process that was being worked on is given up, the others go on.
    fn give_up(&mut self) {
        self.unwinder = StackUnwinder::default();
        self.running.clear();
        self.blocked.clear();
        self.unwatched.clear();
        let Some(process) = self.current.take() else {
            return;
        };
        // Its state may be inconsistent, so none of it is used any more.
        self.captures.forget(process);
        self.leave_processors(process);
        if let Some(index) = self.find(process) {
            self.processes.swap_remove(index);
            self.sender.send(Output::Problem {
                process,
                kind: ProblemKind::Internal,
                message: "sampling it failed; please report this as a defect".to_owned(),
            });
            self.sender.send(Output::Gone { process, why: Detached::Failed });
        }
    }
}

/// Whether a thread is the first one of a process that this program started. The status of such a process belongs to
/// whoever waits for it in this program; of other threads nobody here wants it.
fn is_child_of(parent: u32, thread: u32) -> bool {
    let Ok(directory) = File::open(format!("/proc/{thread}")) else {
        return false;
    };
    process_info::status(directory.as_fd(), "status")
        .is_ok_and(|status| status.process == thread && status.parent == parent)
}
