//! Stops of a process's threads: whether they are allowed, what they cost, and which calls they interrupted.

use std::time::{Duration, Instant};

use super::Active;
use crate::message::Stops;
use crate::sampler::states::RunningThreadMethod;

impl Active {
    /// Whether a running thread may be stopped. When the answer changes, the thread's time up to now is divided among
    /// its samples: samples taken while stops were allowed must not cover time in which they were not.
    pub(in crate::sampler) fn may_stop(&mut self, index: usize, now: Instant) -> bool {
        let task = self.attached.files.task();
        let thread = &mut self.threads[index];
        let may = !self.stop_rules.is_silent(now)
            && match self.attached.settings.stops {
                Stops::Never => false,
                Stops::Always => true,
                Stops::UserBound if thread.user_bound.is_barred(now) => false,
                // If the counters cannot be read, the thread is not stopped.
                Stops::UserBound => {
                    thread.files.processor_ticks(task).is_ok_and(|ticks| thread.user_bound.note_ticks(ticks, now))
                }
            };
        if thread.stop_turn.allow(may) {
            self.settle_up_to(index, now);
        }
        may
    }

    /// Whether a blocked thread may be stopped, provided that the kernel continues its system call as if there had been
    /// no stop.
    pub(in crate::sampler) fn may_stop_blocked(&self, now: Instant) -> bool {
        self.watch == RunningThreadMethod::Stops
            && self.attached.settings.stops == Stops::Always
            && !self.stop_rules.is_silent(now)
    }

    /// Called when a thread that was asked to stop was released, or ended.
    pub(in crate::sampler) fn stop_ended(&mut self, thread: u32) {
        self.stop_rules.stop_ended(Instant::now());
        if let Some(index) = self.find(thread) {
            self.threads[index].stop_turn.end();
        }
    }

    pub(in crate::sampler) fn count_stop(&mut self, thread: u32, length: Duration) {
        let nano = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let status = &mut self.attached.status;
        status.stops += 1;
        status.stopped_nano += nano;
        status.longest_stop_nano = status.longest_stop_nano.max(nano);
        status.stop_lengths[stop_class(nano)] += 1;
        self.budget.stopped(length);
        if let Some(index) = self.find(thread) {
            self.threads[index].stopped += length;
        }
    }

    /// Counts a system call that a stop ended early. Its thread is not stopped again for a while.
    pub(in crate::sampler) fn count_cut(&mut self, index: usize, call: &'static str, now: Instant) {
        self.attached.status.cut_calls += 1;
        self.threads[index].user_bound.cut(now);
        self.cut = Some((self.threads[index].id(), call));
    }

    /// Takes the thread and the system call that a stop ended early, if they were not reported yet.
    pub(in crate::sampler) fn take_cut(&mut self) -> Option<(u32, &'static str)> {
        self.cut.take()
    }
}

/// The index of a stop's length in [`Status::stop_lengths`](crate::message::Status::stop_lengths).
fn stop_class(nano: u64) -> usize {
    let micros = nano.div_ceil(1000).max(1);
    let class = micros.next_power_of_two().trailing_zeros() as usize;
    class.min(23)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the limits of the histogram's classes are as documented.
    #[test]
    fn stop_classes() {
        for (nano, class) in [
            (0, 0),
            (1000, 0),
            (1001, 1),
            (2000, 1),
            (2001, 2),
            (4_194_304_000, 22),
            (4_194_304_001, 23),
            (u64::MAX / 2, 23),
        ] {
            assert_eq!(stop_class(nano), class, "{nano}");
        }
    }
}
