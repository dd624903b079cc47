//! The ring buffers into which the events of threads write, one per processor, and the records read from them.
//!
//! All events of threads on one processor share a ring. The sampling thread empties the ring in each tick, unless a
//! reader empties it at each sample (see `reader.rs`).

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use nix::errno::Errno;
use nix::unistd::gettid;

use super::captures::MOST_CAPTURED;
use super::contexts::{Blocks, ProcessContexts, TraceContextReading};
use super::evidence::Proof;
use super::interpreters::{Interpreted, Interpreters};
use super::shortfall::Shortfall;
use super::timeline::Cause;
use crate::address_space::{AddressSpace, MapsEntry, recorded};
use crate::message::Location;
use crate::os::time::ClockPair;
use crate::perf::attr::EventAttr;
use crate::perf::open::{EventSubject as Opened, Lack, OpenFailure, Opener};
use crate::perf::record::{CpuMode, OnCpuSample, Record, Switched, ThreadSwitch, User};
use crate::perf::ring::Ring;
use crate::process_files::ProcessFiles;
use crate::runtime::ThreadKey;
use crate::stack_copy::StackPieces;
use crate::unwind::Registers;

/// The size of a ring, in bytes: the kernel lets every user lock this much per processor. A processor that is always
/// busy fills it in 0.3 seconds at the usual rate.
const RING: usize = 512 << 10;

/// How many items, and how many samples among them, may wait for the sampling thread. Further items are dropped, and
/// dropped samples are counted.
const MOST_ITEMS: usize = 8192;
const MOST_SAMPLES: usize = 1024;

/// The ring of one processor.
#[derive(Debug)]
pub(super) struct SharedRing {
    pub(super) processor: u32,
    /// The event to which the ring belongs; the event itself counts nothing.
    event: OwnedFd,
    ring: Mutex<Ring>,
    /// Whether a reader empties the ring.
    is_read: AtomicBool,
    /// How often a reader has emptied the ring.
    emptied: AtomicU64,
    /// Whether a reader is still processing the records that it has read.
    in_hand: AtomicBool,
}

impl SharedRing {
    /// Opens the ring of a processor.
    pub(super) fn open(opener: &dyn Opener, processor: u32) -> Result<Self, OpenFailure> {
        let subject = Opened::Thread { thread: gettid().as_raw().unsigned_abs(), processor: Some(processor) };
        let event = opener
            .open(&EventAttr::of_ring(), subject)
            .map_err(|error| OpenFailure::Exhausted(Lack::of_other(error)))?;
        let ring = Ring::map(event.as_fd(), RING).map_err(|error| {
            OpenFailure::Exhausted(match error.raw_os_error() {
                Some(libc::EPERM) => Lack::LockedMemory,
                error => Lack::of_other(Errno::from_raw(error.unwrap_or(libc::EIO))),
            })
        })?;
        Ok(Self {
            processor,
            event,
            ring: Mutex::new(ring),
            is_read: AtomicBool::new(false),
            emptied: AtomicU64::new(0),
            in_hand: AtomicBool::new(false),
        })
    }

    /// The descriptor that becomes readable when a record wakes the reader.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Whether a reader empties the ring.
    pub(super) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }

    pub(super) fn set_read(&self, is_read: bool) {
        self.is_read.store(is_read, Ordering::Release);
    }

    /// Reads all records for a reader, which then reads the memory of the sampled threads. Until the reader calls
    /// [`SharedRing::passed_on`], the sampling thread normally leaves later records in the ring, so that records stay
    /// in order.
    pub(super) fn take_to_read(&self, spare: &mut Vec<StackPieces>, buffer: &mut Vec<u8>, items: &mut Vec<RingItem>) {
        let mut ring = lock(&self.ring);
        self.emptied.fetch_add(1, Ordering::Relaxed);
        self.in_hand.store(true, Ordering::Relaxed);
        empty(&mut ring, true, spare, buffer, items);
    }

    /// Called when the reader has put its items on the board.
    pub(super) fn passed_on(&self) {
        self.in_hand.store(false, Ordering::Release);
    }

    /// Takes the items that readers passed on, and reads the records in the ring. If the ring has a reader, only
    /// records before the first sample are read: the sample is left to the reader, unless the reader has not emptied
    /// the ring since the last call, which returned `before`, or `all` is set. Returns how often the reader has emptied
    /// the ring, if something is left for it.
    pub(super) fn drain_for_tick(
        &self,
        board: &Board,
        (before, all): (Option<u64>, bool),
        spare: &mut Vec<StackPieces>,
        buffer: &mut Vec<u8>,
        items: &mut Vec<RingItem>,
    ) -> Option<u64> {
        let mut ring = lock(&self.ring);
        let emptied = self.emptied.load(Ordering::Relaxed);
        let in_hand = self.in_hand.load(Ordering::Acquire);
        // The items of a ring have to stay in order.
        board.drain(items);
        let with_samples = all || !self.is_read() || before == Some(emptied);
        if with_samples || !in_hand {
            empty(&mut ring, with_samples, spare, buffer, items);
        }
        (in_hand || !ring.is_empty()).then_some(emptied)
    }
}

/// Reads all records of a ring, or only those before its first sample.
fn empty(
    ring: &mut Ring,
    with_samples: bool,
    spare: &mut Vec<StackPieces>,
    buffer: &mut Vec<u8>,
    items: &mut Vec<RingItem>,
) {
    if ring.is_empty() {
        return;
    }
    let clock = ClockPair::now();
    let (_, shortfall) = Shortfall::drain_until(
        ring,
        |_| true,
        buffer,
        |record| {
            if !with_samples && matches!(record, Record::Sample(_)) {
                return ControlFlow::Break(());
            }
            items.extend(RingItem::from_record(&record, spare, clock));
            ControlFlow::Continue(())
        },
    );
    if shortfall != Shortfall::default() {
        items.push(RingItem::Missing(shortfall));
    }
}

/// A record read from a ring, in the form that the sampling thread needs.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "most are samples")]
pub(super) enum RingItem {
    /// A thread ran.
    Sample(RunningSample),
    /// A thread is about to leave its processor.
    Leaving(LeavingSample),
    /// A thread that waited for a processor has resumed.
    Resumed(RunningSample),
    /// A thread was started or ended, or was given a processor or left it.
    Changed(ThreadChange),
    /// A process has mapped executable memory.
    Mapped {
        /// The process id.
        process: u32,
        /// The time of the mapping.
        at: Instant,
        /// The mapping.
        entry: MapsEntry,
    },
    /// Records are missing.
    Missing(Shortfall),
}

/// A sample of a thread that ran.
#[derive(Debug)]
pub(super) struct RunningSample {
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) processor: u32,
    pub(super) at: Instant,
    pub(super) time_nano: u64,
    /// See [`OnCpuSample::ran_nano`].
    pub(super) ran_nano: u64,
    pub(super) mode: CpuMode,
    pub(super) kernel: Vec<Location>,
    pub(super) user: User,
    pub(super) pieces: StackPieces,
    pub(super) read: Option<MemoryReading>,
}

/// Data that was read from a thread's memory after its sample.
#[derive(Debug)]
pub(super) struct MemoryReading {
    /// The interpreter frames of the thread.
    pub(super) interpreted: Interpreted,
    /// The trace context of the thread, if its process publishes contexts.
    pub(super) worked: Option<TraceContextReading>,
    /// Whether this data, and the part of the stack that was read beyond the copy, is valid for the sample.
    pub(super) proof: Proof,
    /// The time from the sample until the data had been read.
    pub(super) behind: Duration,
    /// For how long the thread was kept off its processor by this reading.
    pub(super) held: Duration,
}

/// The registers and the innermost part of the stack of a thread that leaves its processor.
#[derive(Debug)]
pub(super) struct LeavingSample {
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) time_nano: u64,
    pub(super) at: Instant,
    pub(super) registers: Registers,
    pub(super) stack: Vec<u8>,
}

/// A switch, a start or an end of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadChange {
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) at: Instant,
    pub(super) what: ThreadChangeKind,
}

/// The kind of event.
#[derive(Debug, Clone, Copy)]
pub(super) enum ThreadChangeKind {
    /// The thread was given a processor.
    In,
    /// The thread left its processor.
    Out(Cause),
    /// The thread runs, and was given its processor at the event's time.
    Runs,
    /// The thread left its processor; also the time at which it was given the processor, if known.
    Turn(Option<Instant>, Cause),
    /// The thread was started.
    Started,
    Ended,
}

impl LeavingSample {
    /// Converts the sample of a thread that leaves its processor; `None` if the sample has no registers.
    pub(super) fn from_sample(sample: &OnCpuSample<'_>, clock: ClockPair) -> Option<Self> {
        let User::Registers(registers) = sample.user else { return None };
        let &OnCpuSample { process, thread, time_nano, stack, .. } = sample;
        let at = clock.instant_of(time_nano);
        Some(Self { process, thread, time_nano, at, registers, stack: stack.to_vec() })
    }
}

impl ThreadChange {
    /// Converts a record that is not a sample; `None` for other records.
    pub(super) fn from_record(record: &Record<'_>, clock: ClockPair) -> Option<Self> {
        let (process, thread, time_nano, what) = match *record {
            Record::Switched(Switched { process, thread, time_nano, change, .. }) => {
                let what = match change {
                    ThreadSwitch::In => ThreadChangeKind::In,
                    ThreadSwitch::Out { preempted: true } => ThreadChangeKind::Out(Cause::Preempted),
                    ThreadSwitch::Out { preempted: false } => ThreadChangeKind::Out(Cause::Blocked),
                };
                (process, thread, time_nano, what)
            }
            Record::Started { process, thread, time_nano } => (process, thread, time_nano, ThreadChangeKind::Started),
            Record::Ended { process, thread, time_nano } => (process, thread, time_nano, ThreadChangeKind::Ended),
            _ => return None,
        };
        Some(Self { process, thread, at: clock.instant_of(time_nano), what })
    }
}

impl RingItem {
    fn from_record(record: &Record<'_>, spare: &mut Vec<StackPieces>, clock: ClockPair) -> Option<Self> {
        match record {
            Record::Sample(sample) => {
                Some(Self::Sample(RunningSample::from_sample(sample, spare.pop().unwrap_or_default(), clock)))
            }
            Record::Leaving(sample) => LeavingSample::from_sample(sample, clock).map(Self::Leaving),
            Record::Resumed(sample) => {
                Some(Self::Resumed(RunningSample::from_sample(sample, spare.pop().unwrap_or_default(), clock)))
            }
            Record::Mapped(mapped) => {
                let (process, at) = (mapped.process, clock.instant_of(mapped.time_nano));
                recorded(mapped).map(|entry| Self::Mapped { process, at, entry })
            }
            record => ThreadChange::from_record(record, clock).map(Self::Changed),
        }
    }
}

impl RunningSample {
    /// Converts a sample, and copies its stack into `pieces`.
    pub(super) fn from_sample(sample: &OnCpuSample<'_>, mut pieces: StackPieces, clock: ClockPair) -> Self {
        if let User::Registers(registers) = sample.user {
            pieces.take(registers.stack_pointer(), sample.stack);
        }
        Self {
            process: sample.process,
            thread: sample.thread,
            processor: sample.processor,
            at: clock.instant_of(sample.time_nano),
            time_nano: sample.time_nano,
            ran_nano: sample.ran_nano,
            mode: sample.mode,
            kernel: kernel(sample).collect(),
            user: sample.user,
            pieces,
            read: None,
        }
    }
}

/// The kernel's call chain: the current instruction, then the calls that led there. Return addresses are moved into the
/// call instructions before them.
fn kernel(sample: &OnCpuSample<'_>) -> impl Iterator<Item = Location> {
    let addresses = sample.kernel.addresses().enumerate();
    addresses.map(|(depth, address)| Location::kernel(if depth == 0 { address } else { address.wrapping_sub(1) }))
}

/// A process whose threads are read when they are sampled.
#[derive(Debug)]
pub(super) struct ReadProcess {
    pub(super) files: Arc<ProcessFiles>,
    pub(super) interpreters: Arc<Mutex<Interpreters>>,
    pub(super) space: Arc<AddressSpace>,
    /// Whether the sampling thread has to name functions at once, since the interpreter moves function names in memory.
    pub(super) is_urgent: bool,
    /// The CPU time that readers have used for the process and that was not charged yet, in nanoseconds.
    pub(super) spent_nano: AtomicU64,
}

/// A thread that is read when it is sampled.
#[derive(Debug)]
pub(super) struct ReadThread {
    pub(super) process: Arc<ReadProcess>,
    pub(super) key: ThreadKey,
    /// The thread's events by processor. Their counts show whether the thread has run.
    pub(super) events: Vec<(u32, Arc<OwnedFd>)>,
    /// Whether a recent stack was longer than its copy, so that the rest of the stack is read from memory.
    pub(super) goes_on: bool,
    /// Where the process publishes trace contexts, and where this thread has its own.
    pub(super) contexts: Option<(ProcessContexts, Mutex<Blocks>)>,
}

/// Data shared by the readers and the sampling thread.
#[derive(Debug, Default)]
pub(super) struct Board {
    subjects: Mutex<HashMap<u32, Weak<ReadThread>, RandomState>>,
    items: Mutex<Vec<RingItem>>,
    spare: Mutex<Vec<StackPieces>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// Makes readers read this thread at its samples from now on, until `subject` is dropped.
    pub(super) fn show(&self, thread: u32, subject: &Arc<ReadThread>) {
        let mut subjects = lock(&self.subjects);
        if subjects.len() == subjects.capacity() {
            subjects.retain(|_, subject| subject.strong_count() > 0);
        }
        subjects.insert(thread, Arc::downgrade(subject));
    }

    /// The description of a thread that is to be read when it is sampled.
    pub(super) fn subject(&self, thread: u32) -> Option<Arc<ReadThread>> {
        lock(&self.subjects).get(&thread).and_then(Weak::upgrade)
    }

    /// Passes items to the sampling thread.
    pub(super) fn pass_on(&self, items: &mut Vec<RingItem>) {
        let mut waiting = lock(&self.items);
        let is_sample = |item: &RingItem| matches!(item, RingItem::Sample(_));
        let mut samples = waiting.iter().filter(|item| is_sample(item)).count();
        let mut dropped = 0;
        for item in items.drain(..) {
            let fits = waiting.len() < MOST_ITEMS && (!is_sample(&item) || samples < MOST_SAMPLES);
            dropped += u64::from(is_sample(&item) && !fits);
            samples += usize::from(is_sample(&item) && fits);
            waiting.extend(fits.then_some(item));
        }
        if dropped > 0 {
            waiting.push(RingItem::Missing(Shortfall::of_lost(dropped)));
        }
    }

    /// Takes the items that readers passed on.
    pub(super) fn drain(&self, items: &mut Vec<RingItem>) {
        items.append(&mut lock(&self.items));
    }

    /// Balances the spare buffers between `spare` and the board, so that readers and the sampling thread can both reuse
    /// them.
    pub(super) fn exchange(&self, spare: &mut Vec<StackPieces>) {
        let mut shared = lock(&self.spare);
        let all = shared.len() + spare.len();
        let kept = (all / 2).min(MOST_CAPTURED);
        shared.append(spare);
        shared.truncate(2 * MOST_CAPTURED);
        let rest = shared.len().saturating_sub(kept);
        spare.extend(shared.drain(rest..));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(is_read: bool) -> SharedRing {
        SharedRing {
            processor: 0,
            event: std::fs::File::open("/dev/null").unwrap().into(),
            ring: Mutex::new(crate::perf::ring::tests::switch_and_sample()),
            is_read: AtomicBool::new(is_read),
            emptied: AtomicU64::new(0),
            in_hand: AtomicBool::new(false),
        }
    }

    /// Guarantees: if a ring has a reader, a tick takes the records before the first sample and leaves the sample to
    /// the reader, unless the reader has not emptied the ring since the previous tick; and no record is taken before
    /// those that the reader is still processing.
    #[test]
    fn beside_a_reader() {
        let (board, mut spare, mut buffer) = (Board::default(), Vec::new(), Vec::new());
        let mut take = |ring: &SharedRing, before| {
            let mut items = Vec::new();
            let left = ring.drain_for_tick(&board, (before, false), &mut spare, &mut buffer, &mut items);
            let kinds: String =
                items.iter().map(|item| if matches!(item, RingItem::Sample(_)) { 's' } else { 'w' }).collect();
            (kinds, left)
        };
        assert_eq!(take(&ring(false), None), ("ws".to_owned(), None));
        let slow = ring(true);
        assert_eq!(take(&slow, None), ("w".to_owned(), Some(0)));
        assert_eq!(take(&slow, Some(0)), ("s".to_owned(), None));
        let busy = ring(true);
        let mut items = Vec::new();
        busy.take_to_read(&mut Vec::new(), &mut Vec::new(), &mut items);
        *lock(&busy.ring) = crate::perf::ring::tests::switch_and_sample();
        assert_eq!(take(&busy, None), (String::new(), Some(1)));
        board.pass_on(&mut items);
        busy.passed_on();
        assert_eq!(take(&busy, None), ("wsw".to_owned(), Some(1)));
    }
}
