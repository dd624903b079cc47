//! Joins the parts of a run (a long observation of one blocked stack) that came in several batches, and divides runs
//! where windows may end.

use std::time::Duration;

/// Runs are divided at multiples of this since the Unix epoch. Windows of the processor `chunk` end at such moments,
/// and a Sentry chunk cannot have time beyond its window, so a divided run loses nothing.
pub const CUTS: Duration = Duration::from_millis(500);

/// Observations shorter than this are not divided: they were sampled, not extended while the thread waited.
pub(super) const MIN_RUN: Duration = Duration::from_millis(100);

/// The maximum distance between two parts of one run: the sampler reads the clock again for each batch.
pub(super) const SEAM: Duration = Duration::from_millis(1);

/// The maximum number of pieces of a run: those of an hour.
pub(super) const MAX_PIECES: u64 = 7201;

/// An observation of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimedObservation {
    /// The thread, by its id.
    pub(super) thread: u32,
    /// The number of the row, which has the stack, the attributes and the span.
    pub(super) row: u32,
    /// The start, in nanoseconds since the Unix epoch.
    pub(super) time: u64,
    /// The length, in nanoseconds.
    pub(super) weight: u64,
}

/// Joins the parts of a run that came in several batches, so that the whole run is divided at once. Only consecutive
/// observations of a thread are one run: if a thread wakes up for less than [`SEAM`] and waits again at the same place,
/// its activity in between would otherwise be inside the run, and in Sentry, where a sample lasts until the next one of
/// its thread, the rest of the run would be lost. The time of all observations stays the same.
pub(super) fn join_runs(observations: &mut Vec<TimedObservation>) {
    let is_run = |weight: u64| weight >= MIN_RUN.as_nanos() as u64;
    let end = |one: &TimedObservation| one.time.saturating_add(one.weight);
    observations.sort_unstable_by_key(|one| (one.thread, one.time, one.weight, one.row));
    let mut ends = observations.first().map_or(0, end);
    observations.dedup_by(|one, run| {
        let same = (one.thread, one.row) == (run.thread, run.row)
            && is_run(one.weight)
            && is_run(run.weight)
            && one.time.abs_diff(ends) <= SEAM.as_nanos() as u64;
        ends = end(one);
        if same {
            run.weight = run.weight.saturating_add(one.weight);
        }
        same
    });
}

/// Divides a run at multiples of [`CUTS`]. The pieces add up to the run.
pub(super) fn pieces(time: u64, weight: u64) -> impl Iterator<Item = (u64, u64)> {
    let cuts = CUTS.as_nanos() as u64;
    let end = time.saturating_add(weight);
    let mut next = Some(time);
    let mut left = if weight < MIN_RUN.as_nanos() as u64 { 1 } else { MAX_PIECES };
    std::iter::from_fn(move || {
        let begins = next?;
        left -= 1;
        let cut = (begins / cuts + 1).saturating_mul(cuts);
        // A working sampler reports runs no longer than its own batches. This limit keeps a defective one from filling
        // memory.
        let ends = if left == 0 { end } else { cut.min(end) };
        next = (ends < end).then_some(ends);
        Some((begins, ends - begins))
    })
}
