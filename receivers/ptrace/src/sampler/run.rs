//! The sampling thread's loop.
//!
//! What stopped comes first, always: between any two steps that take longer than a moment, threads that stopped are looked at and let go.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use super::active::Active;
use super::leases::{Captures, CpuMark, Lease, Leases, MOST_CAPTURED, Taken};
use super::look::{Look, Passive, Seen, Workshop};
use super::{Command, Options, Output, Shared};
use crate::lease::{self, Held, Refused};
use crate::message::{Batch, Detached, Location, Mode, ProblemKind, ProcessId};
use crate::os::priority;
use crate::os::signal::{Sleeper, Waker};
use crate::process_files::Life;

/// How long threads that were asked to stop are waited for at the end. The kernel lets go of the others when the thread ends.
const DRAIN: Duration = Duration::from_millis(500);

/// How long the last words may take to find room at the end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A living process is asked for its state in every so many ticks even if nothing seems wrong.
const LIFE_STRIDE: u64 = 16;

/// After so many looks at threads, those that were asked to stop are let go if they did: about 30 microseconds.
const LOOKS: usize = 32;

/// How often another attempt is made to say what found no room.
const RETRY: Duration = Duration::from_millis(20);

/// Stops that are refused before that is called a problem: a thread that is about to end refuses them, too.
const REFUSALS: u64 = 5;

/// How often leased threads are looked for that ended, where nothing announced it.
const REAP: Duration = Duration::from_millis(10);

/// What the thread says about itself.
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
    let raised_priority = priority::raise(options.realtime);
    // Ticks are to be in time: by default the kernel may be 50 microseconds late.
    nix::sys::prctl::set_timerslack(1).ok();
    drop(ready.send(Ok(Started { waker, raised_priority })));
    let mut engine = Engine::new(out, wake);
    loop {
        let step = catch_unwind(AssertUnwindSafe(|| engine.step(shared)));
        match step {
            Ok(Next::Sleep(time)) => {
                let stops = !engine.leases.is_empty();
                sleeper.sleep(time, stops);
                engine.noticed = Instant::now();
            }
            Ok(Next::End) => break,
            Err(_) => engine.give_up(),
        }
    }
    engine.last_words();
}

enum Next {
    /// For so long, or until something happens.
    Sleep(Option<Duration>),
    End,
}

/// Everything that the loop works on.
struct Engine<'a> {
    processes: Vec<Active>,
    leases: Leases,
    captures: Captures,
    workshop: Workshop,
    locations: Vec<Location>,
    ids: Vec<u32>,
    running: Vec<u32>,
    blocked: Vec<(u32, Seen)>,
    cpu: CpuMark,
    /// The process that is worked on: given up where that fails.
    current: Option<ProcessId>,
    /// A moment before which the next stopped thread had not been noticed.
    noticed: Instant,
    ends_due: Instant,
    stopping: Option<Instant>,
    out: SyncSender<Output>,
    wake: &'a dyn Fn(),
    unsaid: VecDeque<Output>,
    deaf: bool,
}

impl<'a> Engine<'a> {
    fn new(out: SyncSender<Output>, wake: &'a dyn Fn()) -> Self {
        let now = Instant::now();
        Self {
            processes: Vec::new(),
            leases: Leases::default(),
            captures: Captures::default(),
            workshop: Workshop::default(),
            locations: Vec::new(),
            ids: Vec::new(),
            running: Vec::new(),
            blocked: Vec::new(),
            cpu: CpuMark::default(),
            current: None,
            noticed: now,
            ends_due: now,
            stopping: None,
            out,
            wake,
            unsaid: VecDeque::new(),
            deaf: false,
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
            && self.processes[index].grid.due() <= now
        {
            self.tick(index);
            self.serve();
        }
        self.say_unsaid();
        let now = Instant::now();
        if let Some(deadline) = self.stopping
            && (self.leases.is_empty() || now >= deadline)
        {
            return Next::End;
        }
        self.current = None;
        let mut until = self.next_due().map(|index| self.processes[index].grid.due());
        let mut earlier = |time: Instant| until = Some(until.map_or(time, |until| until.min(time)));
        if let Some(deadline) = self.stopping {
            earlier(deadline);
        }
        if !self.leases.is_empty() {
            earlier(self.ends_due.max(now + REAP));
        }
        if !self.unsaid.is_empty() {
            earlier(now + RETRY);
        }
        Next::Sleep(until.map(|until| until.saturating_duration_since(now)))
    }

    fn next_due(&self) -> Option<usize> {
        (0..self.processes.len())
            .filter(|&index| self.processes[index].on)
            .min_by_key(|&index| self.processes[index].grid.due())
    }

    fn find(&self, id: ProcessId) -> Option<usize> {
        self.processes.iter().position(|process| process.id == id)
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
                    self.processes[index].set_space(space);
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
    fn serve(&mut self) {
        loop {
            self.harvest();
            let Some(captured) = self.captures.waiting.pop_front() else {
                return;
            };
            self.finish(captured);
        }
    }

    fn finish(&mut self, captured: super::leases::Captured) {
        let Some(index) = self.find(captured.process) else {
            return;
        };
        let process = &mut self.processes[index];
        self.current = Some(process.id);
        self.captures.finish(process, captured, &mut self.workshop, &mut self.locations);
        process.budget.spend(self.cpu.take());
    }

    /// Lets go of all threads that stopped. Removes no process.
    fn harvest(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        loop {
            let Some(held) = Held::next() else {
                self.noticed = Instant::now();
                return;
            };
            let lease = self.leases.remove(&held.thread());
            let index = lease.and_then(|lease| self.find(lease.process));
            let Some(index) = index else {
                // Nobody wants its stack, but a system call that the stop interrupted still has to be mended.
                held.registers().ok();
                let thread = held.thread();
                if !held.release() {
                    self.leases.insert(thread, lease.unwrap_or_default());
                }
                continue;
            };
            let process = &mut self.processes[index];
            self.current = Some(process.id);
            let thread = held.thread();
            if let Some(thread) = process.find(thread) {
                process.threads[thread].leased = false;
            }
            let taken = self.captures.take(process, held, self.noticed, &mut self.workshop);
            self.noticed = Instant::now();
            match taken {
                Taken::Stack => {}
                Taken::Killed => {
                    process.doubt = true;
                    self.leases.insert(thread, lease.unwrap_or_default());
                }
                Taken::Architecture => process.foreign = true,
            }
            if self.captures.waiting.len() >= MOST_CAPTURED
                && let Some(captured) = self.captures.waiting.pop_front()
            {
                self.finish(captured);
            }
        }
    }

    /// Buries the leased threads that ended: their parents hear of it only then.
    fn reap(&mut self, now: Instant) {
        if self.leases.is_empty() || now < self.ends_due {
            return;
        }
        self.ends_due = now + REAP;
        let own = std::process::id();
        let (leases, processes) = (&mut self.leases, &mut self.processes);
        lease::reap_ended(|thread| {
            let lease = leases.remove(&thread);
            let process = lease.and_then(|lease| processes.iter_mut().find(|process| process.id == lease.process));
            if let Some(process) = process {
                process.census.invalidate();
                process.doubt = true;
                if let Some(index) = process.find(thread) {
                    process.threads[index].leased = false;
                }
            }
            is_child_of(own, thread)
        });
    }

    fn tick(&mut self, index: usize) {
        let now = Instant::now();
        let process = &mut self.processes[index];
        let id = process.id;
        self.current = Some(id);
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
        self.count_threads(index, now);
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
        self.serve();
        let now = Instant::now();
        self.account(index, now);
        self.say_regular(index, now);
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
                if process.set_threads(ids) > 32 {
                    // What it takes to open so many is no measure of what sampling them takes.
                    self.cpu.take();
                    process.budget.restart(now);
                }
                for state in &mut process.threads {
                    state.leased = self.leases.contains_key(&state.files.id);
                }
            }
            Err(_) => process.doubt = true,
        }
    }

    /// Looks at one thread, and notes what is to be done.
    fn look(&mut self, index: usize, thread: usize, idle_stride: u64, all: bool) {
        let process = &mut self.processes[index];
        match process.look(thread, idle_stride, all) {
            Look::Nothing => {}
            Look::Unchanged => {
                if process.wants_blocked(thread) {
                    process.account_blocked(thread, Instant::now());
                }
            }
            Look::Running => {
                let state = &process.threads[thread];
                if process.settings.mode == Mode::Wall || state.run_unsampled > 0 {
                    self.running.push(state.files.id);
                }
            }
            Look::Blocked(seen) => {
                if process.wants_blocked(thread) {
                    self.blocked.push((process.threads[thread].files.id, seen));
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
        for thread in running.drain(..) {
            self.request(index, thread);
            self.harvest();
        }
        self.running = running;
    }

    fn request(&mut self, index: usize, thread: u32) {
        if self.stopping.is_some() {
            return;
        }
        let process = &mut self.processes[index];
        let Some(state) = process.find(thread) else {
            return;
        };
        match lease::request(thread) {
            Ok(()) => {
                process.threads[state].leased = true;
                let process = process.id;
                self.leases.insert(thread, Lease { process });
            }
            Err(Refused::Ended) => process.census.invalidate(),
            Err(Refused::Denied) => {
                // The time is lost: no later sample is to stand for it.
                let slot = process.slot;
                process.threads[state].credited = slot;
                process.status.refused_stops += 1;
                if process.status.refused_stops >= REFUSALS {
                    self.explain_refusal(index, state);
                }
            }
        }
    }

    fn explain_refusal(&mut self, index: usize, thread: usize) {
        let process = &mut self.processes[index];
        let Some((tracer, _)) = process.threads[thread].files.status(process.files.task()) else {
            return;
        };
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
                Passive::Stop => self.request(index, thread),
            }
            self.harvest();
        }
        self.blocked = blocked;
    }

    /// Settles what the tick cost.
    fn account(&mut self, index: usize, now: Instant) {
        let cpu = self.cpu.take();
        let process = &mut self.processes[index];
        process.budget.spend(cpu);
        if process.budget.is_due(now) {
            let longest = |longest: Duration, thread: &mut super::thread_state::ThreadState| {
                longest.max(std::mem::take(&mut thread.stopped))
            };
            let stopped = process.threads.iter_mut().fold(Duration::ZERO, longest);
            let stride = process.budget.review(now, stopped);
            process.grid.set_stride(stride);
            #[allow(clippy::cast_precision_loss, reason = "at most 64")]
            let stride = stride as f64;
            process.status.rate_hertz = process.settings.rate_hertz / stride;
        }
    }

    fn say_regular(&mut self, index: usize, now: Instant) {
        let process = &mut self.processes[index];
        let id = process.id;
        if process.flush_is_due(now)
            && let Some(batch) = process.flush(now)
        {
            self.say_batch(index, batch);
        }
        let process = &mut self.processes[index];
        if let Some(status) = process.take_status(now) {
            self.say(Output::Status(status));
        }
        if self.processes[index].take_reload(now) {
            self.say(Output::Reload(id));
        }
    }

    /// Stops sampling a process, and says what there is.
    fn switch_off(&mut self, index: usize) {
        let now = Instant::now();
        let process = &mut self.processes[index];
        process.on = false;
        // Threads that were idle for long may not have been looked at for some ticks.
        process.slot = process.slot.max(process.grid.slot(now));
        for thread in 0..self.processes[index].threads.len() {
            if self.processes[index].threads[thread].quiet.is_some() {
                self.look(index, thread, 1, true);
            }
        }
        self.running.clear();
        self.blocked.clear();
        let process = &mut self.processes[index];
        let batch = process.flush(now);
        let status = process.status();
        if let Some(batch) = batch {
            self.say_batch(index, batch);
        }
        self.say(Output::Status(status));
    }

    /// Says what there is of a process, and forgets it. Threads that were asked to stop are let go when they do.
    fn let_go(&mut self, index: usize, why: Detached) {
        if self.processes[index].on {
            self.switch_off(index);
        }
        let process = self.processes.swap_remove(index).id;
        self.say(Output::Gone { process, why });
    }

    fn fail(&mut self, index: usize, kind: ProblemKind, message: String) {
        self.problem(index, kind, message);
        self.let_go(index, Detached::Failed);
    }

    fn problem(&mut self, index: usize, kind: ProblemKind, message: String) {
        let process = self.processes[index].id;
        if self.processes[index].is_new(kind) {
            self.say(Output::Problem { process, kind, message });
        }
    }

    /// Something is wrong with this program: the process that it was about is let go, the others stay.
    fn give_up(&mut self) {
        self.workshop = Workshop::default();
        self.captures = Captures::default();
        self.running.clear();
        self.blocked.clear();
        let Some(process) = self.current.take() else {
            return;
        };
        // Whatever state it is in: nothing of it is used any more.
        if let Some(index) = self.find(process) {
            self.processes.swap_remove(index);
            self.unsaid.push_back(Output::Problem {
                process,
                kind: ProblemKind::Internal,
                message: "sampling it failed; please report this as a defect".to_owned(),
            });
            self.unsaid.push_back(Output::Gone { process, why: Detached::Failed });
        }
    }

    fn say_batch(&mut self, index: usize, batch: Batch) {
        let observations = |batch: &Batch| {
            let counts = batch.samples.iter();
            counts.map(|sample| u64::from(sample.observations)).sum::<u64>()
        };
        if self.deaf {
            return;
        }
        // A batch must not overtake what was said before it.
        let refused = if self.unsaid.is_empty() {
            match self.out.try_send(Output::Batch(batch)) {
                Ok(()) => {
                    (self.wake)();
                    None
                }
                Err(TrySendError::Full(Output::Batch(batch))) => Some(batch),
                Err(TrySendError::Full(_)) => None,
                Err(TrySendError::Disconnected(_)) => {
                    self.deaf = true;
                    None
                }
            }
        } else {
            Some(batch)
        };
        if let Some(batch) = refused {
            self.processes[index].status.lost_observations += observations(&batch);
        }
    }

    fn say(&mut self, output: Output) {
        self.unsaid.push_back(output);
        self.say_unsaid();
    }

    /// Says what found no room before. Of the counters of a process only the last are kept.
    fn say_unsaid(&mut self) {
        while let Some(output) = self.unsaid.pop_front() {
            match self.out.try_send(output) {
                Ok(()) => (self.wake)(),
                Err(TrySendError::Full(output)) => {
                    let superseded = matches!(&output, Output::Status(status) if self.unsaid.iter().any(|later| {
                        matches!(later, Output::Status(later) if later.process == status.process)
                    }));
                    if !superseded {
                        self.unsaid.push_front(output);
                    }
                    return;
                }
                Err(TrySendError::Disconnected(_)) => {
                    self.deaf = true;
                    self.unsaid.clear();
                }
            }
        }
    }

    fn last_words(&mut self) {
        let deadline = Instant::now() + LAST_WORDS;
        loop {
            self.say_unsaid();
            if self.unsaid.is_empty() || Instant::now() >= deadline {
                return;
            }
            std::thread::park_timeout(RETRY);
        }
    }
}

/// Whether a thread belongs to a process that this program started.
fn is_child_of(parent: u32, thread: u32) -> bool {
    let Ok(line) = std::fs::read(format!("/proc/{thread}/stat")) else {
        return false;
    };
    // Threads other than a process's first are nobody's to wait for.
    crate::probe::parse_stat(&line).is_some_and(|stat| stat.parent == parent) && thread_group(thread) == Some(thread)
}

/// The process that a thread belongs to.
fn thread_group(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}
