//! Stops a running thread: seizes it, asks it to stop, examines the thread once it has stopped for any reason, and
//! releases it.
//!
//! This never waits for a particular thread: [`request`] returns at once, and [`StoppedThread::next`] returns the
//! threads that have stopped. A thread stops when it is scheduled the next time. That can take long on a busy machine,
//! but the request does not delay the thread. The sampler does not stay attached, because every signal of the target
//! would then cause a stop.
//!
//! A stopped thread is released when its [`StoppedThread`] is released or dropped, so none can be forgotten. If the
//! sampler ends, the kernel releases all stopped threads.

use nix::errno::Errno;

use crate::arch::{self, RawRegisters};
use crate::os::ptrace;
use crate::os::wait::{self, Nobody, StopStatus};

/// The event number of a stop that does not deliver a signal (`PTRACE_EVENT_STOP`, linux/ptrace.h).
const PTRACE_EVENT_STOP: i32 = 128;

/// Why a thread was not asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopRefusal {
    Ended,
    /// The thread has another tracer, may not be traced, or is about to end.
    Denied,
}

/// Asks a running thread to stop. [`StoppedThread::next`] will return it, unless it ends.
///
/// # Errors
///
/// If the thread could not be seized. Nothing has to be undone then.
pub(crate) fn request(thread: u32) -> Result<(), StopRefusal> {
    match ptrace::seize(thread) {
        Ok(()) => {}
        Err(Errno::ESRCH) => return Err(StopRefusal::Ended),
        Err(_) => return Err(StopRefusal::Denied),
    }
    // This fails only if the thread has ended since, which [`reap_ended`] will find.
    ptrace::interrupt(thread).ok();
    Ok(())
}

/// A stopped thread. Dropping this lets it continue.
#[derive(Debug)]
pub(crate) struct StoppedThread {
    thread: u32,
    /// The signal that was about to be delivered, 0 for none.
    signal: i32,
}

impl StoppedThread {
    /// A thread that has stopped and was not returned yet. Does not wait.
    pub(crate) fn next() -> Option<Self> {
        wait::next_stop().map(Self::of)
    }

    fn of(status: StopStatus) -> Self {
        // Group-stops and requested stops deliver no signal; a process that a signal has stopped stays stopped.
        let signal = if status.event == PTRACE_EVENT_STOP { 0 } else { status.signal };
        Self { thread: status.thread, signal }
    }

    pub(crate) fn thread(&self) -> u32 {
        self.thread
    }

    /// The registers of the thread; `None` for a 32-bit thread. A system call that failed only because of the stop is
    /// restarted.
    pub(crate) fn registers(&self) -> Result<Option<RawRegisters>, Errno> {
        let Some(mut registers) = ptrace::registers(self.thread)? else { return Ok(None) };
        if arch::restart_interrupted_call(&mut registers) {
            // This fails only if the thread was killed.
            ptrace::set_registers(self.thread, &registers).ok();
        }
        Ok(Some(registers))
    }

    /// Releases the thread. Returns whether it is alive: a thread that was killed while it was stopped stays traced
    /// until it has ended and is reaped.
    pub(crate) fn release(self) -> bool {
        let held = std::mem::ManuallyDrop::new(self);
        ptrace::detach(held.thread, held.signal).is_ok()
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        ptrace::detach(self.thread, self.signal).ok();
    }
}

/// Reaps the traced threads that have ended, so that their real parents are notified. Threads for which `ended`
/// returns `true` are children of this program, and are left for the code that waits for them.
///
/// # Errors
///
/// If this thread no longer traces any thread, whatever stops it requested: a thread that calls exec continues with the
/// id of its process's first thread.
pub(crate) fn reap_ended(mut ended: impl FnMut(u32) -> bool) -> Result<(), Nobody> {
    let mut last = 0;
    while let Some(thread) = wait::next_ended()? {
        // The same thread is reported again until it is reaped.
        if thread == last {
            break;
        }
        last = thread;
        if !ended(thread) {
            wait::reap(thread);
        }
    }
    Ok(())
}
