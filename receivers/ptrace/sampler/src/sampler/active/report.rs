//! Prepares what is sent regularly for a process: its batch and its counters.

use std::time::{Duration, Instant};

use super::Active;
use super::account::on_wall_clock;
use crate::message::{Batch, Status};
use crate::os::time;
use crate::sampler::ledger::WhatFollows;

/// How often a batch is sent. The interval grows with each multiple of `MANY_THREADS` threads, up to `SELDOM` times
/// this interval.
pub(super) const FLUSH: Duration = Duration::from_millis(500);
const MANY_THREADS: usize = 1024;
const SELDOM: u32 = 4;

/// How often counters are sent.
pub(super) const STATUS: Duration = Duration::from_secs(1);

/// The maximum number of thread names that are read again for a batch: this takes a tenth of a millisecond.
const NAMES: usize = 16;

/// How far the times of a batch may differ from the wall clock, in nanoseconds.
const MOST_DRIFT: u64 = 1_000_000;

impl Active {
    /// Whether a batch has to be sent now: a little later if code in it `is_unknown` until the maps have been read.
    pub(in crate::sampler) fn flush_is_due(&self, now: Instant, is_unknown: bool) -> bool {
        let due = if is_unknown { self.flush_due + FLUSH / 2 } else { self.flush_due };
        now >= due || self.batch.is_full()
    }

    /// How often a batch is sent.
    pub(super) fn flush_interval(&self) -> Duration {
        FLUSH * u32::try_from(1 + self.threads.len() / MANY_THREADS).unwrap_or(SELDOM).min(SELDOM)
    }

    /// Takes the batch of samples; `None` if there are none. `next` says what follows.
    pub(in crate::sampler) fn flush(&mut self, now: Instant, next: WhatFollows) -> Option<Batch> {
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
            if let Some(sent) = self.batch.thread(entry) {
                sent.pointer = thread.pointer;
                if sent.name != thread.name {
                    sent.name.clone_from(&thread.name);
                }
            }
        }
        let batch = self.batch.take();
        self.follow_clock();
        Some(batch)
    }

    /// Reads both clocks again. The last reading is kept while it is accurate enough, so that the times of successive
    /// batches follow each other without gaps.
    fn follow_clock(&mut self) {
        let (then, unix_nano) = epoch();
        if on_wall_clock(self.epoch, then).abs_diff(unix_nano) > MOST_DRIFT {
            self.epoch = (then, unix_nano);
        }
    }

    /// The counters, if they are due to be sent.
    pub(in crate::sampler) fn take_status(&mut self, now: Instant) -> Option<Status> {
        if now < self.status_due {
            return None;
        }
        self.status_due = now + STATUS;
        Some(self.attached.status())
    }
}

/// The current time on both clocks. The `now` of a tick is not used: on a busy machine it may be outdated.
pub(super) fn epoch() -> (Instant, u64) {
    (Instant::now(), time::unix_nano())
}
