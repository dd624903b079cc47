//! A process while it is sampled: its threads, its batch and its schedule.

mod account;
mod look;
mod pooled;
mod report;
mod stops;
mod tick;
mod waits;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(super) use self::account::FoundStack;
pub(super) use self::look::{BlockedAt, Examination, Passive};
use self::pooled::Pool;
pub(super) use self::tick::TickStart;
use self::waits::Waits;
pub(super) use self::waits::{PreemptedWait, RecordedState, Recording, WaitStack};
use super::attached::Attached;
use super::batch::BatchBuilder;
use super::budget::SamplingBudget;
use super::contexts::{ProcessContexts, TraceContextReading};
use super::coverage::{THREADS, Usage};
use super::events::ASKED_AGAIN;
use super::interpreters::Interpreted;
use super::processors::{MachineUsage, Review};
use super::rings::{Board, ReadProcess, ReadThread};
use super::states::{PendingCheck, RunningThreadMethod};
use super::stop_rules::StopRules;
use super::thread_event::DutyCycle;
use super::thread_state::ThreadState;
use super::tick_schedule::TickSchedule;
use super::unseen::Unseen;
use crate::address_space::AddressSpace;
use crate::message::{Mode, Stops, read_class};
use crate::os::time;
use crate::perf::open::Switches;
use crate::stack_copy::StackPieces;
use crate::threads::{ThreadFiles, ThreadLister};

/// A thread that has not run for this many seconds loses its event.
const IDLE: u64 = 2;

/// The event of a thread that has waited for at least this long is not replaced until the thread runs.
const LONG_WAIT: Duration = Duration::from_millis(20);

/// For how many seconds readers read the rest of a thread's stack from memory after one of its stacks was longer than
/// the kernel's copy.
const GOES_ON: u64 = 10;

/// The longest time between two readings of the threads' counters. The running time between the last reading and a
/// thread's end is lost.
const COUNTED: Duration = Duration::from_millis(100);

/// Of how many new threads the thread pointers are looked up at once, which takes about 20 microseconds each. Those of
/// other threads are looked up with their first sample.
const POINTERS: usize = 64;

/// A process while it is sampled.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) attached: Attached,
    /// The threads, sorted by id.
    pub(super) threads: Vec<ThreadState>,
    /// How running threads are sampled.
    pub(super) watch: RunningThreadMethod,
    /// When to ask the kernel again whether it permits better events.
    pub(super) asked_again: Instant,
    /// Decides what the process's events cover (its threads, its control group or the machine), and when to review
    /// that.
    pub(super) review: Review,
    /// What the events of processors report about context switches, if the process is sampled by these.
    pub(super) switches: Switches,
    /// Until this moment switches are not reported, because reports would cost too much.
    hidden_until: Option<Instant>,
    /// When running threads may be stopped.
    pub(super) stop_rules: StopRules,
    pub(super) concern: PendingCheck,
    /// When sampling began.
    began: Instant,
    schedule: TickSchedule,
    /// The slot of the last tick. A slot is one period of the schedule.
    slot: u64,
    thread_lister: ThreadLister,
    budget: SamplingBudget,
    /// Until this slot the budget is not charged, because many threads were added at once.
    free_until: u64,
    /// Until this slot the exception of `free_until` is not granted again.
    no_more_free_until: u64,
    /// The processor time of threads that ended before they were examined; `None` before the first tick.
    unseen: Option<Unseen>,
    unseen_since: Instant,
    /// The last two times that the list of threads was read or found unchanged, the latest first. A thread that is
    /// missing in the list started after the latest time.
    listed: [Instant; 2],
    /// When to read the counters between two ticks, if ticks are far apart.
    count_due: Option<Instant>,
    /// A thread and its system call that a stop ended early, until they are reported.
    cut: Option<(u32, &'static str)>,
    /// Until this slot readers read the rest of some threads' stacks from memory.
    goes_on_until: u64,
    /// The description of the process for readers, and the generation of its address space.
    read_process: Option<(u64, Arc<ReadProcess>)>,
    batch: BatchBuilder,
    waits: Waits,
    pool: Pool,
    /// The same moment on both clocks. Wall-clock times are computed from this pair, so that times within a batch never
    /// go backwards, even if the wall clock does.
    epoch: (Instant, u64),
    flush_due: Instant,
    status_due: Instant,
}

impl Active {
    /// Starts sampling: time before `now` is not accounted for. `started` says that the process is a command that was
    /// just started.
    pub(super) fn new(mut attached: Attached, started: bool, now: Instant) -> Self {
        let settings = attached.settings;
        let schedule = TickSchedule::new(now, settings.rate_hertz, time::unix_nano() ^ u64::from(attached.files.pid()));
        attached.status.rate_hertz = settings.rate_hertz;
        Self {
            threads: Vec::new(),
            watch: RunningThreadMethod::Undecided,
            asked_again: now,
            review: Review::new(now, started),
            switches: Switches::Hidden,
            hidden_until: None,
            stop_rules: StopRules::new(settings.stops != Stops::Always, now),
            concern: PendingCheck::MayBeGone,
            began: now,
            slot: 0,
            thread_lister: ThreadLister::new(now),
            budget: SamplingBudget::new(&settings, now),
            free_until: 0,
            no_more_free_until: 0,
            unseen: None,
            unseen_since: now,
            listed: [now; 2],
            count_due: (Duration::from_nanos(schedule.period_nano()) > COUNTED).then(|| now + COUNTED),
            cut: None,
            waits: Waits::new(now),
            pool: Pool::default(),
            goes_on_until: 0,
            read_process: None,
            batch: BatchBuilder::new(attached.id, schedule.period_nano(), settings.mode),
            schedule,
            epoch: report::epoch(),
            flush_due: now + report::FLUSH,
            status_due: now + report::STATUS,
            attached,
        }
    }

    /// When the next tick is due.
    pub(super) fn due(&self) -> Instant {
        self.schedule.due()
    }

    /// When the process next needs attention.
    pub(super) fn next_step(&self) -> Instant {
        self.count_due.map_or(self.due(), |at| at.min(self.due()))
    }

    /// Whether the rate is the configured one, not lowered by the budget.
    pub(super) fn is_at_full_rate(&self) -> bool {
        self.schedule.stride() == 1
    }

    /// Whether blocked threads are to be sampled at all.
    pub(super) fn wants_blocked(&self) -> bool {
        self.attached.settings.mode == Mode::Wall
    }

    /// The index of a thread.
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.threads.binary_search_by_key(&id, ThreadState::id).ok()
    }

    /// The index of a thread that the kernel reported. A thread that is not listed yet is added, since it may have
    /// ended before the threads are listed again.
    pub(super) fn find_or_add_thread(&mut self, id: u32) -> usize {
        match self.threads.binary_search_by_key(&id, ThreadState::id) {
            Ok(index) => index,
            Err(index) => {
                let [since, _] = self.listed;
                let thread = self.new_thread(id, since, true);
                self.threads.insert(index, thread);
                self.thread_lister.invalidate();
                index
            }
        }
    }

    /// The state of a new thread. If an interpreter identifies its threads by their pointers, the pointer is looked up
    /// at once, provided that this `may_take_time`: after the thread has ended, another one may get the same pointer.
    fn new_thread(&self, id: u32, since: Instant, may_take_time: bool) -> ThreadState {
        let Attached { interpreters, files, settings, .. } = &self.attached;
        let slot = self.slot.saturating_sub(1);
        let mut thread = ThreadState::new(ThreadFiles::new(id), slot, since, settings.max_stack);
        if self.defers_records() {
            thread.recording = Some(Box::new(Recording::new(since)));
        }
        // Threads that existed when sampling began were listed before any running time was counted; those listed later
        // are counted from their start.
        if self.unseen.is_some() {
            thread.ledger.begins_at_zero();
        }
        if may_take_time && interpreters.has_frames_in_memory() {
            thread.key(files, self.slot);
        }
        thread
    }

    /// Called when a thread of the process has ended: the list is read again soon. Otherwise the change might not be
    /// noticed, since the number of threads stays the same if another thread has started.
    pub(super) fn thread_ended(&mut self) {
        self.thread_lister.invalidate();
        self.listed[0] = self.listed[1];
    }

    /// Records that the list of threads was read, or is known to be unchanged.
    fn listed(&mut self, now: Instant) {
        self.listed = [now, self.listed[0]];
    }

    /// Replaces the list of threads: adds new ones and removes those that ended. Returns how many are new.
    fn set_threads(&mut self, ids: &[u32], now: Instant) -> usize {
        self.apply_records();
        self.settle_gone(ids, now);
        let before = std::mem::take(&mut self.threads);
        self.threads.reserve(ids.len());
        let mut before = before.into_iter().peekable();
        let mut came = 0;
        // A new thread has started since the last listing: on average, half of that time ago.
        let [listed, _] = self.listed;
        let since = listed + now.saturating_duration_since(listed) / 2;
        self.listed(now);
        for &id in ids {
            while before.next_if(|thread| thread.id() < id).is_some() {}
            let thread = before.next_if(|thread| thread.id() == id).unwrap_or_else(|| {
                came += 1;
                self.look_again(id);
                self.new_thread(id, since, came <= POINTERS)
            });
            self.threads.push(thread);
        }
        self.attached.status.threads = self.threads.len() as u64;
        came
    }

    /// Reads the interpreter frames of a thread, if its process has an interpreter. `copy` is a copy of the stack if
    /// the thread does not run meanwhile; otherwise it is `None`, and the frames still have to be proven.
    pub(super) fn capture_interpreted(
        &mut self,
        index: usize,
        limit: usize,
        copy: Option<&StackPieces>,
        interpreted: &mut Interpreted,
    ) {
        let Attached { interpreters, files, .. } = &mut self.attached;
        if interpreters.is_empty() {
            return;
        }
        let key = self.threads[index].key(files, self.slot);
        interpreters.lock().capture(key, limit, files, copy, interpreted);
    }

    /// Sets the address space that is valid from a moment on.
    pub(super) fn set_space(&mut self, at: Instant, space: Arc<AddressSpace>) {
        let before = self.attached.interpreters.is_empty();
        self.attached.set_space(at, space);
        if before && !self.attached.interpreters.is_empty() {
            // The coverage has to be reviewed, because events of processors wake no readers. The known stacks of
            // waiting threads lack the frames of the new interpreters.
            self.review.make_due();
            for thread in &mut self.threads {
                thread.blocked.unwound = None;
                thread.recording.iter_mut().for_each(|recording| recording.look_again());
            }
        }
    }

    /// Whether readers have to read some threads when they are sampled, before they continue.
    pub(super) fn wants_readers(&self) -> bool {
        self.is_read() || self.slot < self.goes_on_until
    }

    /// Whether readers have to read all threads when they are sampled.
    fn is_read(&self) -> bool {
        !self.attached.interpreters.is_empty() || self.attached.contexts.is_read()
    }

    /// Whether a reader has to read this thread when it is sampled.
    pub(super) fn wants_reader(&self, index: usize) -> bool {
        self.is_read() || self.threads[index].goes_on(self.slot)
    }

    /// Called when a sampled thread's stack is longer than its copy: for some time, readers read the rest from memory.
    pub(super) fn goes_on(&mut self, index: usize) {
        self.goes_on_until = self.slot + GOES_ON * self.slots_per_second();
        self.threads[index].goes_on_until = self.goes_on_until;
        // Events of processors wake no readers.
        if matches!(self.watch, RunningThreadMethod::Group | RunningThreadMethod::Machine) {
            self.review.make_due();
        }
    }

    /// Counts what a reader did for a sample: how long after the sample the thread's memory had been read, and for how
    /// long the thread was kept off its processor. `any` says whether there were interpreter frames.
    pub(super) fn count_reading(&mut self, index: usize, behind: Duration, held: Duration, any: bool) {
        let nano = u64::try_from(behind.as_nanos()).unwrap_or(u64::MAX);
        self.attached.status.read_behind[read_class(nano)] += u64::from(any);
        self.threads[index].stopped += held;
    }

    /// Describes a thread to the readers if it has an event and has to be read when it is sampled, unless they know
    /// this description.
    pub(super) fn show(&mut self, index: usize, board: &Board) {
        let generation = self.attached.space_generation;
        if !self.wants_reader(index) || self.threads[index].event.is_none() {
            return;
        }
        if self.read_process.as_ref().is_none_or(|(known, _)| *known != generation) {
            let Attached { files, interpreters, spaces, .. } = &self.attached;
            let process = Arc::new(ReadProcess {
                files: Arc::clone(files),
                interpreters: interpreters.share(),
                space: Arc::clone(spaces.latest()),
                is_urgent: interpreters.has_native_frames(),
                spent_nano: AtomicU64::new(0),
            });
            self.read_process = Some((generation, process));
        }
        let Some((_, process)) = &self.read_process else { return };
        let (Attached { files, contexts, .. }, slot) = (&self.attached, self.slot);
        let contexts = contexts.is_read().then_some(contexts);
        let generation = contexts.map(ProcessContexts::generation);
        let thread = &mut self.threads[index];
        let (key, goes_on) = (thread.key(files, slot), thread.goes_on(slot));
        let is_known = thread.subject.as_ref().is_some_and(|subject| {
            Arc::ptr_eq(&subject.process, process)
                && (subject.key, subject.goes_on) == (key, goes_on)
                && subject.contexts.as_ref().map(|(known, _)| known.generation()) == generation
        });
        if !is_known && let Some(event) = &thread.event {
            let contexts = contexts.map(|contexts| (contexts.clone(), Mutex::default()));
            let subject = ReadThread { process: Arc::clone(process), key, events: event.files(), goes_on, contexts };
            let subject = Arc::new(subject);
            board.show(thread.id(), &subject);
            thread.subject = Some(subject);
        }
    }

    /// Updates the descriptions for the readers, and charges the budget with the processor time that they used.
    pub(super) fn show_again(&mut self, board: &Board) {
        if self.wants_readers() {
            (0..self.threads.len()).for_each(|index| self.show(index, board));
        }
        if let Some((_, process)) = &self.read_process {
            self.budget.spend(Duration::from_nanos(process.spent_nano.swap(0, Ordering::Relaxed)));
        }
    }

    /// Looks up the thread pointer, which leads to the thread's trace context. Returns whether the process publishes
    /// contexts at all.
    fn find_pointer(&mut self, index: usize) -> bool {
        let Attached { contexts, files, .. } = &self.attached;
        if !contexts.is_read() {
            return false;
        }
        self.threads[index].key(files, self.slot);
        true
    }

    /// Reads the trace context of a thread that does not run meanwhile.
    pub(super) fn standing(&mut self, index: usize) -> TraceContextReading {
        if !self.find_pointer(index) {
            return TraceContextReading::default();
        }
        let Attached { contexts, files, .. } = &mut self.attached;
        let thread = &mut self.threads[index];
        contexts.of_standing(thread.pointer, &mut thread.blocks, files, Instant::now())
    }

    /// The trace context of a thread when the kernel copied its stack.
    pub(super) fn copied(&mut self, index: usize, pieces: &StackPieces) -> TraceContextReading {
        if !self.find_pointer(index) {
            return TraceContextReading::default();
        }
        let Attached { contexts, .. } = &mut self.attached;
        let thread = &mut self.threads[index];
        contexts.of_copy(thread.pointer, pieces)
    }

    /// The number of slots per second.
    fn slots_per_second(&self) -> u64 {
        1_000_000_000 / self.schedule.period_nano()
    }

    pub(super) fn slot_a_second_ago(&self) -> u64 {
        self.slot.saturating_sub(self.slots_per_second())
    }

    /// The running time between two samples, in nanoseconds.
    pub(super) fn event_period(&self) -> u64 {
        self.schedule.period_nano() * self.schedule.stride()
    }

    /// Charges the budget with processor time of the sampling thread.
    pub(super) fn spend(&mut self, cpu: Duration) {
        self.budget.spend(cpu);
    }

    /// Closes the events of all threads.
    pub(super) fn close_events(&mut self) {
        for thread in &mut self.threads {
            thread.event = None;
            thread.end_recording();
            thread.subject = None;
            thread.duty_cycle = DutyCycle::default();
        }
    }

    /// Closes the event of a thread. Returns whether it had one.
    pub(super) fn close_event(&mut self, index: usize) -> bool {
        if self.threads[index].recording.is_some() {
            self.settle_up_to(index, Instant::now());
        }
        self.threads[index].close_event(self.watch.hides_kernel())
    }

    /// Closes the events of threads that are idle or are switched too often.
    pub(super) fn tend_events(&mut self, now: Instant) {
        if !matches!(self.watch, RunningThreadMethod::Threads { .. }) {
            return;
        }
        let idle = IDLE * self.slots_per_second();
        let slot = self.slot;
        let is_read = self.is_read();
        let most = self.waits.most_switches();
        for index in 0..self.threads.len() {
            let thread = &mut self.threads[index];
            let goes_on = thread.goes_on(slot);
            let Some(event) = &mut thread.event else { continue };
            let is_idle = slot.saturating_sub(thread.idle_since) > idle;
            // An event that wakes no reader is replaced once readers are needed; but not during a long wait, since
            // closing it would lose the registers with which the wait began, and readers do not read waiting threads.
            let stands = thread.recording.as_ref().and_then(|recording| recording.stands_for(now));
            let is_outdated = (is_read || goes_on) && !event.wakes() && stands.is_none_or(|stands| stands < LONG_WAIT);
            if is_idle || is_outdated || thread.duty_cycle.is_due(event, thread.sched.timeslices, most, slot, now) {
                self.close_event(index);
            }
        }
    }

    /// The use of the processors since the last call, by the process and by others.
    pub(super) fn usage(&mut self, machine: &MachineUsage, now: Instant) -> Option<Usage> {
        let switches = self.switches();
        self.review.look_for_group(self.attached.files.directory());
        self.review.usage(self.attached.files.pid(), self.threads.len(), switches, machine, now)
    }

    /// What the events of processors should report about context switches: less if there are too many switches or
    /// threads.
    pub(super) fn wanted_switches(&mut self, now: Instant) -> Switches {
        let is_many = |most| self.threads.len() > most;
        let is_dear = is_many(THREADS) && self.waits.are_expensive();
        if is_dear && self.switches != Switches::Hidden {
            self.hidden_until = Some(now + ASKED_AGAIN);
        }
        let most = if self.switches == Switches::Sampled { THREADS / 2 } else { THREADS };
        match self.hidden_until {
            Some(until) if now < until => Switches::Hidden,
            _ if is_many(most) => Switches::Sampled,
            _ => Switches::Recorded,
        }
    }

    /// How many times the process's busiest thread was given a processor since the last call.
    fn switches(&mut self) -> u64 {
        self.apply_records();
        let of = |thread: &mut ThreadState| {
            let before = std::mem::replace(&mut thread.switched, thread.sched.timeslices);
            if before == 0 { 0 } else { thread.sched.timeslices.saturating_sub(before) }
        };
        self.threads.iter_mut().map(of).max().unwrap_or(0)
    }
}
