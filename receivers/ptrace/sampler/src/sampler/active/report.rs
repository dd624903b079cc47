//! Makes what is sent of a process regularly: its batch and its counters.

use std::time::{Duration, Instant};

use super::Active;
use super::account::on_wall_clock;
use crate::message::{Batch, Status};
use crate::os::time;
use crate::sampler::ledger::Next;

/// How often a batch is sent; if a process has thousands of threads, so many times less often.
pub(super) const FLUSH: Duration = Duration::from_millis(500);
const MANY_THREADS: usize = 1024;
const SELDOM: u32 = 4;

/// How often counters are sent.
pub(super) const STATUS: Duration = Duration::from_secs(1);

/// How many names of threads are read again for a batch, at most: that takes a tenth of a millisecond.
const NAMES: usize = 16;

/// By how much the time of a batch may differ from the system's clock, in nanoseconds.
const MOST_DRIFT: u64 = 1_000_000;

impl Active {
    /// Whether a batch has to be sent now: a little later where a part of it `is_unknown` until maps have been read.
    pub(in crate::sampler) fn flush_is_due(&self, now: Instant, is_unknown: bool) -> bool {
        let due = if is_unknown { self.flush_due + FLUSH / 2 } else { self.flush_due };
        now >= due || self.batch.is_full()
    }

    /// How often a batch is sent.
    pub(super) fn flush_interval(&self) -> Duration {
        FLUSH * u32::try_from(1 + self.threads.len() / MANY_THREADS).unwrap_or(SELDOM).min(SELDOM)
    }

    /// The batch of what was sampled; `None` if there is nothing. `next` is what comes later.
    pub(in crate::sampler) fn flush(&mut self, now: Instant, next: Next) -> Option<Batch> {
        self.flush_due = now + self.flush_interval();
        self.settle_all(now, next);
        if self.batch.is_empty() {
            self.follow_clock();
            return None;
        }
        let mut names = NAMES;
        for thread in &mut self.threads {
            let Some(entry) = self.batch.present(thread.batch_entry) else { continue };
            if names > 0 && std::mem::take(&mut thread.ran) {
                thread.read_name(&mut self.attached.interpreters.lock(), &self.attached.files, self.slot);
                names -= 1;
            }
            if let Some(said) = self.batch.thread(entry) {
                said.pointer = thread.pointer;
                if said.name != thread.name {
                    said.name.clone_from(&thread.name);
                }
            }
        }
        let batch = self.batch.take();
        self.follow_clock();
        Some(batch)
    }

    /// Reads the clock anew, and keeps the last reading where it still holds: stretches of time that follow each other
    /// then do so from batch to batch.
    fn follow_clock(&mut self) {
        let (then, unix_nano) = epoch();
        if on_wall_clock(self.epoch, then).abs_diff(unix_nano) > MOST_DRIFT {
            self.epoch = (then, unix_nano);
        }
    }

    /// The counters, if it is time to send them.
    pub(in crate::sampler) fn take_status(&mut self, now: Instant) -> Option<Status> {
        if now < self.status_due {
            return None;
        }
        self.status_due = now + STATUS;
        Some(self.attached.status())
    }
}

/// The present moment on both clocks. Not a tick's `now`, which may be long ago on a busy machine.
pub(super) fn epoch() -> (Instant, u64) {
    (Instant::now(), time::unix_nano())
}
