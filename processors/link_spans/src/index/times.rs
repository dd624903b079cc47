//! Which times of a batch count, and which observation of a process is its last, where clocks are set and times are
//! wrong.
//!
//! A time may be wrong, such as one of a program that took it from somewhere else, and then it should cost nothing but
//! itself. A clock may be set, and then what was observed before is of no use for what comes since. Who sends something
//! once more, or late, looks like the latter, all the more where its clock is ahead of this machine's: so nothing is
//! forgotten at once.

use super::Process;
use crate::covered::Stretch;

/// Observations of a process that are further ahead of others are none of the same time, in nanoseconds: profilers send
/// every few seconds, and wait up to a minute.
const AHEAD: u64 = 120_000_000_000;

/// What is further from other times of a process is not of the same setting of its clock, or wrong: 24 days.
const FAR: u64 = 24 * 24 * 3600 * 1_000_000_000;

/// That the last observation of a process was far from those before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leap {
    /// The last one before, in nanoseconds since the Unix epoch.
    from: u64,
    /// When that was, in the monotonic time.
    at: u64,
}

impl Process {
    /// Leaves out what is weeks from other times, of which those count that are nearer to when they came, and what is
    /// far ahead of the rest of its batch: of that which is nearer to when it came, and of what was observed before. What
    /// is left makes up its last observation. How many times were left out.
    pub(super) fn take_times(&mut self, batch: &mut [&mut Vec<Stretch>], arrival: u64, now: u64) -> u64 {
        let known = Some(self.last).filter(|last| *last > 0);
        let around = nearest(batch, arrival).into_iter().chain(known).min_by_key(|time| time.abs_diff(arrival));
        let mut left_out = leave_out(batch, |stretch| around.is_some_and(|around| stretch.end.abs_diff(around) > FAR));
        let Some(nearest) = nearest(batch, arrival) else { return left_out };
        // Where a sender's clock is ahead of ours what is old comes nearer to when it came than what is new.
        let mut reach = nearest.max(self.last);
        let mut last = all(batch).map(|stretch| stretch.end).max().unwrap_or(nearest);
        if last > reach.saturating_add(AHEAD) {
            let mut later: Vec<Stretch> = all(batch).filter(|stretch| stretch.end > nearest).copied().collect();
            later.sort_unstable();
            last = nearest;
            for stretch in later {
                if stretch.start > reach.saturating_add(AHEAD) {
                    break;
                }
                (reach, last) = (reach.max(stretch.end), last.max(stretch.end));
            }
            left_out += leave_out(batch, |stretch| stretch.start > reach.saturating_add(AHEAD));
        }
        if self.last > 0 && self.last.abs_diff(last) > AHEAD {
            self.leap = Some(Leap { from: self.last, at: now });
            self.last = last;
        } else {
            self.last = self.last.max(last);
        }
        left_out
    }

    /// The time of which observations are remembered: from `keep` nanoseconds before the last one on, and not what is
    /// far ahead of that. As long as it may turn out that the last one is wrong, or was sent late, also that about the
    /// one before.
    pub(super) fn remembered(&self, now: u64, keep: u64) -> Stretch {
        let before = self.leap.filter(|leap| now.saturating_sub(leap.at) <= keep).map_or(self.last, |leap| leap.from);
        let (first, last) = (self.last.min(before), self.last.max(before));
        Stretch { start: first.saturating_sub(keep), end: last.saturating_add(AHEAD) }
    }
}

fn all<'a>(batch: &'a [&mut Vec<Stretch>]) -> impl Iterator<Item = &'a Stretch> {
    batch.iter().flat_map(|stretches| stretches.iter())
}

/// The end that is nearest to when the batch came.
fn nearest(batch: &[&mut Vec<Stretch>], arrival: u64) -> Option<u64> {
    all(batch).map(|stretch| stretch.end).min_by_key(|end| end.abs_diff(arrival))
}

/// Leaves out some stretches. How many.
fn leave_out(batch: &mut [&mut Vec<Stretch>], is_wrong: impl Fn(&Stretch) -> bool) -> u64 {
    let count = |batch: &[&mut Vec<Stretch>]| batch.iter().map(|stretches| stretches.len() as u64).sum::<u64>();
    let before = count(batch);
    batch.iter_mut().for_each(|stretches| stretches.retain(|stretch| !is_wrong(stretch)));
    before - count(batch)
}
