//! Counts observations whose time is far from the time of their arrival: a clock is wrong somewhere.

use profbridge_engine::component::{Now, Outbox};
use profbridge_model::Profiles;

use crate::cell::timestamp;

/// Further than this is far: ten minutes, in nanoseconds.
const FAR: u64 = 600 * 1_000_000_000;

/// How many observations were far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Skew(u64);

impl Skew {
    /// Whether an event time is far from its arrival.
    #[inline]
    pub(crate) fn is_far(time: u64, now: Now) -> bool {
        time.abs_diff(now.unix_nano) > FAR
    }

    /// Looks at every observation of a batch. What does not say when it was is not far.
    pub(crate) fn look_at(&mut self, profiles: &Profiles, now: Now) {
        for profile in profiles.profiles() {
            for sample in profiles.samples(profile) {
                let (times, _) = sample.timestamps_bytes().as_chunks::<8>();
                let far = times.iter().filter(|&&time| Self::is_far(timestamp(time), now)).count() as u64;
                let start = profile.time_unix_nano;
                let ranged = times.is_empty() && start > 0 && Self::is_far(start, now);
                self.0 += far + u64::from(ranged);
            }
        }
    }

    /// Counts them.
    pub(crate) fn note(self, out: &mut Outbox) {
        if self.0 > 0 {
            out.note(crate::TIME_SKEW, self.0);
        }
    }
}
