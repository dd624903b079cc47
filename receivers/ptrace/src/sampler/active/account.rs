//! What samples stand for: the time, the thread and the stack of each, and whether one is the last one going on.

use std::time::{Duration, Instant};

use super::Active;
use crate::message::{Location, Mode, Rung, Sample, Thread, Trust};
use crate::probe::SchedStat;
use crate::sampler::events::{BRIEF, Watch};
use crate::sampler::ledger::{Rest, Rules};

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

    /// A sample of a thread that ran, for which it was not stopped: its place, for [`Active::replace_stack`]. What it stands for is found out when the
    /// batch is said. It is not yet counted: see [`Active::observed`].
    pub(in crate::sampler) fn account_on_cpu(&mut self, index: usize, found: Found<'_>, period_nano: u64) -> Place {
        let stack = self.batch.add_stack(found.trust, found.locations);
        let sample = self.sample(index, stack, Share { begins: found.at, weight_nano: 0 }, false);
        let sample = self.batch.add_sample(sample);
        let thread = &mut self.threads[index];
        thread.ledger.on_cpu(sample, period_nano);
        thread.run = None;
        thread.ran = true;
        Place { batch: self.batch.number(), sample }
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
        let ledger = self.watch.has_ledger();
        let share = if ledger { Some(Share { begins: now, weight_nano: 0 }) } else { self.take_share(index, now) };
        let Some(share) = share else {
            return;
        };
        let number = self.batch.number();
        let thread = &mut self.threads[index];
        let trust = thread.blocked.trust;
        if let Some((batch, sample)) = thread.run
            && batch == number
        {
            self.batch.extend(sample, share.weight_nano);
            if ledger {
                let sched = thread.sched;
                thread.ledger.blocked(sample, now, sched);
            }
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
            let thread = &mut self.threads[index];
            thread.run = Some((number, place));
            if ledger {
                let sched = thread.sched;
                thread.ledger.blocked(place, now, sched);
            }
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

    /// Shares the time of all threads among their samples.
    pub(in crate::sampler) fn settle_all(&mut self, now: Instant) {
        if !self.watch.has_ledger() {
            return;
        }
        let last = !self.on;
        for index in 0..self.threads.len() {
            let task = self.files.task();
            let thread = &mut self.threads[index];
            match thread.ledger.quiet() {
                // Nothing has come since it was settled.
                Some(_) if thread.ledger.is_empty() => {}
                // It has not run since it was looked at.
                Some((at, sched)) => self.settle(index, at, Some(sched), last),
                None => match thread.files.schedstat(task) {
                    Ok(sched) => self.settle(index, now, Some(sched), last),
                    Err(_) => self.settle(index, now, None, true),
                },
            }
        }
    }

    /// Shares the time of the threads that are not among these any more.
    pub(super) fn settle_gone(&mut self, ids: &[u32]) {
        if !self.watch.has_ledger() {
            return;
        }
        let now = Instant::now();
        let mut brief = false;
        for index in 0..self.threads.len() {
            if ids.binary_search(&self.threads[index].id()).is_err() {
                brief |= self.slot.saturating_sub(self.threads[index].born) < BRIEF;
                self.settle(index, now, None, true);
            }
        }
        self.brief.note(self.slot, self.slots_per_second(), brief);
    }

    /// From now on running threads are stopped: what is known of their time is said, and it counts anew.
    pub(in crate::sampler) fn stop_watching(&mut self, now: Instant) {
        self.settle_all(now);
        let slot = self.slot;
        for thread in &mut self.threads {
            thread.event = None;
            thread.run = None;
            thread.credited = slot;
            thread.run_unsampled = 0;
        }
        self.watch = Watch::Stops;
        self.status.rung = Rung::None;
    }

    fn settle(&mut self, index: usize, now: Instant, sched: Option<SchedStat>, last: bool) {
        let rules = Rules {
            period_nano: self.grid.period_nano() * self.grid.stride(),
            kernel: self.watch != Watch::Events(Rung::User),
            thinned: self.threads[index].thinning.factor(),
            cpu: self.settings.mode == Mode::Cpu,
            last,
        };
        let settled = self.threads[index].ledger.settle(now, sched, rules);
        for &(sample, stretch) in &settled.samples {
            self.batch.weigh(sample, on_wall_clock(self.epoch, stretch.begins), stretch.nano);
        }
        let before = settled.samples.last().map(|(sample, _)| *sample);
        for (rest, stretch) in settled.rests {
            let (location, below, blocked) = match rest {
                Rest::NotSampled => (Location::NOT_SAMPLED, None, false),
                Rest::InTheKernel => (Location::KERNEL_NOT_VISIBLE, None, false),
                Rest::WaitingForProcessor => (Location::WAITING_FOR_PROCESSOR, before, true),
                Rest::NotSeen => (Location::WAITING_NOT_SEEN, None, true),
            };
            if !blocked {
                self.status.not_sampled_nano += stretch.nano;
            }
            let stack = self.batch.stack_below(location, below);
            let share = Share { begins: stretch.begins, weight_nano: stretch.nano };
            let sample = self.sample(index, stack, share, blocked);
            self.batch.add_sample(sample);
        }
        if !settled.samples.is_empty() {
            // What comes next is another sample: this one's time is said.
            self.threads[index].run = None;
        }
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
