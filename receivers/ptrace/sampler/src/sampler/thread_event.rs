//! The event of one thread: its period, and during which part of the time it is open.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::os::time;
use crate::perf::open::{arm, count};
use crate::perf::period::{self, Pace, Skipped, Varying};

/// The minimum time that an event is open before its cost is judged.
const JUDGED: Duration = Duration::from_millis(100);

/// A thread with more switches per second than this has its event only for a part of the time: the event makes each
/// switch 2.5 microseconds slower.
pub(super) const MOST_SWITCHES: u64 = 4_000;

/// The largest divisor: an event is open for at least one part in this many of the time.
const MOST_DUTY_DIVISOR: u64 = 50;

/// The first period of an event is at least one part in `SHORTEST` of the usual period: until its first sample is read
/// from the ring, samples have this period.
const SHORTEST: u64 = 4;

/// The event of one thread. It consists of one event per processor, since all events that write into a ring must belong
/// to the processor of the ring.
#[derive(Debug)]
pub(super) struct ThreadEvent {
    parts: Vec<ProcessorPart>,
    /// The events that report switches, which only write into the ring.
    #[allow(dead_code, reason = "dropping them closes them")]
    switches: Vec<OwnedFd>,
    /// The events that sample the thread right after it resumes: processor, file, and whether the event is armed.
    /// `None` until one is needed.
    resumptions: Option<Vec<(u32, OwnedFd, bool)>>,
    /// When the event's cost was last judged, and how many times the thread had been given a processor by then.
    judged: (Instant, u64),
    varying: Varying,
    pace: Pace,
    /// Whether the event takes no samples while its thread is in the kernel.
    hides: bool,
    /// Whether each sample wakes a reader.
    wakes: bool,
    /// How much of the current period had passed when the event was opened, in nanoseconds: the first period is shorter
    /// by this much.
    passed: u64,
}

/// The event of one thread on one processor.
#[derive(Debug)]
struct ProcessorPart {
    processor: u32,
    file: Arc<OwnedFd>,
    skipped: Skipped,
}

impl ProcessorPart {
    /// How long the thread ran on this processor, in nanoseconds.
    fn count(&self) -> u64 {
        count(self.file.as_fd()).0
    }
}

/// The events that were opened for a thread.
#[derive(Debug, Default)]
pub(super) struct EventFiles {
    /// The events that take samples, by processor.
    pub(super) samples: Vec<(u32, OwnedFd)>,
    /// The events that report switches.
    pub(super) switches: Vec<OwnedFd>,
    /// Whether no samples are taken in the kernel.
    pub(super) hide: bool,
    /// Whether each sample wakes a reader.
    pub(super) wake: bool,
}

impl ThreadEvent {
    /// Creates the event from open files. Its first period is `first`, in nanoseconds; later periods vary around
    /// `period_nano`. `given` is how many times the thread was given a processor so far.
    pub(super) fn new(files: EventFiles, first: u64, period_nano: u64, given: u64) -> Self {
        let seed = time::unix_nano();
        let varying = if first == period_nano {
            Varying::new(period_nano, seed)
        } else {
            Varying::behind_another(period_nano, seed)
        };
        let part = |(processor, file)| ProcessorPart { processor, file: Arc::new(file), skipped: Skipped::new(first) };
        Self {
            parts: files.samples.into_iter().map(part).collect(),
            switches: files.switches,
            resumptions: None,
            judged: (Instant::now(), given),
            varying,
            pace: Pace::default(),
            hides: files.hide,
            wakes: files.wake,
            passed: period_nano.saturating_sub(first),
        }
    }

    /// The files of the thread's events, by processor.
    pub(super) fn files(&self) -> Vec<(u32, Arc<OwnedFd>)> {
        self.parts.iter().map(|part| (part.processor, Arc::clone(&part.file))).collect()
    }

    /// Requests a sample for the moment when the thread resumes. `open` opens such an event on a processor.
    pub(super) fn arm(&mut self, open: impl Fn(u32) -> Option<OwnedFd>) {
        let processors = self.parts.iter().map(|part| part.processor);
        let opened = || processors.filter_map(|number| Some((number, open(number)?, false))).collect();
        for (_, event, armed) in self.resumptions.get_or_insert_with(opened) {
            // An event stays armed until its thread runs on that processor.
            if !std::mem::replace(armed, true) {
                arm(event.as_fd());
            }
        }
    }

    /// Called when the event of this processor has taken its sample, so that it is no longer armed.
    pub(super) fn resumed(&mut self, processor: u32) {
        let mut events = self.resumptions.iter_mut().flatten();
        if let Some((.., armed)) = events.find(|(of, ..)| *of == processor) {
            *armed = false;
        }
    }

    /// Makes the event take a sample for each `period_nano` nanoseconds of running from now on, on average.
    pub(super) fn set_period(&mut self, period_nano: u64) {
        self.varying = Varying::new(period_nano, time::unix_nano());
        self.begin(period_nano);
    }

    fn begin(&mut self, period_nano: u64) {
        for part in &mut self.parts {
            // Reading the count costs as much as changing the period. So it is avoided if only the phase of the next
            // event depends on it.
            let count = if self.hides { part.count() } else { part.skipped.at_last_sample() };
            period::set(part.file.as_fd(), period_nano);
            part.skipped.begin(count, period_nano);
        }
        self.passed = 0;
    }

    /// How much of the current period has passed, in nanoseconds.
    fn elapsed_in_period(&self) -> u64 {
        let begun: u64 = self.parts.iter().map(|part| part.skipped.elapsed_in_period(part.count())).sum();
        self.passed.saturating_add(begun % self.varying.average().max(1))
    }

    /// Returns the time that the thread spent in the kernel, where the event may not take samples, in nanoseconds. Each
    /// nanosecond is returned once.
    pub(super) fn take_skipped(&mut self) -> u64 {
        self.parts.iter_mut().map(|part| part.skipped.unreported(part.count())).sum()
    }

    /// Whether each sample wakes a reader.
    pub(super) fn wakes(&self) -> bool {
        self.wakes
    }

    /// The average running time between two samples, in nanoseconds.
    pub(super) fn period(&self) -> u64 {
        self.varying.average()
    }

    /// Counts a sample that was taken on a processor, or was lost.
    pub(super) fn count_sample(&mut self, processor: u32) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.processor == processor) {
            part.skipped.count_samples(1);
        }
        // If the first period was shortened, it is changed at once.
        let now = Instant::now();
        if let Some(period_nano) = self.varying.count_samples(1, self.passed > 0 || self.pace.may_change(now)) {
            self.begin(period_nano);
            self.pace.changed(now, Instant::now());
        }
    }

    /// The divisor of the time for which the event is affordable (one part in this many), and how long it was open;
    /// `None` if it is too early to judge. `switches` is how many times the thread was given a processor so far.
    fn judge(&mut self, switches: u64, most: u64, now: Instant) -> Option<(u64, Duration)> {
        let (since, before) = self.judged;
        let open = now.saturating_duration_since(since);
        if open < JUDGED {
            return None;
        }
        self.judged = (now, switches);
        Some((duty_divisor(switches.saturating_sub(before), open, most), open))
    }
}

/// During which part of the time a thread has an event, and the state of its last event, from which the next event
/// continues.
#[derive(Debug, Default)]
pub(super) struct DutyCycle {
    divisor: u64,
    away_until: Option<Instant>,
    /// How much of the period had passed when the last event was closed, in nanoseconds. The next event continues from
    /// there. Otherwise a thread that runs for less than a period between opening and closing would never be sampled.
    begun: u64,
    /// Time in the kernel that closed events counted and that was not returned yet, in nanoseconds.
    skipped_nano: u64,
}

impl DutyCycle {
    /// The divisor: the thread has its event for one part in this many of the time.
    pub(super) fn divisor(&self) -> u64 {
        self.divisor.max(1)
    }

    /// Whether the thread must have no event now.
    pub(super) fn is_away(&self, now: Instant) -> bool {
        self.away_until.is_some_and(|until| now < until)
    }

    /// The first period of the next event, if the usual period is `period_nano`.
    pub(super) fn first(&self, period_nano: u64) -> u64 {
        period_nano.saturating_sub(self.begun).max(period_nano / SHORTEST)
    }

    /// Closes an event, and keeps the state from which the next one continues. `hides` says that the event takes no
    /// samples in the kernel.
    pub(super) fn close(&mut self, mut event: ThreadEvent, hides: bool) {
        self.begun = event.elapsed_in_period();
        if hides {
            self.skipped_nano = self.skipped_nano.saturating_add(event.take_skipped());
        }
    }

    /// Returns the time in the kernel that closed events counted, in nanoseconds. Each nanosecond is returned once.
    pub(super) fn take_skipped(&mut self) -> u64 {
        std::mem::take(&mut self.skipped_nano)
    }

    /// Whether an event has to be closed for a while because its thread has too many switches. `switches` is how many
    /// times the thread was given a processor so far, `most` how many times per second it may be.
    pub(super) fn is_due(
        &mut self,
        event: &mut ThreadEvent,
        switches: u64,
        most: u64,
        slot: u64,
        now: Instant,
    ) -> bool {
        let Some((divisor, open)) = event.judge(switches, most, now) else { return false };
        self.divisor = divisor;
        if divisor > 1 {
            // The pause varies by up to an eighth, so that it does not become synchronous with the thread's own cycle.
            let eighths = 7 + u32::try_from(slot % 3).unwrap_or(0);
            let away = open.saturating_mul(u32::try_from(divisor - 1).unwrap_or(u32::MAX)) / 8 * eighths;
            self.away_until = Some(now + away);
        }
        divisor > 1
    }
}

/// The divisor of the time for which an event is affordable (one part in this many), given the number of switches while
/// it was open and the limit `most` per second.
fn duty_divisor(switches: u64, open: Duration, most: u64) -> u64 {
    let micros = u64::try_from(open.as_micros()).unwrap_or(u64::MAX).max(1);
    let rate = switches.saturating_mul(1_000_000) / micros;
    rate.div_ceil(most).clamp(1, MOST_DUTY_DIVISOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: up to 4000 switches per second an event is always open. With more, it is open for a part of the time
    /// in which there are at most 4000 per second, down to a minimum.
    #[test]
    fn duty_cycles() {
        let tenth = Duration::from_millis(100);
        for (switches, divisor) in [(0, 1), (400, 1), (401, 2), (2_000, 5), (u64::MAX, MOST_DUTY_DIVISOR)] {
            assert_eq!(duty_divisor(switches, tenth, MOST_SWITCHES), divisor, "{switches}");
        }
        assert_eq!(duty_divisor(400, Duration::ZERO, MOST_SWITCHES), MOST_DUTY_DIVISOR);
    }

    /// Guarantees: an event continues the period of the previous event, but its first period is never so short that
    /// samples are too frequent.
    #[test]
    fn periods_go_on() {
        let first = |begun| DutyCycle { begun, ..DutyCycle::default() }.first(1_000);
        assert_eq!([0, 1, 700, 999, 5_000].map(first), [1_000, 999, 300, 250, 250]);
    }

    /// Guarantees: an event that is closed before its first sample leaves the rest of its shortened first period to the
    /// next event.
    #[test]
    fn short_turns_add_up() {
        let mut duty_cycle = DutyCycle::default();
        for first in [1_000, 700, 300] {
            let file = std::fs::File::open("/dev/null").unwrap().into();
            let files = EventFiles { samples: vec![(0, file)], ..EventFiles::default() };
            let event = ThreadEvent::new(files, first, 1_000, 0);
            duty_cycle.close(event, false);
            assert_eq!(duty_cycle.first(1_000), first);
        }
    }
}
