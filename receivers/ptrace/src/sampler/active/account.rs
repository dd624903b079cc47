//! What samples stand for: the time, the thread and the stack of each, and whether one is the last one going on.

use std::time::{Duration, Instant};

use super::Active;
use crate::message::{Location, Mode, Sample, Thread, Trust};

/// Where a sample is.
#[derive(Debug, Clone, Copy)]
pub(in crate::sampler) struct Place {
    batch: u64,
    sample: u32,
}

/// A stack to be accounted for.
#[derive(Debug, Clone, Copy)]
pub(in crate::sampler) struct Found<'a> {
    pub(in crate::sampler) trust: Trust,
    pub(in crate::sampler) locations: &'a [Location],
    pub(in crate::sampler) at: Instant,
    /// The thread was blocked, and stopped all the same.
    pub(in crate::sampler) blocked: bool,
}

/// The time that a sample stands for.
#[derive(Debug, Clone, Copy)]
struct Share {
    begins: Instant,
    weight_nano: u64,
}

impl Active {
    /// A sample of a thread that was stopped: its place, for [`Active::replace_stack`]; `None` where it stands for no time. It is not yet
    /// counted: see [`Active::observed`].
    pub(in crate::sampler) fn account_stopped(&mut self, index: usize, found: Found<'_>) -> Option<Place> {
        let share = self.take_share(index, found.at)?;
        let stack = self.batch.add_stack(found.trust, found.locations);
        let sample = self.sample(index, stack, share, found.blocked);
        let sample = self.batch.add_sample(sample);
        self.threads[index].run = None;
        self.threads[index].ran = true;
        Some(Place { batch: self.batch.number(), sample })
    }

    /// A better stack was found for a sample: whether it is not too late.
    pub(in crate::sampler) fn replace_stack(&mut self, place: Place, trust: Trust, locations: &[Location]) -> bool {
        let in_time = place.batch == self.batch.number();
        if in_time {
            let stack = self.batch.add_stack(trust, locations);
            self.batch.replace_stack(place.sample, stack);
        }
        in_time
    }

    /// A sample of a thread that is blocked with `ThreadState::blocked`: the last sample stands for longer, where it was the same.
    pub(in crate::sampler) fn account_blocked(&mut self, index: usize, now: Instant) {
        let Some(share) = self.take_share(index, now) else {
            return;
        };
        let number = self.batch.number();
        let thread = &mut self.threads[index];
        let trust = thread.blocked.trust;
        if let Some((batch, sample)) = thread.run
            && batch == number
        {
            self.batch.extend(sample, share.weight_nano);
        } else {
            let stack = match thread.blocked.stack {
                Some((batch, stack)) if batch == number => stack,
                _ => {
                    let stack = self.batch.add_stack(trust, &thread.blocked.locations);
                    thread.blocked.stack = Some((number, stack));
                    stack
                }
            };
            let sample = self.sample(index, stack, share, true);
            let place = self.batch.add_sample(sample);
            self.threads[index].run = Some((number, place));
        }
        self.observed(trust);
    }

    /// What the next sample of a thread, which was taken at this moment, stands for; `None` where that is nothing.
    ///
    /// It begins where what was accounted for before ended. A stop that came late, and a tick that did, are about the time before
    /// them, and whoever shows a sample for as long as it stands for shows it from its time on.
    fn take_share(&mut self, index: usize, at: Instant) -> Option<Share> {
        let thread = &mut self.threads[index];
        let credited = std::mem::replace(&mut thread.credited, self.slot);
        let share = match self.settings.mode {
            Mode::Wall => Share {
                begins: self.grid.begins(credited.saturating_add(1)),
                weight_nano: self.slot.saturating_sub(credited) * self.grid.period_nano(),
            },
            Mode::Cpu => {
                let weight_nano = std::mem::take(&mut thread.run_unsampled);
                let begins = beginning(at, weight_nano, thread.sampled_at);
                if weight_nano != 0 {
                    thread.sampled_at = Some(thread.sampled_at.map_or(at, |before| before.max(at)));
                }
                Share { begins, weight_nano }
            }
        };
        (share.weight_nano != 0).then_some(share)
    }

    fn sample(&mut self, index: usize, stack: u32, share: Share, blocked: bool) -> Sample {
        let number = self.batch.number();
        let thread = &mut self.threads[index];
        let place = match thread.place {
            Some((batch, place)) if batch == number => place,
            _ => {
                let task = self.files.task();
                let id = thread.files.id;
                let namespace_id = *thread.namespace_id.get_or_insert_with(|| {
                    // The first time: the name is not known either.
                    thread.name = thread.files.name(task).unwrap_or_default();
                    thread.files.status(task).map(|status| status.namespace_pid).filter(|own| *own != 0).unwrap_or(id)
                });
                thread.find_pointer(&self.files, namespace_id);
                let place = self.batch.add_thread(Thread {
                    id,
                    namespace_id,
                    name: thread.name.clone(),
                    pointer: thread.pointer,
                });
                thread.place = Some((number, place));
                place
            }
        };
        Sample {
            thread: place,
            stack,
            time_unix_nano: on_wall_clock(self.epoch, share.begins),
            weight_nano: share.weight_nano,
            observations: 1,
            blocked,
        }
    }

    /// Counts a sample that was taken.
    pub(in crate::sampler) fn observed(&mut self, trust: Trust) {
        self.status.observations += 1;
        match trust {
            Trust::Complete => self.status.complete += 1,
            Trust::Truncated => self.status.truncated += 1,
            Trust::Guessed => self.status.guessed += 1,
        }
    }
}

/// When a thread began to use the processor time that a sample taken at this moment stands for, if it used it without a pause; `before`
/// is when its sample before was taken.
///
/// The kernel counts what a running thread used in steps of up to a timer tick, so the time may be longer than that between two samples:
/// it does not begin before the one before was taken.
fn beginning(at: Instant, weight_nano: u64, before: Option<Instant>) -> Instant {
    let begins = at.checked_sub(Duration::from_nanos(weight_nano)).unwrap_or(at);
    before.map_or(begins, |before| begins.max(before))
}

/// A moment in nanoseconds since the Unix epoch, by another one on both clocks.
fn on_wall_clock((then, unix_nano): (Instant, u64), at: Instant) -> u64 {
    let nano = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    match at.checked_duration_since(then) {
        Some(after) => unix_nano.saturating_add(nano(after)),
        None => unix_nano.saturating_sub(nano(then.duration_since(at))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: moments before and after the one that both clocks know come out on the wall clock, to the nanosecond.
    #[test]
    fn moments() {
        let then = Instant::now();
        let of = |at| on_wall_clock((then, 1_000_000_000), at);
        assert_eq!(of(then), 1_000_000_000);
        assert_eq!(of(then + Duration::from_nanos(7)), 1_000_000_007);
        assert_eq!(of(then - Duration::from_nanos(7)), 999_999_993);
        assert_eq!(of(then - Duration::from_secs(2)), 0);
    }

    /// Guarantees: samples in mode cpu are in order, however the kernel counts the time they stand for.
    #[test]
    fn beginnings() {
        let at = Instant::now() + Duration::from_secs(1);
        let before = at - Duration::from_nanos(50);
        assert_eq!(beginning(at, 40, None), at - Duration::from_nanos(40));
        assert_eq!(beginning(at, 40, Some(before)), at - Duration::from_nanos(40));
        assert_eq!(beginning(at, 60, Some(before)), before);
    }
}
