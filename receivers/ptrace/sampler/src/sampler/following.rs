//! On which processor the sampling thread is executed.
//!
//! Frames that an interpreter has in its own memory are read behind a sample, while the thread runs on. A sampling
//! thread that is woken on another processor needs 50 microseconds and more until it reads, in which a program calls
//! and returns many times. On the processor of the sampled thread it is there within a few, and that thread waits
//! meanwhile: its frames are still those of the sample.
//!
//! What the sampling thread executes there is missing to the sampled thread, so it goes there only for interpreters,
//! and not where that is more than the share of time for which a thread may be held stopped.

use std::time::{Duration, Instant};

use nix::sched::CpuSet;

use crate::os::{affinity, time};

/// After this many samples in a row on one processor the sampling thread is bound to it. Where several processors
/// execute interpreters by turns it is bound to none.
const IN_A_ROW: u32 = 4;

/// Without samples for this long it is executed anywhere again.
const UNSAMPLED: Duration = Duration::from_secs(1);

/// If so many samples in a row are read so late although it is bound, the kernel prefers the sampled thread, or another
/// one: then it is not bound again for a while.
const LATE: (u32, Duration) = (4, Duration::from_micros(400));
const PAUSE: Duration = Duration::from_secs(10);

/// How often it is found out what it takes of the processor that it is bound to. What begins takes more at first.
const WEIGHED: Duration = Duration::from_secs(4);

/// The processor to which the sampling thread is bound, and what decides about it.
#[derive(Debug, Default)]
pub(super) struct Following {
    decision: Decision,
    /// On which processors it was executed before it was bound.
    before: Option<CpuSet>,
}

impl Following {
    /// A thread whose frames are read behind its samples was sampled on this processor, and they were read so much
    /// later. `most` is the share of time for which it may be displaced.
    pub(super) fn sampled(&mut self, processor: u32, behind: Duration, most: f64, now: Instant) {
        let step = self.decision.sampled(processor, behind, now);
        self.take(step, now);
        if self.decision.is_to_be_weighed(now) {
            let step = self.decision.weigh(time::thread_cpu(), most, now);
            self.take(step, now);
        }
    }

    /// Ends it if no such thread was sampled for a while.
    pub(super) fn review(&mut self, now: Instant) {
        let step = self.decision.review(now);
        self.take(step, now);
    }

    fn take(&mut self, step: Option<Step>, now: Instant) {
        match step {
            Some(Step::Bind(processor)) => {
                self.before = affinity::bind(processor);
                if self.before.is_none() {
                    self.decision.pause(now);
                }
            }
            Some(Step::Release) => {
                if let Some(before) = self.before.take() {
                    affinity::release(&before);
                }
            }
            None => {}
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Bind the sampling thread to this processor.
    Bind(u32),
    /// Let it be executed anywhere.
    Release,
}

#[derive(Debug, Default)]
struct Decision {
    bound: Option<u32>,
    /// Where the last sample was taken, and when it was read.
    last: Option<(u32, Instant)>,
    /// How many were taken there in a row, and how many in a row were read late.
    in_a_row: u32,
    late: u32,
    not_before: Option<Instant>,
    /// When the sampling thread was bound or its cost was last weighed, and the processor time that it had used by
    /// then.
    weighed: Option<(Instant, Duration)>,
}

impl Decision {
    fn sampled(&mut self, processor: u32, behind: Duration, now: Instant) -> Option<Step> {
        let same = self.last.replace((processor, now)).is_some_and(|(last, _)| last == processor);
        self.in_a_row = if same { self.in_a_row.saturating_add(1) } else { 1 };
        if self.bound.is_some() {
            self.late = if behind > LATE.1 { self.late + 1 } else { 0 };
            if self.late >= LATE.0 {
                return self.pause(now);
            }
            return if self.bound == Some(processor) { None } else { self.release() };
        }
        if self.in_a_row < IN_A_ROW || self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        self.bound = Some(processor);
        Some(Step::Bind(processor))
    }

    fn review(&mut self, now: Instant) -> Option<Step> {
        let (_, at) = self.last?;
        if now.saturating_duration_since(at) < UNSAMPLED {
            return None;
        }
        self.last = None;
        self.release()
    }

    fn is_to_be_weighed(&self, now: Instant) -> bool {
        self.bound.is_some() && self.weighed.is_none_or(|(at, _)| now >= at + WEIGHED)
    }

    /// The sampling thread has used so much processor time by now, of which it may take this share from the thread that
    /// it displaces.
    fn weigh(&mut self, used: Duration, most: f64, now: Instant) -> Option<Step> {
        let (at, before) = self.weighed.replace((now, used))?;
        let most = now.saturating_duration_since(at).as_secs_f64() * most;
        if used.saturating_sub(before).as_secs_f64() > most { self.pause(now) } else { None }
    }

    fn pause(&mut self, now: Instant) -> Option<Step> {
        self.not_before = Some(now + PAUSE);
        self.release()
    }

    fn release(&mut self) -> Option<Step> {
        self.late = 0;
        self.weighed = None;
        self.bound.take().map(|_| Step::Release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(20);
    const PERIOD: Duration = Duration::from_millis(10);

    /// What samples on these processors lead to, ten milliseconds apart, each read so much later.
    fn steps(decision: &mut Decision, start: Instant, samples: &[(u32, Duration)]) -> Vec<Option<Step>> {
        let step = |(index, (processor, behind)): (u32, &(u32, Duration))| {
            decision.sampled(*processor, *behind, start + index * PERIOD)
        };
        (0..).zip(samples).map(step).collect()
    }

    /// Guarantees: the sampling thread is bound to a processor behind four samples in a row there, once, and to none as
    /// soon as a sample is taken elsewhere; samples on processors by turns never bind it.
    #[test]
    fn one_processor() {
        let (bind, release) = (|processor| Some(Step::Bind(processor)), Some(Step::Release));
        let mut decision = Decision::default();
        let samples = [1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0].map(|processor| (processor, SOON));
        let expected = [None, None, None, None, None, bind(1), None, release, None, None, bind(0), None];
        assert_eq!(steps(&mut decision, Instant::now(), &samples), expected);
        let by_turns = [0, 0, 0, 1, 1, 1].map(|processor| (processor, SOON)).repeat(9);
        assert!(steps(&mut Decision::default(), Instant::now(), &by_turns).iter().all(Option::is_none));
    }

    /// Guarantees: where samples are read late although the sampling thread is bound, it is released, and not bound for
    /// ten seconds; a few late ones in between do not matter.
    #[test]
    fn late_all_the_same() {
        let late = LATE.1 + SOON;
        let start = Instant::now();
        let mut decision = Decision::default();
        assert_eq!(steps(&mut decision, start, &[(0, late); 4])[3], Some(Step::Bind(0)));
        let some = [(0, late), (0, late), (0, late), (0, SOON)].repeat(9);
        assert!(steps(&mut decision, start, &some).iter().all(Option::is_none));
        assert_eq!(steps(&mut decision, start, &[(0, late); 4]), [None, None, None, Some(Step::Release)]);
        assert!(steps(&mut decision, start, &[(0, SOON); 99]).iter().all(Option::is_none));
        assert_eq!(steps(&mut decision, start + 2 * PAUSE, &[(0, SOON)]), [Some(Step::Bind(0))]);
    }

    /// Guarantees: where the sampling thread uses more of the processor that it is bound to than it may, it is
    /// released, and not bound for ten seconds; what it used before it was bound does not count.
    #[test]
    fn what_it_costs() {
        let start = Instant::now();
        let mut decision = Decision::default();
        assert!(!decision.is_to_be_weighed(start));
        steps(&mut decision, start, &[(0, SOON); 4]);
        let millis = Duration::from_millis;
        assert!(decision.is_to_be_weighed(start));
        assert_eq!(decision.weigh(millis(9000), 0.02, start), None);
        assert!(!decision.is_to_be_weighed(start + WEIGHED - PERIOD));
        let (first, second) = (start + WEIGHED, start + 2 * WEIGHED);
        assert!(decision.is_to_be_weighed(first));
        assert_eq!(decision.weigh(millis(9079), 0.02, first), None);
        assert_eq!(decision.weigh(millis(9160), 0.02, second), Some(Step::Release));
        assert!(!decision.is_to_be_weighed(second + WEIGHED));
        assert!(steps(&mut decision, second, &[(0, SOON); 9]).iter().all(Option::is_none));
        assert_eq!(steps(&mut decision, second + PAUSE, &[(0, SOON)]), [Some(Step::Bind(0))]);
    }

    /// Guarantees: without samples for a second the sampling thread is released, and only once.
    #[test]
    fn no_samples() {
        let start = Instant::now();
        let mut decision = Decision::default();
        steps(&mut decision, start, &[(0, SOON); 4]);
        let last = start + 3 * PERIOD;
        let at = |time| last + time;
        assert_eq!(decision.review(at(UNSAMPLED - PERIOD)), None);
        assert_eq!(decision.review(at(UNSAMPLED)), Some(Step::Release));
        assert_eq!(decision.review(at(2 * UNSAMPLED)), None);
        assert_eq!(Decision::default().review(start), None);
    }
}
