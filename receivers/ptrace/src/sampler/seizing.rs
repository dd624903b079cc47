//! Frees the sampling thread from a program that waits for it.
//!
//! A thread that executes another program waits until all others of its process are gone, and one that is traced goes
//! only when its tracer reaps it. Meanwhile whoever asks to trace a thread of that process waits (the kernel's
//! `cred_guard_mutex`: `de_thread` in fs/exec.c waits with it held, `ptrace_attach` in kernel/ptrace.c wants it). The
//! sampling thread may have stopped one thread of a process when it asks for the next: then each waits for the other,
//! for ever, and the program is lost. So a second thread looks whether the first stays in that one call, and reaps for
//! it, which every thread of a tracer's program may do.

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

/// How often it is looked whether the sampling thread stays in one call: what it takes at most twice of is no wait of
/// this kind, which lasts for as long as it is let.
const LOOK: Duration = Duration::from_millis(20);

/// What both threads know.
#[derive(Debug, Default)]
struct Shared {
    /// Which call is made: its number in the upper half, the process that it is about in the lower one, 0 after it. Not
    /// the thread, which may be gone before the call returns.
    call: AtomicU64,
    /// The second thread does not look, and has to be woken.
    rests: AtomicBool,
    ended: AtomicBool,
}

/// The sampling thread's end. Dropped, it ends the second thread.
#[derive(Debug)]
pub(super) struct Seizing {
    shared: Arc<Shared>,
    calls: u64,
    watch: Option<JoinHandle<()>>,
}

impl Seizing {
    /// Starts the second thread, for calls of the calling one.
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let tracer = nix::unistd::gettid().as_raw().unsigned_abs();
        let watch = thread::Builder::new().name("sampling-watch".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || watch(&shared, tracer)
        })?;
        Ok(Self { shared, calls: 0, watch: Some(watch) })
    }

    /// Makes a call that asks to trace a thread of a process.
    pub(super) fn ask<T>(&mut self, process: u32, call: impl FnOnce() -> T) -> T {
        self.calls = self.calls.wrapping_add(1);
        let number = self.calls << 32;
        self.shared.call.store(number | u64::from(process), Ordering::SeqCst);
        if self.shared.rests.load(Ordering::SeqCst) {
            self.shared.rests.store(false, Ordering::SeqCst);
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
            // It does nothing that could panic.
            watch.join().ok();
        }
    }
}

fn watch(shared: &Shared, tracer: u32) {
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
            // No call since the last look. One that is begun from here on sees this, or is seen here.
            shared.rests.store(true, Ordering::SeqCst);
            if shared.call.load(Ordering::SeqCst) == call && !shared.ended.load(Ordering::SeqCst) {
                thread::park();
            }
            shared.rests.store(false, Ordering::SeqCst);
        }
        before = call;
    }
}

/// Reaps the threads of a process that ended and that `tracer` traces, but for the first one: its end is its parent's
/// to hear, and no program waits for it.
fn reap_of(process: u32, tracer: u32) {
    let Ok(tasks) = File::open(format!("/proc/{process}/task")) else { return };
    // What cannot be listed has gone.
    for_each_number(tasks.as_fd(), |id| {
        let Ok(status) = process_info::status(tasks.as_fd(), &format!("{id}/status")) else { return };
        if status.ended && status.tracer == tracer && id != process {
            wait::reap_for_another_thread(id);
        }
    })
    .ok();
}
