//! Samples, releases and reaps threads that have stopped, or that ended after they were asked to stop.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use super::captures::StopCapture;
use super::run::Engine;
use super::states::PendingCheck;
use crate::process_info;
use crate::stop::{self, StoppedThread};

/// How often to check whether threads that were asked to stop have ended, since no signal may announce that.
pub(super) const REAP: Duration = Duration::from_millis(10);

impl Engine<'_> {
    /// Samples all threads that have stopped, and releases them. Does not detach processes.
    pub(super) fn harvest(&mut self) {
        if self.pending_stops.is_empty() {
            return;
        }
        loop {
            let Some(stopped) = StoppedThread::next() else {
                self.noticed = Instant::now();
                return;
            };
            let stop = self.pending_stops.remove(&stopped.thread());
            let found = stop.and_then(|stop| Some((stop, self.find(stop.process)?)));
            let Some((stop, index)) = found else {
                // The thread's stack is not needed, but reading the registers also restarts a system call that the stop
                // interrupted.
                stopped.registers().ok();
                let thread = stopped.thread();
                if !stopped.release() {
                    self.pending_stops.insert(thread, stop.unwrap_or_default());
                }
                continue;
            };
            let current = self.current.replace(stop.process);
            let process = &mut self.processes[index];
            let thread = stopped.thread();
            process.stop_ended(thread);
            let taken = self.captures.capture_stopped(process, stopped, stop, self.noticed, &mut self.unwinder);
            self.noticed = Instant::now();
            match taken {
                StopCapture::Stack => {}
                StopCapture::Killed => {
                    process.concern.may_be_gone();
                    self.pending_stops.insert(thread, stop);
                }
                StopCapture::Architecture => process.concern = PendingCheck::OtherArchitecture,
            }
            self.report_cut_call(index);
            self.current = current;
            self.make_room();
            if self.pending_stops.is_empty() {
                return;
            }
        }
    }

    /// Drops the pending stops when this thread no longer traces any thread: a thread that executes another program
    /// takes over the id of its process's first thread.
    fn forget_pending_stops(&mut self) {
        for (thread, stop) in std::mem::take(&mut self.pending_stops) {
            if let Some(index) = self.find(stop.process) {
                let process = &mut self.processes[index];
                process.concern.may_be_gone();
                process.stop_ended(thread);
            }
        }
    }

    /// Reaps the threads that ended before they could be released: only then do their parents learn of their end.
    pub(super) fn reap(&mut self, now: Instant) {
        if self.pending_stops.is_empty() || now < self.ends_due {
            return;
        }
        self.ends_due = now + REAP;
        let own = std::process::id();
        let (pending_stops, processes) = (&mut self.pending_stops, &mut self.processes);
        let reaped = stop::reap_ended(|thread| {
            let stop = pending_stops.remove(&thread);
            let process =
                stop.and_then(|stop| processes.iter_mut().find(|process| process.attached.id == stop.process));
            if let Some(process) = process {
                process.thread_ended();
                process.concern.may_be_gone();
                process.stop_ended(thread);
            }
            is_child_of(own, thread)
        });
        if reaped.is_err() {
            self.forget_pending_stops();
        }
    }
}

/// Whether a thread is the main thread of a process that this program started. The exit status of such a process
/// belongs to the code that waits for it.
fn is_child_of(parent: u32, thread: u32) -> bool {
    let Ok(directory) = File::open(format!("/proc/{thread}")) else { return false };
    process_info::status(directory.as_fd(), "status")
        .is_ok_and(|status| status.process == thread && status.parent == parent)
}
