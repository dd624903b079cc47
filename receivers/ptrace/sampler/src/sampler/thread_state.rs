//! The state of one thread of a sampled process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::arch;
use crate::message::{Location, Trust};
use crate::os::robust_list::robust_list;
use crate::probe::SchedStat;
use crate::process_files::ProcessFiles;
use crate::runtime::ThreadKey;
use crate::stack_copy::{CopySize, Word};
use crate::threads::ThreadFiles;
use crate::unwind::{FRAME_POINTER, Registers};

use super::active::{Recording, WaitStack};
use super::batch::BatchEntry;
use super::contexts::{Blocks, TraceContextReading};
use super::interpreters::{Interpreted, Interpreters, NamedFrames};
use super::ledger::ThreadLedger;
use super::precedence::RecentRunTime;
use super::rings::ReadThread;
use super::states::{LastSeen, StopTurn};
use super::thread_event::{DutyCycle, ThreadEvent};
use super::user_bound::UserBound;

/// How many times interpreter frames are looked for if a thread has none and the rest of its stack is unchanged. A new
/// thread may be blocked before the interpreter knows it.
pub(super) const MAX_FAILED_LOOKUPS: u8 = 16;

/// For how many places in the code the frame pointer of a thread is stored.
const SITES: usize = 4;

/// Two stack pointers that are closer than this, in bytes, are assumed to be on the same alternate signal stack: such
/// stacks are small.
const ALTERNATE_STACK: u64 = 64 << 10;

/// A blocked thread is stopped for its registers at most this often.
const RESCUE_INTERVAL: Duration = Duration::from_secs(5);

/// A thread that ran for this many nanoseconds between two ticks gets an event.
const WORTH_AN_EVENT: u64 = 50_000;

/// The maximum number of ticks in which a thread's pointer is looked up. A new thread may not have registered its
/// robust list yet; with musl and Go, threads never do.
const SEARCHES: u16 = 256;

/// A thread that is sampled.
#[derive(Debug)]
pub(super) struct ThreadState {
    pub(super) files: ThreadFiles,
    /// The thread's id in its own PID namespace, and its name (see [`ThreadState::read_name`]). Unknown before its
    /// first sample.
    pub(super) namespace_id: Option<u32>,
    pub(super) name: String,
    /// The thread pointer, 0 while unknown.
    pub(super) pointer: u64,
    /// The addresses of the thread's blocks of thread-local data.
    pub(super) blocks: Blocks,
    /// In how many more ticks the thread pointer may be looked up without a stop, and the slot of the last lookup.
    searches: u16,
    sought: Option<u64>,
    pub(super) last_seen: LastSeen,
    /// The slot since which the thread has not been found running.
    pub(super) idle_since: u64,
    /// The stack with which the thread was blocked last.
    pub(super) blocked: Blocked,
    pub(super) stop_turn: StopTurn,
    pub(super) copy_size: CopySize,
    /// The stack pointer at the last stop.
    pub(super) stopped_sp: Option<u64>,
    /// A stack pointer on the thread's alternate signal stack.
    alternate: Option<u64>,
    sites: [Site; SITES],
    next_site: usize,
    rescued: Option<Instant>,
    /// The thread's running time at the last examination, in nanoseconds.
    run_seen: Option<u64>,
    /// The thread's index in the current batch.
    pub(super) batch_entry: Option<BatchEntry>,
    /// The thread's last sample, as long as observations of the same stack extend it.
    pub(super) run: Option<BatchEntry>,
    /// Whether the thread was sampled while it ran, so that its name may have changed.
    pub(super) ran: bool,
    /// For how long the thread was stopped in the current window of the budget.
    pub(super) stopped: Duration,
    /// The thread's unsettled time, and the samples among which it will be divided.
    pub(super) ledger: ThreadLedger,
    /// The counters when they were last read.
    pub(super) sched: SchedStat,
    /// How many times the thread had been given a processor at the last review; 0 before the first one.
    pub(super) switched: u64,
    /// Whether the thread ran long enough between the last two examinations to get an event.
    pub(super) moved: bool,
    pub(super) event: Option<ThreadEvent>,
    /// The state of the thread according to its switch records, if it is recorded.
    pub(super) recording: Option<Box<Recording>>,
    /// The description of the thread for readers.
    pub(super) subject: Option<Arc<ReadThread>>,
    /// Until this slot, readers read the rest of the thread's stack from memory, since a stack was longer than its
    /// copy.
    pub(super) goes_on_until: u64,
    pub(super) duty_cycle: DutyCycle,
    /// How long the thread ran recently: this decides which threads get an event if not all can have one.
    pub(super) lately: RecentRunTime,
    /// Whether the thread stays in its own code, so that it may be stopped if the kernel permits no event.
    pub(super) user_bound: UserBound,
    /// Identifies the system call that had transferred a part of its data at the last stop.
    pub(super) short_call: Option<[u64; 3]>,
}

/// The stack of a blocked thread, and the data from which it was derived.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    /// The registers for which the stack was unwound; `None` if there is no stack. The buffers below are kept for
    /// reuse.
    pub(super) unwound: Option<Unwound>,
    /// The arguments of the system call, if unwinding used them.
    pub(super) arguments: Option<[u64; 6]>,
    /// Every word of memory that unwinding read.
    pub(super) words: Vec<Word>,
    pub(super) extent: usize,
    pub(super) trust: Trust,
    pub(super) locations: Vec<Location>,
    /// The interpreter frames. They may have changed although every word that unwinding read is the same.
    pub(super) interpreted: Interpreted,
    /// Whether a signal or a debugger has stopped the thread; `None` if that was not checked.
    pub(super) stopped: Option<bool>,
    /// The result of naming the frames, until it is counted.
    pub(super) named: NamedFrames,
    /// How many times in a row no interpreter frames were found.
    pub(super) failed_lookups: u8,
    /// The index of this stack in the current batch.
    pub(super) stack: Option<BatchEntry>,
    /// This stack, for recorded waits.
    pub(super) standing: Option<WaitStack>,
    /// The thread's trace context.
    pub(super) worked: TraceContextReading,
    /// The generation of the context data (see `Contexts::generation`).
    pub(super) context_generation: u64,
}

/// The registers for which a stack was unwound. With the same registers, the stack is the same if all words that
/// unwinding read are unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unwound {
    pub(super) sp: u64,
    pub(super) pc: u64,
    /// The generation of the address space (see `Attached::space_generation`).
    pub(super) space_generation: u64,
}

impl Blocked {
    /// Whether the stored stack need not be unwound again in the current address space, and the context need not be
    /// read again.
    pub(super) fn is_final(&self, space_generation: u64, context_generation: u64) -> bool {
        self.context_generation == context_generation
            && self
                .unwound
                .is_some_and(|unwound| self.trust == Trust::Complete || unwound.space_generation == space_generation)
            && !(1..MAX_FAILED_LOOKUPS).contains(&self.failed_lookups)
    }

    /// Counts whether interpreter frames were found.
    pub(super) fn looked_for_frames(&mut self, found: bool) {
        self.failed_lookups = if found { 0 } else { self.failed_lookups.saturating_add(1) };
    }
}

/// The frame pointer that a thread had at a place in the code. The register cannot be read while the thread is blocked.
#[derive(Debug, Clone, Copy, Default)]
struct Site {
    sp: u64,
    pc: u64,
    frame_pointer: u64,
    /// The word above the saved frame pointer, a return address. If it has changed, the thread was called from
    /// elsewhere.
    above: u64,
}

impl ThreadState {
    /// The thread's id in its own PID namespace, and its thread pointer. An unknown pointer is looked up, once per
    /// tick.
    pub(super) fn key(&mut self, files: &ProcessFiles, slot: u64) -> ThreadKey {
        let id = self.identify(files);
        if self.pointer == 0 && self.searches > 0 && self.sought.replace(slot) != Some(slot) {
            self.searches -= 1;
            let list = robust_list(self.files.id);
            let read = |address, bytes: &mut [u8]| files.read_memory(address, bytes);
            let pointer = list.and_then(|list| arch::thread_pointer_by_list(list, id, read));
            self.pointer = pointer.unwrap_or(0);
        }
        ThreadKey { id, pointer: self.pointer }
    }

    pub(super) fn new(files: ThreadFiles, slot: u64, since: Instant, max_stack: usize) -> Self {
        Self {
            namespace_id: None,
            files,
            name: String::new(),
            pointer: 0,
            blocks: Blocks::default(),
            searches: SEARCHES,
            sought: None,
            last_seen: LastSeen::Unknown,
            idle_since: slot,
            blocked: Blocked::default(),
            stop_turn: StopTurn::Forbidden,
            copy_size: CopySize::new(max_stack),
            stopped_sp: None,
            alternate: None,
            sites: [Site::default(); SITES],
            next_site: 0,
            rescued: None,
            run_seen: None,
            batch_entry: None,
            run: None,
            ran: false,
            stopped: Duration::ZERO,
            ledger: ThreadLedger::new(since),
            sched: SchedStat::default(),
            switched: 0,
            moved: false,
            event: None,
            recording: None,
            subject: None,
            goes_on_until: 0,
            duty_cycle: DutyCycle::default(),
            lately: RecentRunTime::default(),
            user_bound: UserBound::default(),
            short_call: None,
        }
    }

    /// The thread's id in its own PID namespace.
    pub(super) fn identify(&mut self, files: &ProcessFiles) -> u32 {
        let task = files.task();
        let id = self.files.id;
        *self.namespace_id.get_or_insert_with(|| {
            self.files.status(task).map(|status| status.namespace_pid).filter(|own| *own != 0).unwrap_or(id)
        })
    }

    /// Reads the thread's name: the one that an interpreter gives it, or else the kernel's.
    pub(super) fn read_name(&mut self, interpreters: &mut Interpreters, files: &ProcessFiles, slot: u64) {
        let key = self.key(files, slot);
        let name = interpreters.thread_name(key, self.id() == files.pid(), files);
        if let Some(name) = name.or_else(|| self.files.name(files.task())) {
            self.name = name;
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.files.id
    }

    /// Whether readers read the rest of the thread's stack from memory when it is sampled.
    pub(super) fn goes_on(&self, slot: u64) -> bool {
        slot < self.goes_on_until
    }

    /// Returns the time in the kernel, in nanoseconds, in which the thread's events may not take samples. Each
    /// nanosecond is returned once.
    pub(super) fn take_skipped(&mut self) -> u64 {
        let open = self.event.as_mut().map_or(0, ThreadEvent::take_skipped);
        open.saturating_add(self.duty_cycle.take_skipped())
    }

    /// Ends the recording of the thread's switches.
    pub(super) fn end_recording(&mut self) {
        self.recording = None;
        self.ledger.without_records();
    }

    /// Closes the thread's event; `hides` says that it took no samples in the kernel. Returns whether there was an
    /// event.
    pub(super) fn close_event(&mut self, hides: bool) -> bool {
        self.end_recording();
        let event = self.event.take();
        self.subject = None;
        let had_one = event.is_some();
        if let Some(event) = event {
            self.duty_cycle.close(event, hides);
        }
        had_one
    }

    /// Computes from these counters how long the thread ran since the last examination.
    pub(super) fn count_run(&mut self, sched: SchedStat) {
        let before = self.run_seen.replace(sched.run_nano);
        let ran = sched.run_nano.saturating_sub(before.unwrap_or(sched.run_nano));
        self.moved = ran >= WORTH_AN_EVENT;
        self.sched = sched;
        self.ledger.note_counters(sched);
    }

    /// Called when the thread runs, or has run since it was examined.
    pub(super) fn is_active(&mut self, slot: u64) {
        self.last_seen = LastSeen::Running;
        self.idle_since = slot;
        self.run = None;
        self.ledger.runs();
        if let Some(recording) = &mut self.recording {
            recording.timeline.ready();
        }
    }

    /// Whether this stack pointer is on the alternate signal stack, so that the rest of the stack is elsewhere.
    pub(super) fn is_scattered(&self, sp: u64) -> bool {
        self.alternate.is_some_and(|alternate| alternate.abs_diff(sp) < ALTERNATE_STACK)
    }

    /// Stores a stack pointer that was on an alternate stack.
    pub(super) fn scattered(&mut self, sp: u64) {
        self.alternate = Some(sp);
    }

    /// Stores the frame pointer of a thread that is in a system call, or was in one until it was stopped.
    pub(super) fn saw_site(&mut self, registers: &Registers, mut word: impl FnMut(u64) -> Option<u64>) {
        let Some(frame_pointer) = registers.get(FRAME_POINTER) else { return };
        let site = Site {
            sp: registers.stack_pointer(),
            pc: registers.instruction_pointer(),
            frame_pointer,
            above: word(frame_pointer.wrapping_add(8)).unwrap_or(0),
        };
        let same = |other: &Site| (other.sp, other.pc) == (site.sp, site.pc);
        let index = self.sites.iter().position(same).unwrap_or_else(|| {
            self.next_site = (self.next_site + 1) % SITES;
            self.next_site
        });
        self.sites[index] = site;
    }

    /// The frame pointer that the thread had at this place before, if a word on the stack shows that it is unchanged.
    pub(super) fn frame_pointer(&self, sp: u64, pc: u64, mut word: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        let site = self.sites.iter().find(|site| site.above != 0 && (site.sp, site.pc) == (sp, pc))?;
        (word(site.frame_pointer.wrapping_add(8)) == Some(site.above)).then_some(site.frame_pointer)
    }

    /// Whether a blocked thread may be stopped for its registers now. If so, counts the stop.
    pub(super) fn may_be_rescued(&mut self, now: Instant) -> bool {
        let may = self.rescued.is_none_or(|last| now.saturating_duration_since(last) >= RESCUE_INTERVAL);
        if may {
            self.rescued = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::processors::tests::engine;

    /// Guarantees: a thread pointer is looked up once per tick, no matter how often it is needed, and only in a limited
    /// number of ticks.
    #[test]
    fn searches_for_pointers() {
        let mut engine = engine(std::process::id(), &|| {}, Instant::now(), false);
        let process = &mut engine.processes[0];
        let index = process.find_or_add_thread(nix::unistd::gettid().as_raw().unsigned_abs());
        let thread = &mut process.threads[index];
        let mut finds = |searches, sought, slot| {
            (thread.pointer, thread.searches, thread.sought) = (0, searches, sought);
            thread.key(&process.attached.files, slot).pointer != 0
        };
        assert!(finds(SEARCHES, None, 7));
        assert!(!finds(SEARCHES, Some(7), 7));
        assert!(finds(1, Some(7), 8));
        assert!(!finds(0, Some(7), 8));
    }
}
