//! Selects the samples of a profile that count, and validates them: see the rules of [`v1_reader`](super).

use hashbrown::HashMap;

use super::model::{V1Sample, V1Transaction};
use super::number::Whole;
use crate::sentry::sampled::ProfileError;

/// The latest time of the last sample, in nanoseconds since the profile's start.
const MAX_NANOS: u64 = 30_000_000_000;

/// Drops the samples that do not count, and validates the rest. `frames_of` returns the number of frames of a stack, or
/// `None` if there is no such stack.
///
/// # Errors
///
/// No sample is left, a stack is missing, or the last sample was taken too late.
pub(super) fn apply(
    samples: &mut Vec<V1Sample>,
    transaction: &V1Transaction<'_>,
    frames_of: impl Fn(u64) -> Option<usize>,
) -> Result<(), ProfileError> {
    let nanos = |number: Option<Whole>| number.unwrap_or_default().0;
    let (start, end) = (nanos(transaction.relative_start_ns), nanos(transaction.relative_end_ns));
    if end > 0 {
        samples.retain(|sample| (start..=end).contains(&sample.elapsed_since_start_ns.0));
    }
    leave_out_idle_ends(samples, &frames_of);
    leave_out_lone(samples);
    let Some(last) = samples.last() else {
        let rule = "no thread has two samples, from its first to its last with frames (profiling_not_enough_samples)";
        return Err(ProfileError::rule("profile.samples", rule));
    };
    if let Some(sample) = samples.iter().find(|sample| frames_of(sample.stack_id.0).is_none()) {
        let rule = format!("there is no stack {} (profiling_malformed_samples)", sample.stack_id.0);
        return Err(ProfileError::rule("profile.samples", rule));
    }
    // The order in the list decides, as in Relay, and not the time.
    if last.elapsed_since_start_ns.0 > MAX_NANOS {
        let rule = "the last sample was taken after more than 30 s (profiling_duration_is_too_long)";
        return Err(ProfileError::rule("profile.samples", rule));
    }
    Ok(())
}

/// Drops each thread's samples before its first and after its last one with frames, in the order of the list. A missing
/// stack counts as one without frames.
fn leave_out_idle_ends(samples: &mut Vec<V1Sample>, frames_of: &impl Fn(u64) -> Option<usize>) {
    let mut active: HashMap<u64, (usize, usize)> = HashMap::default();
    for (at, sample) in samples.iter().enumerate() {
        if frames_of(sample.stack_id.0).is_some_and(|frames| frames > 0) {
            active.entry(sample.thread_id.0).or_insert((at, at)).1 = at;
        }
    }
    let mut at = 0;
    samples.retain(|sample| {
        at += 1;
        active.get(&sample.thread_id.0).is_some_and(|&(first, last)| (first..=last).contains(&(at - 1)))
    });
}

/// Drops the only sample of a thread: it has no duration.
fn leave_out_lone(samples: &mut Vec<V1Sample>) {
    let mut counts: HashMap<u64, u64> = HashMap::default();
    for sample in samples.iter() {
        *counts.entry(sample.thread_id.0).or_default() += 1;
    }
    samples.retain(|sample| counts.get(&sample.thread_id.0).is_some_and(|&count| count > 1));
}
