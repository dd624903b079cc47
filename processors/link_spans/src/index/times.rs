//! Decides which times of a batch count, and which observation of a process is its last, although clocks get set and
//! times may be wrong.
//!
//! A single wrong time, such as one that a program copied from elsewhere, should invalidate nothing but itself. After a
//! clock was set, earlier observations are useless for later spans. But a repeated or late batch looks the same as a
//! set clock, even more so if the sender's clock is ahead of this machine's. So nothing is forgotten at once.

use super::ObservedProcess;
use crate::observed_times::TimeRange;

/// Observations of a process that are further ahead of others than this belong to another time, in nanoseconds:
/// profilers send every few seconds and wait up to a minute.
const AHEAD: u64 = 120_000_000_000;

/// A time further than this from others of its process is wrong, or the clock was set: 24 days.
const FAR: u64 = 24 * 24 * 3600 * 1_000_000_000;

/// A jump of the last observation of a process far from those before.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockLeap {
    /// The end of the last observation before it, in nanoseconds since the Unix epoch.
    from: u64,
    /// When the jump was noticed, in monotonic time.
    at: u64,
}

impl ObservedProcess {
    /// Removes wrong times from a batch and updates the last observation of the process. Two kinds are wrong: times
    /// that are weeks from the others, where the times nearest to the arrival are trusted; and times far ahead of both
    /// the trusted time of the batch and earlier observations. Returns how many were removed.
    pub(super) fn filter_times(&mut self, batch: &mut [&mut Vec<TimeRange>], arrival: u64, now: u64) -> u64 {
        let known = Some(self.last).filter(|last| *last > 0);
        let around = nearest(batch, arrival).into_iter().chain(known).min_by_key(|time| time.abs_diff(arrival));
        let mut left_out =
            remove_wrong(batch, |stretch| around.is_some_and(|around| stretch.end.abs_diff(around) > FAR));
        let Some(nearest) = nearest(batch, arrival) else { return left_out };
        // If the sender's clock is ahead of ours, old times lie nearer to the arrival than new ones.
        let mut reach = nearest.max(self.last);
        let mut last = all(batch).map(|stretch| stretch.end).max().unwrap_or(nearest);
        if last > reach.saturating_add(AHEAD) {
            let mut later: Vec<TimeRange> = all(batch).filter(|stretch| stretch.end > nearest).copied().collect();
            later.sort_unstable();
            last = nearest;
            for stretch in later {
                if stretch.start > reach.saturating_add(AHEAD) {
                    break;
                }
                (reach, last) = (reach.max(stretch.end), last.max(stretch.end));
            }
            left_out += remove_wrong(batch, |stretch| stretch.start > reach.saturating_add(AHEAD));
        }
        if self.last > 0 && self.last.abs_diff(last) > AHEAD {
            self.leap = Some(ClockLeap { from: self.last, at: now });
            self.last = last;
        } else {
            self.last = self.last.max(last);
        }
        left_out
    }

    /// The time range in which observations are remembered: from `keep` nanoseconds before the last one, and not far
    /// ahead of it. For `keep` nanoseconds after a jump, the range around the observation before it counts too: the
    /// jump may turn out to be a wrong time or a late batch.
    pub(super) fn remembered(&self, now: u64, keep: u64) -> TimeRange {
        let before = self.leap.filter(|leap| now.saturating_sub(leap.at) <= keep).map_or(self.last, |leap| leap.from);
        let (first, last) = (self.last.min(before), self.last.max(before));
        TimeRange { start: first.saturating_sub(keep), end: last.saturating_add(AHEAD) }
    }
}

fn all<'a>(batch: &'a [&mut Vec<TimeRange>]) -> impl Iterator<Item = &'a TimeRange> {
    batch.iter().flat_map(|stretches| stretches.iter())
}

/// The end that is nearest to the arrival of the batch.
fn nearest(batch: &[&mut Vec<TimeRange>], arrival: u64) -> Option<u64> {
    all(batch).map(|stretch| stretch.end).min_by_key(|end| end.abs_diff(arrival))
}

/// Removes wrong stretches. Returns how many.
fn remove_wrong(batch: &mut [&mut Vec<TimeRange>], is_wrong: impl Fn(&TimeRange) -> bool) -> u64 {
    let count = |batch: &[&mut Vec<TimeRange>]| batch.iter().map(|stretches| stretches.len() as u64).sum::<u64>();
    let before = count(batch);
    batch.iter_mut().for_each(|stretches| stretches.retain(|stretch| !is_wrong(stretch)));
    before - count(batch)
}
