//! The sampling thread's loop.
//!
//! Stopped threads come first: between any two steps that take longer than some microseconds, threads that have stopped
//! are sampled and released.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use super::active::{Active, BlockedAt};
use super::attached::Attached;
use super::budget::{CpuMark, RecordCost};
use super::captures::{Captured, Captures};
use super::events::Events;
use super::harvest::REAP;
use super::output_sender::{OutputSender, RETRY};
use super::pending_stops::PendingStops;
use super::precedence::Precedence;
use super::rings::RingItem;
use super::seizing::Seizing;
use super::stack_unwinder::StackUnwinder;
use super::{CommandQueue, SamplerOptions, SamplerOutput};
use crate::message::{Location, ProcessId};
use crate::os::priority;
use crate::os::signal::{Sleeper, Waker};

/// What the sampling thread reports to its handle once it has started.
#[derive(Debug)]
pub(super) struct StartReport {
    pub(super) waker: Waker,
    pub(super) raised_priority: bool,
}

/// The sampling thread.
pub(super) fn run(
    shared: &CommandQueue,
    options: SamplerOptions,
    out: SyncSender<SamplerOutput>,
    wake: &dyn Fn(),
    ready: &SyncSender<std::io::Result<StartReport>>,
) {
    let started = Sleeper::new().and_then(|(sleeper, waker)| Ok((sleeper, waker, Seizing::start()?)));
    let (sleeper, waker, seizing) = match started {
        Ok(started) => started,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let raised_priority = priority::raise(options.realtime);
    // By default the kernel may wake a thread 50 microseconds late, which would delay the ticks.
    nix::sys::prctl::set_timerslack(1).ok();
    drop(ready.send(Ok(StartReport { waker, raised_priority })));
    let mut engine = Engine::new(out, wake, seizing, Events::new(Some(waker)).ok());
    loop {
        let step = catch_unwind(AssertUnwindSafe(|| engine.step(shared)));
        match step {
            Ok(AfterStep::Sleep(time)) => {
                let stops = !engine.pending_stops.is_empty();
                sleeper.sleep(time, stops, engine.events.as_ref().and_then(Events::awaited));
                engine.woken = Instant::now();
                engine.noticed = engine.woken;
            }
            Ok(AfterStep::End) => break,
            Err(_) => engine.give_up(),
        }
    }
    engine.sender.send_rest();
}

enum AfterStep {
    /// Sleep at most for this time; a command, a stop or a sample ends the sleep earlier.
    Sleep(Option<Duration>),
    End,
}

/// The state of the sampling thread.
pub(super) struct Engine<'a> {
    /// Processes that are attached but not sampled now.
    pub(super) attached: Vec<Attached>,
    /// The processes that are sampled.
    pub(super) processes: Vec<Active>,
    pub(super) pending_stops: PendingStops,
    pub(super) seizing: Seizing,
    pub(super) captures: Captures,
    /// The perf events; `None` if the kernel lacks epoll, which is needed to wait for samples.
    pub(super) events: Option<Events>,
    /// A reusable buffer for items read from the rings.
    pub(super) items: Vec<RingItem>,
    pub(super) unwinder: StackUnwinder,
    pub(super) locations: Vec<Location>,
    pub(super) ids: Vec<u32>,
    pub(super) running: Vec<u32>,
    pub(super) blocked: Vec<(u32, BlockedAt)>,
    /// The ids of threads that run and have no event yet.
    pub(super) unwatched: Vec<u32>,
    pub(super) precedence: Precedence,
    pub(super) cpu: CpuMark,
    pub(super) record_cost: RecordCost,
    /// The process to whose budget the CPU time from now on is charged.
    payer: ProcessId,
    /// The process that is being worked on. If a panic interrupts the work, this process is detached.
    pub(super) current: Option<ProcessId>,
    /// The last moment at which no further thread had stopped: the length of the next stop is measured from it.
    pub(super) noticed: Instant,
    /// When this thread last woke up.
    pub(super) woken: Instant,
    pub(super) ends_due: Instant,
    pub(super) stopping: Option<Instant>,
    pub(super) sender: OutputSender<'a>,
}

impl<'a> Engine<'a> {
    pub(super) fn new(
        out: SyncSender<SamplerOutput>,
        wake: &'a dyn Fn(),
        seizing: Seizing,
        events: Option<Events>,
    ) -> Self {
        let now = Instant::now();
        Self {
            attached: Vec::new(),
            processes: Vec::new(),
            pending_stops: PendingStops::default(),
            seizing,
            captures: Captures::default(),
            events,
            items: Vec::new(),
            unwinder: StackUnwinder::default(),
            locations: Vec::new(),
            ids: Vec::new(),
            running: Vec::new(),
            blocked: Vec::new(),
            unwatched: Vec::new(),
            precedence: Precedence::new(now),
            cpu: CpuMark::default(),
            record_cost: RecordCost::default(),
            payer: ProcessId::default(),
            current: None,
            noticed: now,
            woken: now,
            ends_due: now,
            stopping: None,
            sender: OutputSender::new(out, wake),
        }
    }

    fn step(&mut self, shared: &CommandQueue) -> AfterStep {
        self.serve();
        while let Some(command) = shared.pop() {
            self.obey(command);
            self.serve();
        }
        self.reap(Instant::now());
        let now = Instant::now();
        if let Some(index) = self.next_due()
            && self.processes[index].due() <= now
        {
            self.tick(index);
        }
        self.sender.send_unsent();
        let now = Instant::now();
        self.processes.iter_mut().for_each(|process| process.count_between_ticks(now));
        if let Some(deadline) = self.stopping
            && (self.pending_stops.is_empty() || now >= deadline)
        {
            return AfterStep::End;
        }
        self.current = None;
        let mut until = self.processes.iter().map(Active::next_step).min();
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
        AfterStep::Sleep(until.map(|until| until.saturating_duration_since(now)))
    }

    fn next_due(&self) -> Option<usize> {
        (0..self.processes.len()).min_by_key(|&index| self.processes[index].due())
    }

    /// Releases all threads that have stopped, then unwinds their stacks.
    pub(super) fn serve(&mut self) {
        self.drain_ready();
        loop {
            self.harvest();
            let Some(captured) = self.captures.waiting.pop_front() else { return };
            self.finish(captured);
        }
    }

    pub(super) fn finish(&mut self, captured: Captured) {
        let Some(index) = self.find(captured.process) else { return };
        self.charge(captured.process);
        let current = self.current.replace(captured.process);
        self.captures.finish(&mut self.processes[index], captured, &mut self.unwinder, &mut self.locations);
        self.current = current;
    }

    /// Charges the CPU time from now on to this process, and the time used so far to the previous one. Reading the
    /// clock is a system call, so it is read only when the process changes.
    pub(super) fn charge(&mut self, process: ProcessId) {
        if self.payer == process {
            return;
        }
        let spent = self.cpu.take();
        let before = std::mem::replace(&mut self.payer, process);
        if let Some(index) = self.find(before) {
            self.processes[index].spend(spent);
        }
    }
}
