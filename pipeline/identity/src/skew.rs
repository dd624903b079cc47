//! Observations whose time is far from their arrival, because a clock is wrong somewhere.

use profbridge_model::Profiles;

use crate::cell::timestamp;

/// The threshold, ten minutes, in nanoseconds.
const FAR: u64 = 600 * 1_000_000_000;

/// Whether an event time is far from its arrival, both in nanoseconds since the Unix epoch.
#[inline]
pub fn is_far(time_unix_nano: u64, arrival_unix_nano: u64) -> bool {
    time_unix_nano.abs_diff(arrival_unix_nano) > FAR
}

/// How many observations of a batch are far from their arrival. Observations without a time do not count.
pub fn far_observations(profiles: &Profiles, arrival_unix_nano: u64) -> u64 {
    let is_far = |time| is_far(time, arrival_unix_nano);
    let mut count = 0;
    for profile in profiles.profiles() {
        // Reads only this column, because it runs for every request.
        for &timestamps in &profiles.columns().timestamps[profile.samples.start as usize..profile.samples.end as usize]
        {
            let (times, _) = profiles.dictionary().bytes(timestamps).as_chunks::<8>();
            let start = profile.time_unix_nano;
            count += if times.is_empty() {
                u64::from(start > 0 && is_far(start))
            } else {
                times.iter().filter(|&&time| is_far(timestamp(time))).count() as u64
            };
        }
    }
    count
}
