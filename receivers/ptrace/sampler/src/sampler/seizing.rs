//! Frees the sampling thread from a deadlock with a target that executes another program.
//!
//! A thread that calls exec waits until all other threads of its process have been released, and a traced thread is
//! released only when its tracer reaps it. Meanwhile, a request to trace any thread of the process blocks too (the
//! kernel's `cred_guard_mutex`: `de_thread` in fs/exec.c waits while holding it, `ptrace_attach` in kernel/ptrace.c
//! takes it). If the sampling thread has stopped one thread of the process and asks for the next, each waits for the
//! other for ever, and the program hangs. So a second thread checks whether the sampling thread stays in one call, and
//! then reaps in its place, as every thread of a tracer's process may do.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::os::directory::for_each_number;
use crate::os::wait;
use crate::process_info;

/// How often the second thread checks whether the sampling thread is still in the same call. A deadlock would never
/// end, so calls shorter than twice this time need no help.
const LOOK: Duration = Duration::from_millis(20);

/// The data that both threads share.
#[derive(Debug, Default)]
struct SeizeQueue {
    /// The current call: its number in the upper half, and in the lower half the id of the process, or 0 after the
    /// call. The thread's id is not used, because the thread may be gone before the call returns.
    call: AtomicU64,
    /// Whether the second thread sleeps until it is woken.
    is_asleep: AtomicBool,
    ended: AtomicBool,
}

/// The handle of the sampling thread. Dropping it ends the second thread.
#[derive(Debug)]
pub(super) struct Seizing {
    shared: Arc<SeizeQueue>,
    calls: u64,
    watch: Option<JoinHandle<()>>,
}

impl Seizing {
    /// Starts the second thread, which watches calls of the calling thread.
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(SeizeQueue::default());
        let tracer = nix::unistd::gettid().as_raw().unsigned_abs();
        let watch = thread::Builder::new().name("sampling-watch".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || watch(&shared, tracer)
        })?;
        Ok(Self { shared, calls: 0, watch: Some(watch) })
    }

    /// Runs `call`, which asks to trace a thread of `process`.
    pub(super) fn ask<T>(&mut self, process: u32, call: impl FnOnce() -> T) -> T {
        self.calls = self.calls.wrapping_add(1);
        let number = self.calls << 32;
        self.shared.call.store(number | u64::from(process), Ordering::SeqCst);
        if self.shared.is_asleep.load(Ordering::SeqCst) {
            self.shared.is_asleep.store(false, Ordering::SeqCst);
            self.wake();
        }
        let result = call();
        self.shared.call.store(number, Ordering::SeqCst);
        result
    }

    fn wake(&self) {
        if let Some(watch) = &self.watch {
            watch.thread().unpark();
        }
    }
}

impl Drop for Seizing {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.wake();
        if let Some(watch) = self.watch.take() {
            // Joining fails only if the thread panicked, and nothing in that thread can panic.
            watch.join().ok();
        }
    }
}

fn watch(shared: &SeizeQueue, tracer: u32) {
    let mut before = 0;
    while !shared.ended.load(Ordering::SeqCst) {
        let call = shared.call.load(Ordering::SeqCst);
        let process = u32::try_from(call & u64::from(u32::MAX)).unwrap_or(0);
        if call != before {
            thread::park_timeout(LOOK);
        } else if process != 0 {
            reap_of(process, tracer);
            thread::park_timeout(LOOK);
        } else {
            // There was no call since the last check. A call that begins now either sees `is_asleep`, or is seen
            // by the check below.
            shared.is_asleep.store(true, Ordering::SeqCst);
            if shared.call.load(Ordering::SeqCst) == call && !shared.ended.load(Ordering::SeqCst) {
                thread::park();
            }
            shared.is_asleep.store(false, Ordering::SeqCst);
        }
        before = call;
    }
}

/// Reaps the threads of a process that have ended and are traced by `tracer`. The main thread is left out: the parent
/// process has to see its end, and no exec waits for it.
fn reap_of(process: u32, tracer: u32) {
    let Ok(tasks) = File::open(format!("/proc/{process}/task")) else { return };
    // Listing fails only if the process is gone.
    for_each_number(tasks.as_fd(), |id| {
        let Ok(status) = process_info::status(tasks.as_fd(), &format!("{id}/status")) else { return };
        if status.ended && status.tracer == tracer && id != process {
            wait::reap_for_another_thread(id);
        }
    })
    .ok();
}
