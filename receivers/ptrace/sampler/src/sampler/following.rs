//! On which processor the sampling thread is executed.
//!
//! Frames that an interpreter has in its own memory are read behind a sample, while the thread runs on. A sampling
//! thread that is woken on another processor needs 50 microseconds and more until it reads, in which a program calls
//! and returns many times. On the processor of the sampled thread it is there within a few, and that thread waits
//! meanwhile: its frames are still those of the sample.
//!
//! What the sampling thread executes there is missing to the sampled thread, so it goes there only for interpreters,
//! and only while the processor time that it uses is below the share of time for which a thread may be held stopped.

use std::time::{Duration, Instant};

use crate::os::affinity::{self, Bound};
use crate::os::time;

/// After this many samples in a row on one processor the sampling thread is bound to it; after twice as many as the
/// last time, up to the second number, where it was bound for fewer than `LONG` samples, and half as many again `PAUSE`
/// later. So it is bound to none where several processors execute interpreters by turns.
const IN_A_ROW: (u32, u32) = (4, 64);

/// If it was bound for this many samples, one on another processor is of a thread that was moved there: it follows.
const LONG: u32 = 16;

/// Without samples for this long it is executed anywhere again.
const UNSAMPLED: Duration = Duration::from_secs(1);

/// If so many more samples are read so late than are not, although it is bound, the kernel prefers the sampled thread,
/// or another one: then it is not bound again for a while.
const LATE: (u32, Duration) = (4, Duration::from_micros(400));
const PAUSE: Duration = Duration::from_secs(10);

/// How often it is found out which share of a processor the sampling thread uses, bound or not.
const WEIGHED: Duration = Duration::from_secs(4);

/// It is found out for the first time after this long, when it may be so many times as much: what begins takes more.
const BEGINS: (Duration, f64) = (Duration::from_secs(1), 4.0);

/// The processor to which the sampling thread is bound, and what decides about it.
#[derive(Debug, Default)]
pub(super) struct Following {
    decision: Decision,
    bound: Option<Bound>,
}

impl Following {
    /// A thread whose frames were read behind its sample was sampled on this processor, and they were read so much
    /// later. `most` is the share of time for which it may be displaced; with 0 it never is.
    pub(super) fn sampled(&mut self, processor: u32, behind: Duration, most: f64, now: Instant) {
        let step = self.decision.sampled(processor, behind, most, now);
        self.take(step, now);
        if most > 0.0 && self.decision.is_to_be_weighed(now) {
            let step = self.decision.weigh(time::thread_cpu(), most, now);
            self.take(step, now);
        }
    }

    /// Whether the sampling thread is bound to a processor.
    pub(super) fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    /// No thread may be displaced any more.
    pub(super) fn end(&mut self, now: Instant) {
        let step = self.decision.release();
        self.take(step, now);
    }

    /// Ends it if no such thread was sampled for a while.
    pub(super) fn review(&mut self, now: Instant) {
        let step = self.decision.review(now);
        self.take(step, now);
    }

    fn take(&mut self, step: Option<Step>, now: Instant) {
        match step {
            Some(Step::Bind(processor)) => {
                if let Some(bound) = self.bound.take() {
                    affinity::release(&bound);
                }
                self.bound = affinity::bind(processor);
                if self.bound.is_none() {
                    self.decision.pause(now);
                }
            }
            Some(Step::Release) => {
                if let Some(bound) = self.bound.take() {
                    affinity::release(&bound);
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

#[derive(Debug)]
struct Decision {
    bound: Option<u32>,
    /// How many samples were taken since it was bound, and how many in a row bind it again.
    stretch: u32,
    binds: u32,
    /// When these were last made more or fewer.
    binds_since: Option<Instant>,
    /// Where the last sample was taken, and when it was read.
    last: Option<(u32, Instant)>,
    /// How many were taken there in a row.
    in_a_row: u32,
    /// How many more were read late than were not.
    late: u32,
    not_before: Option<Instant>,
    weighed: Option<Weighed>,
}

/// When it was last found out how much processor time the sampling thread uses.
#[derive(Debug, Clone, Copy)]
struct Weighed {
    at: Instant,
    /// What it had used by then.
    used: Duration,
    /// Whether that was the beginning.
    begins: bool,
}

impl Weighed {
    /// When it is found out again, and how many times as much as later it may be then.
    fn next(self) -> (Instant, f64) {
        let (after, times) = if self.begins { BEGINS } else { (WEIGHED, 1.0) };
        (self.at + after, times)
    }
}

impl Default for Decision {
    fn default() -> Self {
        let (bound, stretch, binds, binds_since) = (None, 0, IN_A_ROW.0, None);
        Self { bound, stretch, binds, binds_since, last: None, in_a_row: 0, late: 0, not_before: None, weighed: None }
    }
}

impl Decision {
    fn sampled(&mut self, processor: u32, behind: Duration, most: f64, now: Instant) -> Option<Step> {
        let same = self.last.replace((processor, now)).is_some_and(|(last, _)| last == processor);
        self.in_a_row = if same { self.in_a_row.saturating_add(1) } else { 1 };
        if self.binds_since.is_some_and(|since| now >= since + PAUSE) {
            self.binds = (self.binds / 2).max(IN_A_ROW.0);
            self.binds_since = Some(now);
        }
        if let Some(bound) = self.bound {
            self.late = if behind > LATE.1 { self.late + 1 } else { self.late.saturating_sub(1) };
            if self.late >= LATE.0 {
                return self.pause(now);
            }
            if most == 0.0 {
                return self.release();
            }
            if bound == processor {
                self.stretch += 1;
                return None;
            }
            if self.stretch < LONG {
                self.binds = (self.binds * 2).min(IN_A_ROW.1);
                self.binds_since = Some(now);
                return self.release();
            }
            self.binds = IN_A_ROW.0;
            return Some(self.bind(processor));
        }
        if self.in_a_row < self.binds || most == 0.0 || self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        Some(self.bind(processor))
    }

    fn bind(&mut self, processor: u32) -> Step {
        (self.bound, self.stretch) = (Some(processor), 0);
        Step::Bind(processor)
    }

    fn review(&mut self, now: Instant) -> Option<Step> {
        let (_, at) = self.last?;
        if now.saturating_duration_since(at) < UNSAMPLED {
            return None;
        }
        // What is used while nothing is sampled says nothing of the time when something is.
        (self.last, self.weighed) = (None, None);
        self.release()
    }

    fn is_to_be_weighed(&self, now: Instant) -> bool {
        self.weighed.is_none_or(|weighed| now >= weighed.next().0)
    }

    /// The sampling thread has used so much processor time by now, of which it may take this share from the thread that
    /// it displaces. Where it uses more it is not bound for a while, and for as long as it does.
    fn weigh(&mut self, used: Duration, most: f64, now: Instant) -> Option<Step> {
        let before = self.weighed.replace(Weighed { at: now, used, begins: self.weighed.is_none() })?;
        let most = now.saturating_duration_since(before.at).as_secs_f64() * most * before.next().1;
        if used.saturating_sub(before.used).as_secs_f64() > most { self.pause(now) } else { None }
    }

    fn pause(&mut self, now: Instant) -> Option<Step> {
        self.not_before = Some(now + PAUSE);
        self.release()
    }

    fn release(&mut self) -> Option<Step> {
        self.late = 0;
        self.bound.take().map(|_| Step::Release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(20);
    const PERIOD: Duration = Duration::from_millis(10);
    const MOST: f64 = 0.02;

    /// What samples on these processors lead to, ten milliseconds apart, each read so much later.
    fn steps(decision: &mut Decision, start: Instant, samples: &[(u32, Duration)]) -> Vec<Option<Step>> {
        let step = |(index, (processor, behind)): (u32, &(u32, Duration))| {
            decision.sampled(*processor, *behind, MOST, start + index * PERIOD)
        };
        (0..).zip(samples).map(step).collect()
    }

    /// Guarantees: the sampling thread is bound to a processor behind four samples in a row there, once, and to none if
    /// one is taken elsewhere soon; then twice as many bind it again, so that samples on processors by turns bind it
    /// less and less.
    #[test]
    fn one_processor() {
        let (bind, release) = (|processor| Some(Step::Bind(processor)), Some(Step::Release));
        let mut decision = Decision::default();
        let samples = [1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0].map(|processor| (processor, SOON));
        let found = steps(&mut decision, Instant::now(), &samples);
        let steps_of = |found: &[Option<Step>]| -> Vec<(usize, Step)> {
            found.iter().enumerate().filter_map(|(at, step)| Some((at, (*step)?))).collect()
        };
        assert_eq!(steps_of(&found), [(5, bind(1).unwrap()), (7, release.unwrap()), (14, bind(0).unwrap())]);
        let by_turns: Vec<_> = (0..1_000).map(|at| (at / 6 % 2, SOON)).collect();
        let bound = |found: &[Option<Step>]| found.iter().flatten().filter(|step| **step != Step::Release).count();
        assert_eq!(bound(&steps(&mut Decision::default(), Instant::now(), &by_turns)), 1);
    }

    /// Guarantees: that threads were sampled by turns for a while is forgotten in the end.
    #[test]
    fn one_processor_again() {
        let start = Instant::now();
        let mut decision = Decision::default();
        for row in [4, 8, 16, 32] {
            let found = steps(&mut decision, start, &[vec![(0, SOON); row], vec![(1, SOON)]].concat());
            assert_eq!(found[row - 1..], [Some(Step::Bind(0)), Some(Step::Release)]);
        }
        assert!(steps(&mut decision, start, &[(0, SOON); 63]).iter().all(Option::is_none));
        for again in 1..=4 {
            steps(&mut decision, start + again * 2 * PAUSE, &[(1, SOON), (0, SOON)]);
        }
        let turns: Vec<_> = (0..100).map(|at| (at / 50 % 2, SOON)).collect();
        let found = steps(&mut decision, start + 9 * PAUSE, &turns);
        assert!(found[..5].contains(&Some(Step::Bind(0))) && found[50] == Some(Step::Bind(1)), "{found:?}");
    }

    /// Guarantees: a thread that moves to another processor after a while is followed there at once.
    #[test]
    fn moved() {
        let mut decision = Decision::default();
        let samples: Vec<_> = (0..200).map(|at| (at / 50 % 2, SOON)).collect();
        let found = steps(&mut decision, Instant::now(), &samples);
        let bound: Vec<_> = found.iter().enumerate().filter(|(_, step)| step.is_some()).collect();
        let bind = |processor| Some(Step::Bind(processor));
        assert_eq!(bound, [(3, &bind(0)), (50, &bind(1)), (100, &bind(0)), (150, &bind(1))]);
    }

    /// Guarantees: where samples are read late although the sampling thread is bound, it is released, and not bound for
    /// ten seconds; late ones do not matter where as many are not.
    #[test]
    fn late_all_the_same() {
        let late = LATE.1 + SOON;
        let start = Instant::now();
        let mut decision = Decision::default();
        assert_eq!(steps(&mut decision, start, &[(0, late); 4])[3], Some(Step::Bind(0)));
        let some = [(0, late), (0, late), (0, late), (0, SOON), (0, SOON), (0, SOON)].repeat(9);
        assert!(steps(&mut decision, start, &some).iter().all(Option::is_none));
        let most = [(0, late), (0, late), (0, SOON), (0, late), (0, late), (0, late)];
        assert_eq!(steps(&mut decision, start, &most), [None, None, None, None, None, Some(Step::Release)]);
        assert!(steps(&mut decision, start, &[(0, SOON); 99]).iter().all(Option::is_none));
        assert_eq!(steps(&mut decision, start + 2 * PAUSE, &[(0, SOON)]), [Some(Step::Bind(0))]);
    }

    /// Guarantees: where the sampling thread uses more of a processor than it may, it is released, and not bound for
    /// ten seconds, nor afterwards while it still does, whether it was bound in one piece or in several; what it used
    /// before the first sample does not count, and when sampling begins it may use four times as much for a moment.
    #[test]
    fn what_it_costs() {
        let start = Instant::now();
        let mut decision = Decision::default();
        let weigh = |decision: &mut Decision, after: u64, used: u64| {
            let now = start + Duration::from_millis(after);
            assert!(!decision.is_to_be_weighed(now - Duration::from_millis(1)) || after == 0);
            assert!(decision.is_to_be_weighed(now));
            decision.weigh(Duration::from_millis(used), MOST, now)
        };
        assert_eq!(weigh(&mut decision, 0, 9_000), None);
        steps(&mut decision, start, &[(0, SOON); 4]);
        assert_eq!(weigh(&mut decision, 1_000, 9_079), None);
        assert_eq!(weigh(&mut decision, 5_000, 9_158), None);
        // Elsewhere for a moment.
        assert_eq!(steps(&mut decision, start, &[(1, SOON), (0, SOON)])[0], Some(Step::Release));
        assert_eq!(steps(&mut decision, start, &[(0, SOON); 7])[6], Some(Step::Bind(0)));
        assert_eq!(weigh(&mut decision, 9_000, 9_239), Some(Step::Release));
        for (second, used) in [(13, 9_320), (17, 9_401), (21, 9_482)] {
            assert_eq!(weigh(&mut decision, second * 1_000, used), None);
            assert!(
                steps(&mut decision, start + Duration::from_secs(second), &[(0, SOON); 9]).iter().all(Option::is_none)
            );
        }
        assert_eq!(weigh(&mut decision, 25_000, 9_483), None);
        assert_eq!(steps(&mut decision, start + Duration::from_secs(31), &[(0, SOON)]), [Some(Step::Bind(0))]);
        let mut hasty = Decision::default();
        assert_eq!(weigh(&mut hasty, 0, 0), None);
        steps(&mut hasty, start, &[(0, SOON); 4]);
        assert_eq!(weigh(&mut hasty, 1_000, 81), Some(Step::Release));
    }

    /// Guarantees: where nothing may be displaced, by now or from the beginning, the sampling thread is not bound.
    #[test]
    fn nothing_may_be_displaced() {
        let now = Instant::now();
        let mut decision = Decision::default();
        assert!((0..9).all(|_| decision.sampled(0, SOON, 0.0, now).is_none()));
        assert_eq!(decision.sampled(0, SOON, MOST, now), Some(Step::Bind(0)));
        assert_eq!(decision.sampled(0, SOON, 0.0, now), Some(Step::Release));
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
