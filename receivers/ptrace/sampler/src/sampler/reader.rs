//! Reads the memory of a sampled thread before it executes its next instruction.
//!
//! Frames that an interpreter keeps in its own memory, and parts of a stack that are missing in its copy, change as
//! soon as the thread continues. A reader is a thread that is bound to a processor and woken by the samples that are
//! taken there. The sampled thread has to leave the processor for the reader to run, and cannot run there while its
//! memory is read. For each reading it is checked that the thread did not run ([`StillEvidence`]).
//!
//! A reader only copies a limited amount of data: it names nothing. Only the thread that it keeps off its processor
//! waits for it.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::evidence::{KernelExitTime, Proof, StillEvidence};
use super::interpreters::{Interpreted, UNSTOPPED};
use super::rings::{Board, MemoryReading, ReadThread, RingItem, RunningSample, SharedRing};
use crate::os::signal::Waker;
use crate::os::{affinity, priority, time};
use crate::perf::open::count;
use crate::perf::record::{CpuMode, User};
use crate::stack_copy::StackPieces;
use crate::unwind::{Frame, Registers, Unwinder};

/// How long a reader waits if the sampling thread has locked the interpreters of the process to name frames.
const PATIENCE: Duration = Duration::from_micros(300);

/// The handle of a reader thread. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct SampleReader {
    pub(super) ring: Arc<SharedRing>,
    stopped: Arc<AtomicBool>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl SampleReader {
    /// Starts the reader of a processor. `waker` wakes the sampling thread.
    pub(super) fn start(ring: Arc<SharedRing>, board: Arc<Board>, waker: Option<Waker>) -> Result<Self, Errno> {
        let stopped = Arc::new(AtomicBool::new(false));
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(ring.event(), EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))?;
        epoll.add(wake.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, 1))?;
        let copier = Copier {
            ring: Arc::clone(&ring),
            board,
            waker,
            way_out: KernelExitTime::default(),
            unwinder: Unwinder::new(),
            frames: Vec::new(),
            spare: Vec::new(),
            buffer: Vec::new(),
            items: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("reader {}", ring.processor))
            .spawn({
                let stopped = Arc::clone(&stopped);
                move || copier.run(&epoll, &stopped)
            })
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        ring.set_read(true);
        Ok(Self { ring, stopped, wake, thread: Some(thread) })
    }
}

impl Drop for SampleReader {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        self.wake.write(1).ok();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        self.ring.set_read(false);
    }
}

/// The working data of a reader.
struct Copier {
    ring: Arc<SharedRing>,
    board: Arc<Board>,
    waker: Option<Waker>,
    way_out: KernelExitTime,
    unwinder: Unwinder,
    frames: Vec<Frame>,
    spare: Vec<StackPieces>,
    buffer: Vec<u8>,
    items: Vec<RingItem>,
}

impl Copier {
    fn run(mut self, epoll: &Epoll, stopped: &AtomicBool) {
        // If this thread cannot be bound, or sampled threads displace it, its readings are proven less often.
        affinity::bind(self.ring.processor);
        priority::raise_wakeup_priority();
        nix::sys::prctl::set_timerslack(1).ok();
        while !stopped.load(Ordering::Acquire) {
            let mut ready = [EpollEvent::empty(); 2];
            if epoll.wait(&mut ready, EpollTimeout::NONE).is_err_and(|error| error != Errno::EINTR) {
                break;
            }
            if catch_unwind(AssertUnwindSafe(|| self.step())).is_err() {
                self.items.clear();
                self.ring.passed_on();
            }
        }
    }

    fn step(&mut self) {
        let began = time::thread_cpu();
        self.board.exchange(&mut self.spare);
        self.ring.take_to_read(&mut self.spare, &mut self.buffer, &mut self.items);
        let mut charged = None;
        let mut urgent = false;
        let mut seen: Vec<u32> = Vec::new();
        // Only the newest sample of each thread is read: current memory does not belong to earlier ones.
        for index in (0..self.items.len()).rev() {
            let RingItem::Sample(sample) = &self.items[index] else { continue };
            if seen.contains(&sample.thread) {
                continue;
            }
            seen.push(sample.thread);
            let Some(subject) = self.board.subject(sample.thread) else { continue };
            self.read(index, &subject);
            urgent |= subject.process.is_urgent;
            charged = Some(subject);
        }
        self.board.pass_on(&mut self.items);
        self.ring.passed_on();
        if let Some(waker) = self.waker.filter(|_| urgent) {
            waker.wake();
        }
        if let Some(subject) = charged {
            let spent = u64::try_from(time::thread_cpu().saturating_sub(began).as_nanos()).unwrap_or(u64::MAX);
            subject.process.spent_nano.fetch_add(spent, Ordering::Relaxed);
        }
    }

    /// Reads the memory of a sampled thread.
    fn read(&mut self, index: usize, subject: &ReadThread) {
        let left = self.left(index);
        let Some(RingItem::Sample(sample)) = self.items.get_mut(index) else { return };
        let User::Registers(registers) = sample.user else { return };
        let event = subject.events.iter().find(|(processor, _)| *processor == sample.processor);
        let ran = || event.map_or(0, |(_, event)| count(event.as_fd()).1);
        let began = Instant::now();
        let before = ran();
        let mut interpreted = Interpreted::default();
        if let Some(mut interpreters) = patiently(&subject.process.interpreters) {
            interpreters.capture(
                subject.key,
                UNSTOPPED,
                &subject.process.files,
                Some(&sample.pieces),
                &mut interpreted,
            );
        }
        if subject.goes_on {
            let mut memory = sample.pieces.live(&subject.process.files, None);
            self.unwinder.unwind(&subject.process.space, &registers, &mut memory, &mut self.frames);
        }
        let worked = subject.contexts.as_ref().and_then(|(contexts, blocks)| {
            let mut blocks = patiently(blocks)?;
            Some(contexts.of_standing(subject.key.pointer, &mut blocks, &subject.process.files, began))
        });
        let after = ran();
        let evidence = StillEvidence {
            ran: [sample.ran_nano, before, after],
            mode: sample.mode,
            registers,
            processor: sample.processor,
            reader: affinity::here(),
            left,
            usual: self.way_out.usual(),
        };
        let proof = if event.is_some() { evidence.judge() } else { Proof::None };
        if sample.mode == CpuMode::User
            && let Some(ran) = before.checked_sub(sample.ran_nano)
        {
            self.way_out.note(ran);
        }
        if !proof.holds() {
            sample.pieces.forget_further();
        }
        sample.read =
            Some(MemoryReading { interpreted, worked, proof, behind: sample.at.elapsed(), held: began.elapsed() });
    }

    /// How long after a sample the thread left its processor, in nanoseconds, and its registers at that moment.
    fn left(&self, index: usize) -> Option<(u64, Registers)> {
        let (RingItem::Sample(RunningSample { thread, time_nano, .. }), later) =
            self.items.get(index..)?.split_first()?
        else {
            return None;
        };
        later.iter().find_map(|item| match item {
            RingItem::Leaving(left) if left.thread == *thread => {
                Some((left.time_nano.checked_sub(*time_nano)?, left.registers))
            }
            _ => None,
        })
    }
}

/// Takes a lock that others hold only for some microseconds. Waits only briefly, because the holder may be waiting for
/// this very processor.
fn patiently<T>(of: &Mutex<T>) -> Option<std::sync::MutexGuard<'_, T>> {
    let began = Instant::now();
    loop {
        match of.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if began.elapsed() < PATIENCE => std::hint::spin_loop(),
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}
