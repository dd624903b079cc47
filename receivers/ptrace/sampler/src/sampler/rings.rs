//! The rings of processors into which the events of threads write, and what was taken out of them.
//!
//! All events of threads on one processor share a ring. The sampling thread empties it with each tick, unless a reader
//! does at each sample (see `reader.rs`).

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
use super::contexts::{Blocks, Contexts, Worked};
use super::evidence::Proof;
use super::interpreters::{Interpreted, Interpreters};
use super::shortfall::Shortfall;
use super::timeline::Cause;
use crate::address_space::{AddressSpace, MapsEntry, recorded};
use crate::message::Location;
use crate::os::time::Clock;
use crate::perf::attr::EventAttr;
use crate::perf::open::{Failure, Lack, Opener, Subject as Opened};
use crate::perf::record::{Change, CpuMode, OnCpuSample, Record, Switched, User};
use crate::perf::ring::Ring;
use crate::process_files::ProcessFiles;
use crate::runtime::ThreadKey;
use crate::stack_copy::StackPieces;
use crate::unwind::Registers;

/// The size of a ring, in bytes: as much as the kernel lets everybody lock for each processor. A processor that is
/// always busy fills it in 0.3 seconds at the usual rate.
const RING: usize = 512 << 10;

/// How many items, and how many samples among them, wait for the sampling thread at most. Beyond that they are dropped,
/// and samples counted.
const MOST_ITEMS: usize = 8192;
const MOST_SAMPLES: usize = 1024;

/// The ring of one processor.
#[derive(Debug)]
pub(super) struct SharedRing {
    pub(super) processor: u32,
    /// The event that the ring belongs to; it counts nothing.
    event: OwnedFd,
    ring: Mutex<Ring>,
    /// Whether a reader empties it.
    is_read: AtomicBool,
    /// How often a reader emptied it.
    emptied: AtomicU64,
    /// Whether a reader works on what it took out.
    in_hand: AtomicBool,
}

impl SharedRing {
    /// The ring of a processor.
    pub(super) fn open(opener: &dyn Opener, processor: u32) -> Result<Self, Failure> {
        let subject = Opened::Thread { thread: gettid().as_raw().unsigned_abs(), processor: Some(processor) };
        let event =
            opener.open(&EventAttr::of_ring(), subject).map_err(|error| Failure::Exhausted(Lack::of_other(error)))?;
        let ring = Ring::map(event.as_fd(), RING).map_err(|error| {
            Failure::Exhausted(match error.raw_os_error() {
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

    /// The descriptor that is readable when a record wakes.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Whether a reader empties it.
    pub(super) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }

    pub(super) fn set_read(&self, is_read: bool) {
        self.is_read.store(is_read, Ordering::Release);
    }

    /// Takes what is in it to read the memory of sampled threads. Until [`SharedRing::passed_on`], nobody else takes what
    /// came later.
    pub(super) fn take_to_read(&self, spare: &mut Vec<StackPieces>, buffer: &mut Vec<u8>, items: &mut Vec<Item>) {
        let mut ring = lock(&self.ring);
        self.emptied.fetch_add(1, Ordering::Relaxed);
        self.in_hand.store(true, Ordering::Relaxed);
        empty(&mut ring, true, spare, buffer, items);
    }

    /// What a reader took is on the board.
    pub(super) fn passed_on(&self) {
        self.in_hand.store(false, Ordering::Release);
    }

    /// Takes what was passed on, and what is in the ring: where a reader empties it, up to the first sample, which is left
    /// to it unless it has not come since the ring was in this state `before`, or `all` is to be taken. Returns the state
    /// if something is left to a reader.
    pub(super) fn take(
        &self,
        board: &Board,
        (before, all): (Option<u64>, bool),
        spare: &mut Vec<StackPieces>,
        buffer: &mut Vec<u8>,
        items: &mut Vec<Item>,
    ) -> Option<u64> {
        let mut ring = lock(&self.ring);
        let emptied = self.emptied.load(Ordering::Relaxed);
        let in_hand = self.in_hand.load(Ordering::Acquire);
        // Records of one ring are taken in their order.
        board.take(items);
        let with_samples = all || !self.is_read() || before == Some(emptied);
        if with_samples || !in_hand {
            empty(&mut ring, with_samples, spare, buffer, items);
        }
        (in_hand || !ring.is_empty()).then_some(emptied)
    }
}

/// Takes what is in a ring, or what is before its first sample.
fn empty(
    ring: &mut Ring,
    with_samples: bool,
    spare: &mut Vec<StackPieces>,
    buffer: &mut Vec<u8>,
    items: &mut Vec<Item>,
) {
    if ring.is_empty() {
        return;
    }
    let clock = Clock::now();
    let (_, shortfall) = Shortfall::drain_until(
        ring,
        |_| true,
        buffer,
        |record| {
            if !with_samples && matches!(record, Record::Sample(_)) {
                return ControlFlow::Break(());
            }
            items.extend(Item::of(&record, spare, clock));
            ControlFlow::Continue(())
        },
    );
    if shortfall != Shortfall::default() {
        items.push(Item::Missing(shortfall));
    }
}

/// What was taken out of a ring.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "most are samples")]
pub(super) enum Item {
    /// A thread ran.
    Sample(Sampled),
    /// A thread is about to leave its processor.
    Leaving(Left),
    /// A thread that waited for a processor runs again.
    Resumed(Sampled),
    /// Something else happened to a thread.
    Happened(Happened),
    /// A process has mapped executable memory.
    Mapped {
        /// Its id.
        process: u32,
        /// When.
        at: Instant,
        /// What.
        entry: MapsEntry,
    },
    /// Records are missing.
    Missing(Shortfall),
}

/// A sample of a thread that ran.
#[derive(Debug)]
pub(super) struct Sampled {
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
    pub(super) read: Option<Reading>,
}

/// What was read of a thread's memory behind its sample.
#[derive(Debug)]
pub(super) struct Reading {
    /// Its frames in an interpreter.
    pub(super) interpreted: Interpreted,
    /// What it works on, where its process shows that.
    pub(super) worked: Option<Worked>,
    /// Whether they, and what was read of its stack beyond the copy, belong to the sample.
    pub(super) proof: Proof,
    /// How long after the sample they had been read.
    pub(super) behind: Duration,
    /// For how long the thread was kept from its processor for this.
    pub(super) held: Duration,
}

/// The registers and the innermost part of the stack of a thread that leaves its processor.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) time_nano: u64,
    pub(super) at: Instant,
    pub(super) registers: Registers,
    pub(super) stack: Vec<u8>,
}

/// Something that happened to a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Happened {
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) at: Instant,
    pub(super) what: What,
}

/// What it was.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    /// It was given a processor.
    In,
    /// It left the processor.
    Out(Cause),
    /// It runs, and was given its processor at this time.
    Runs,
    /// It left the processor that it had been given at this moment, where that is known.
    Turn(Option<Instant>, Cause),
    /// It was started.
    Started,
    /// It ended.
    Ended,
}

impl Left {
    /// The sample of a thread that leaves its processor; `None` if it has no registers.
    pub(super) fn of(sample: &OnCpuSample<'_>, clock: Clock) -> Option<Self> {
        let User::Registers(registers) = sample.user else { return None };
        let &OnCpuSample { process, thread, time_nano, stack, .. } = sample;
        let at = clock.instant_of(time_nano);
        Some(Self { process, thread, time_nano, at, registers, stack: stack.to_vec() })
    }
}

impl Happened {
    /// What a record says that is no sample.
    pub(super) fn of(record: &Record<'_>, clock: Clock) -> Option<Self> {
        let (process, thread, time_nano, what) = match *record {
            Record::Switched(Switched { process, thread, time_nano, change, .. }) => {
                let what = match change {
                    Change::In => What::In,
                    Change::Out { preempted: true } => What::Out(Cause::Preempted),
                    Change::Out { preempted: false } => What::Out(Cause::Blocked),
                };
                (process, thread, time_nano, what)
            }
            Record::Started { process, thread, time_nano } => (process, thread, time_nano, What::Started),
            Record::Ended { process, thread, time_nano } => (process, thread, time_nano, What::Ended),
            _ => return None,
        };
        Some(Self { process, thread, at: clock.instant_of(time_nano), what })
    }
}

impl Item {
    fn of(record: &Record<'_>, spare: &mut Vec<StackPieces>, clock: Clock) -> Option<Self> {
        match record {
            Record::Sample(sample) => Some(Self::Sample(Sampled::of(sample, spare.pop().unwrap_or_default(), clock))),
            Record::Leaving(sample) => Left::of(sample, clock).map(Self::Leaving),
            Record::Resumed(sample) => Some(Self::Resumed(Sampled::of(sample, spare.pop().unwrap_or_default(), clock))),
            Record::Mapped(mapped) => {
                let (process, at) = (mapped.process, clock.instant_of(mapped.time_nano));
                recorded(mapped).map(|entry| Self::Mapped { process, at, entry })
            }
            record => Happened::of(record, clock).map(Self::Happened),
        }
    }
}

impl Sampled {
    /// A sample, with its stack copied into these pieces.
    pub(super) fn of(sample: &OnCpuSample<'_>, mut pieces: StackPieces, clock: Clock) -> Self {
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

/// The kernel's call chain: where the thread was, then the calls that led there. Return addresses are moved back into
/// their calls.
fn kernel(sample: &OnCpuSample<'_>) -> impl Iterator<Item = Location> {
    let addresses = sample.kernel.addresses().enumerate();
    addresses.map(|(depth, address)| Location::kernel(if depth == 0 { address } else { address.wrapping_sub(1) }))
}

/// A process whose threads are read at their samples.
#[derive(Debug)]
pub(super) struct ReadProcess {
    pub(super) files: Arc<ProcessFiles>,
    pub(super) interpreters: Arc<Mutex<Interpreters>>,
    pub(super) space: Arc<AddressSpace>,
    /// Whether the sampling thread is to name its functions at once, since their names move in memory.
    pub(super) is_urgent: bool,
    /// The processor time that readers used for it and that was not charged yet, in nanoseconds.
    pub(super) spent_nano: AtomicU64,
}

/// A thread that is read at its samples.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) process: Arc<ReadProcess>,
    pub(super) key: ThreadKey,
    /// Its events by processor, whose counts tell whether it ran.
    pub(super) events: Vec<(u32, Arc<OwnedFd>)>,
    /// Whether its stack went on beyond its copy lately, so that it is followed in memory.
    pub(super) goes_on: bool,
    /// Where its process shows what its threads work on, where it does, and where this thread has it.
    pub(super) contexts: Option<(Contexts, Mutex<Blocks>)>,
}

/// What the readers and the sampling thread share.
#[derive(Debug, Default)]
pub(super) struct Board {
    subjects: Mutex<HashMap<u32, Weak<Subject>, RandomState>>,
    items: Mutex<Vec<Item>>,
    spare: Mutex<Vec<StackPieces>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// From now on this thread is read at its samples, for as long as the subject lives.
    pub(super) fn show(&self, thread: u32, subject: &Arc<Subject>) {
        let mut subjects = lock(&self.subjects);
        if subjects.len() == subjects.capacity() {
            subjects.retain(|_, subject| subject.strong_count() > 0);
        }
        subjects.insert(thread, Arc::downgrade(subject));
    }

    /// What is known of a thread that is read at its samples.
    pub(super) fn subject(&self, thread: u32) -> Option<Arc<Subject>> {
        lock(&self.subjects).get(&thread).and_then(Weak::upgrade)
    }

    /// Passes items to the sampling thread.
    pub(super) fn pass_on(&self, items: &mut Vec<Item>) {
        let mut waiting = lock(&self.items);
        let is_sample = |item: &Item| matches!(item, Item::Sample(_));
        let mut samples = waiting.iter().filter(|item| is_sample(item)).count();
        let mut dropped = 0;
        for item in items.drain(..) {
            let fits = waiting.len() < MOST_ITEMS && (!is_sample(&item) || samples < MOST_SAMPLES);
            dropped += u64::from(is_sample(&item) && !fits);
            samples += usize::from(is_sample(&item) && fits);
            waiting.extend(fits.then_some(item));
        }
        if dropped > 0 {
            waiting.push(Item::Missing(Shortfall::of_lost(dropped)));
        }
    }

    /// Takes the items that were passed on.
    pub(super) fn take(&self, items: &mut Vec<Item>) {
        items.append(&mut lock(&self.items));
    }

    /// Gives buffers back to be used again, or takes some.
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

    /// Guarantees: where a ring has a reader, a tick takes what comes before the first sample, and leaves the sample to
    /// the reader unless that has not come since the tick before; nothing is taken past records that the reader has not
    /// passed on yet.
    #[test]
    fn beside_a_reader() {
        let (board, mut spare, mut buffer) = (Board::default(), Vec::new(), Vec::new());
        let mut take = |ring: &SharedRing, before| {
            let mut items = Vec::new();
            let left = ring.take(&board, (before, false), &mut spare, &mut buffer, &mut items);
            let kinds: String =
                items.iter().map(|item| if matches!(item, Item::Sample(_)) { 's' } else { 'w' }).collect();
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
