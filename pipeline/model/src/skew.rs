//! Finds wrong times of profiles (before such profiles existed, or far from their arrival) and replaces them.
//!
//! A wrong clock or a wrong unit affects all times of a sender alike. So wrong times are shifted together and keep
//! their distances, unless they are too far apart.

use std::sync::Arc;

use crate::buffer::ByteRange;
use crate::dictionary::Dictionary;
use crate::profiles::{Profile, Profiles, Samples};

/// A day, in nanoseconds.
const DAY: u64 = 86_400 * 1_000_000_000;

/// The first moment of 2000, in nanoseconds since the Unix epoch.
const YEAR_2000: u64 = 946_684_800 * 1_000_000_000;

/// The times that can be right, and the replacements of others. In nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
pub struct Plausible {
    earliest: u64,
    latest: u64,
    arrival: u64,
    stated: StatedTime,
}

/// The time at which the profiles of a batch were made, as their sender states it separately from the profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatedTime {
    /// The start, in nanoseconds since the Unix epoch; 0 if unknown.
    pub time_unix_nano: u64,
    /// The duration, in nanoseconds; 0 if unknown.
    pub duration_nano: u64,
}

/// The wrong times of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongTimes {
    /// The number of observations with a wrong time, or of profiles with a wrong start.
    pub observations: u64,
    /// One of the wrong times.
    pub example: u64,
}

/// How the wrong times of a profile are replaced.
#[derive(Clone, Copy)]
struct TimeShift {
    plausible: Plausible,
    /// The offset that is added to wrong times, with wrapping.
    shift: u64,
    /// The replacement of times that are wrong even with the offset.
    otherwise: u64,
}

impl Plausible {
    /// Accepts times from 2000 on, up to a day before and after the arrival of a batch. If the clock of this machine
    /// itself shows a time before 2000, no time can be judged, and only 0 is wrong.
    pub fn at_arrival(arrival: u64) -> Self {
        let (earliest, latest) = match arrival {
            ..YEAR_2000 => (1, u64::MAX),
            _ => ((arrival - DAY).max(YEAR_2000), arrival.saturating_add(DAY)),
        };
        Self { earliest, latest, arrival, stated: StatedTime::default() }
    }

    /// Accepts times from 2000 to a day from now, since files may be old.
    pub fn in_files(now: u64) -> Self {
        Self { earliest: YEAR_2000, ..Self::at_arrival(now.max(YEAR_2000)) }
    }

    /// Adds a stated time, for profiles without a time or with a wrong one.
    #[must_use]
    pub fn with_stated(self, stated: StatedTime) -> Self {
        Self { stated, ..self }
    }

    #[inline]
    fn is_right(&self, time: u64) -> bool {
        // Uses one comparison, because this runs for each observation of each request.
        time.wrapping_sub(self.earliest) <= self.latest - self.earliest
    }

    /// The start of a profile according to itself, or else as stated; 0 if it is unknown.
    fn start_of(&self, profile: &Profile) -> u64 {
        if profile.time_unix_nano == 0 { self.stated.time_unix_nano } else { profile.time_unix_nano }
    }

    fn wrong_start(&self, profile: &Profile) -> Option<u64> {
        Some(self.start_of(profile)).filter(|&start| start != 0 && !self.is_right(start))
    }

    /// The wrong times of a batch; `None` if all are right.
    pub fn wrong_times(&self, batch: &Profiles) -> Option<WrongTimes> {
        let mut wrong = WrongTimes { observations: 0, example: 0 };
        for profile in batch.profiles() {
            if let Some(start) = self.wrong_start(profile) {
                wrong.observations += batch.observations_of(profile);
                wrong.example = start;
                continue;
            }
            // Reads only this column, because this runs for each request.
            for &range in &batch.columns().timestamps[profile.samples.start as usize..profile.samples.end as usize] {
                for time in times(batch.dictionary().bytes(range)) {
                    if !self.is_right(time) {
                        wrong.observations += 1;
                        wrong.example = time;
                    }
                }
            }
        }
        (wrong.observations > 0).then_some(wrong)
    }

    /// Replaces the wrong times of a batch, and adds the stated time to profiles without one.
    ///
    /// If a profile's own start is right, its wrong times are shifted so that the first becomes that start. All other
    /// wrong times of the batch are shifted together, so that the first becomes the stated time, or without one the
    /// last becomes the arrival.
    #[must_use]
    pub fn correct(&self, batch: Profiles) -> Profiles {
        let free = batch.profiles().filter(|profile| !self.is_right(profile.time_unix_nano));
        let extents = free.filter_map(|profile| self.wrong_extent(&batch, profile));
        let all = extents.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let mut timestamps = batch.columns().timestamps.clone();
        let (mut moved, begin) = (Vec::new(), batch.dictionary().tables().buffer.len());
        let resources = batch.map_resources(|_, profile| {
            let wrong = self.wrong_extent(&batch, profile);
            let step = self.move_of(profile, wrong, all);
            let mut first = u64::MAX;
            for range in &mut timestamps[profile.samples.start as usize..profile.samples.end as usize] {
                let bytes = batch.dictionary().bytes(*range);
                first = times(bytes).map(|time| step.of(time)).fold(first, u64::min);
                // A range must start within 4 GiB. Wrong times beyond that stay.
                if let Ok(start) = u32::try_from(begin + moved.len())
                    && !times(bytes).all(|time| self.is_right(time))
                {
                    *range = ByteRange { start, len: range.len };
                    moved.extend(times(bytes).flat_map(|time| step.of(time).to_le_bytes()));
                }
            }
            let mut corrected = self.with_times(profile, step, first);
            if wrong.is_some() {
                // The original payload no longer matches.
                (corrected.original_payload, corrected.original_payload_format) = (ByteRange::default(), None);
            }
            Some(corrected)
        });
        let Profiles { dictionary, samples, peer, relayed, window, .. } = batch;
        let mut tables = Arc::unwrap_or_clone(dictionary).into_tables();
        tables.buffer.append(&moved);
        let samples = Samples { timestamps, ..Arc::unwrap_or_clone(samples) };
        let mut corrected = Profiles::from_checked(Arc::new(Dictionary::from_checked(tables)), resources, samples);
        (corrected.peer, corrected.relayed, corrected.window) = (peer, relayed, window);
        corrected
    }

    /// The first and the last wrong time of a profile; if its start is wrong, its start and end count too.
    fn wrong_extent(&self, batch: &Profiles, profile: &Profile) -> Option<(u64, u64)> {
        let start = self.wrong_start(profile);
        let end = start.map(|start| start.saturating_add(self.duration_of(profile).min(DAY)));
        let times = batch.samples(profile).flat_map(|sample| times(sample.timestamps_bytes()));
        let wrong = times.filter(|&time| !self.is_right(time)).chain(start).chain(end);
        wrong.map(|time| (time, time)).reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// The duration of a profile. If the profile's start is in a wrong unit, the duration probably is too, so the
    /// stated one is preferred.
    fn duration_of(&self, profile: &Profile) -> u64 {
        let own = profile.duration_nano;
        let is_doubtful = profile.time_unix_nano != 0 && !self.is_right(profile.time_unix_nano);
        let stated = self.stated.duration_nano;
        if own == 0 || is_doubtful && stated != 0 { stated } else { own }
    }

    /// How the wrong times of a profile are shifted. They extend over `own`, and those of the whole batch over `all`.
    fn move_of(&self, profile: &Profile, own: Option<(u64, u64)>, all: Option<(u64, u64)>) -> TimeShift {
        let stated = Some(self.stated.time_unix_nano).filter(|&time| self.is_right(time));
        let right = Some(profile.time_unix_nano).filter(|&time| self.is_right(time));
        let by = |extent: Option<(u64, u64)>, start: Option<u64>| {
            let (first, last) = extent.unwrap_or_default();
            start.map_or(self.arrival.wrapping_sub(last), |start| start.wrapping_sub(first))
        };
        let step = |shift| TimeShift { plausible: *self, shift, otherwise: right.or(stated).unwrap_or(self.arrival) };
        let together = by(all, stated);
        let fits = own
            .is_some_and(|(first, last)| [first, last].iter().all(|time| self.is_right(time.wrapping_add(together))));
        match right {
            None if fits => step(together),
            _ => step(by(own, right.or(stated))),
        }
    }

    /// A profile with corrected times, whose first timestamp is `first`.
    fn with_times(&self, profile: &Profile, step: TimeShift, first: u64) -> Profile {
        let mut corrected = Profile { duration_nano: self.duration_of(profile), ..profile.clone() };
        if !self.is_right(profile.time_unix_nano) {
            corrected.time_unix_nano = match self.start_of(profile) {
                0 => 0,
                start => step.of(start).min(first),
            };
        }
        corrected
    }
}

impl TimeShift {
    fn of(self, time: u64) -> u64 {
        let moved = time.wrapping_add(self.shift);
        match self.plausible {
            plausible if plausible.is_right(time) => time,
            plausible if plausible.is_right(moved) => moved,
            _ => self.otherwise,
        }
    }
}

fn times(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|&time| u64::from_le_bytes(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;

    const ARRIVAL: u64 = 1_760_000_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    /// Corrects a batch of profiles, each with its start, duration and timestamps. Returns these fields of the
    /// corrected profiles, and the number of observations with wrong times.
    fn corrected(plausible: Plausible, profiles: &[(u64, u64, &[u64])]) -> (Vec<(u64, u64, Vec<u64>)>, u64) {
        let mut builder = Builder::new();
        builder.resource(&[]);
        for &(time_unix_nano, duration_nano, times) in profiles {
            builder.profile(Profile { time_unix_nano, duration_nano, ..Profile::default() });
            let values = if times.is_empty() { &[7][..] } else { &[] };
            builder.sample(None, None, None, times, values);
        }
        let mut batch = builder.finish().unwrap();
        (batch.peer, batch.relayed) = (Some("peer".into()), true);
        let wrong = plausible.wrong_times(&batch).map_or(0, |wrong| wrong.observations);
        let batch = plausible.correct(batch);
        assert_eq!((plausible.wrong_times(&batch), batch.peer.as_deref(), batch.relayed), (None, Some("peer"), true));
        let profiles = batch.profiles().map(|profile| {
            let times = batch.samples(profile).flat_map(|sample| times(sample.timestamps_bytes())).collect();
            (profile.time_unix_nano, profile.duration_nano, times)
        });
        (profiles.collect(), wrong)
    }

    /// Guarantees: wrong times of a batch are shifted together, so that the last becomes the arrival, including the
    /// start of the profile; a profile of which only the start is wrong begins with its first timestamp.
    #[test]
    fn taken_at_arrival() {
        let at = Plausible::at_arrival(ARRIVAL);
        let micros = ARRIVAL / 1000;
        let (profiles, wrong) = corrected(
            at,
            &[(micros, 50, &[micros + 10, micros + 30]), (micros + 20, 40, &[]), (0, 0, &[micros + 5]), (0, 9, &[])],
        );
        let begun = ARRIVAL - 60;
        let expected = [
            (begun, 50, vec![begun + 10, begun + 30]),
            (begun + 20, 40, vec![]),
            (0, 0, vec![begun + 5]),
            (0, 9, vec![]),
        ];
        assert_eq!((profiles, wrong), (expected.to_vec(), 4));
        let right = [ARRIVAL - SECOND, ARRIVAL];
        let (profiles, wrong) = corrected(at, &[(micros, 5, &right)]);
        assert_eq!((profiles, wrong), (vec![(right[0], 5, right.to_vec())], 2));
    }

    /// Guarantees: if the start of a profile is right, its wrong timestamps are shifted to that start, and the others
    /// stay; times that are too far apart are replaced by the start or the arrival.
    /// rule: otep-0239#timestamps-in-range
    #[test]
    fn single_times() {
        let at = Plausible::at_arrival(ARRIVAL);
        let start = ARRIVAL - 5 * SECOND;
        let right = [start, start + SECOND];
        let (profiles, wrong) = corrected(
            at,
            &[
                (start, 5 * SECOND, &[right[1], 0, 40]),
                (start, 0, &right),
                (0, 0, &[right[0], 3]),
                (start, 0, &[7, 3 * DAY]),
            ],
        );
        let expected = [
            (start, 5 * SECOND, vec![right[1], start, start + 40]),
            (start, 0, right.to_vec()),
            (0, 0, vec![right[0], ARRIVAL]),
            (start, 0, vec![start, start]),
        ];
        assert_eq!((profiles, wrong), (expected.to_vec(), 5));
        let (profiles, _) = corrected(at, &[(5, 0, &[]), (ARRIVAL / 1000, 0, &[]), (0, 0, &[5, ARRIVAL / 1000])]);
        let last = vec![ARRIVAL, ARRIVAL];
        assert_eq!(profiles, [(ARRIVAL, 0, vec![]), (ARRIVAL, 0, vec![]), (0, 0, last)]);
    }

    /// Guarantees: the limit is a day, in both directions; and if the clock itself is wrong, no time is judged.
    #[test]
    fn limits() {
        let at = Plausible::at_arrival(ARRIVAL);
        for (time, wrong) in [(DAY, 0), (DAY + 1, 1)] {
            assert_eq!(corrected(at, &[(ARRIVAL - time, 0, &[])]).1, wrong);
            assert_eq!(corrected(at, &[(0, 0, &[ARRIVAL + time])]).1, wrong);
        }
        assert_eq!(corrected(Plausible::at_arrival(5), &[(ARRIVAL, 0, &[1])]).1, 0);
        assert_eq!(corrected(Plausible::in_files(ARRIVAL), &[(YEAR_2000, 0, &[]), (YEAR_2000 - 1, 0, &[])]).1, 1);
    }

    /// Guarantees: a stated time that is right itself becomes the start of profiles without a start and with a wrong
    /// one; a stated duration becomes the duration of profiles without a duration and of those with a wrong start.
    #[test]
    fn stated() {
        let start = ARRIVAL - DAY / 2;
        let stated = StatedTime { time_unix_nano: start, duration_nano: 8 };
        let at = Plausible::at_arrival(ARRIVAL).with_stated(stated);
        let profiles: [(u64, u64, &[u64]); 5] =
            [(0, 0, &[]), (start + 1, 0, &[]), (start + 2, 3, &[]), (20, 3, &[25, 27]), (23, 3, &[])];
        let expected = [
            (start, 8, vec![]),
            (start + 1, 8, vec![]),
            (start + 2, 3, vec![]),
            (start, 8, vec![start + 5, start + 7]),
            (start + 3, 8, vec![]),
        ];
        assert_eq!(corrected(at, &profiles), (expected.to_vec(), 3));
        let wrong = Plausible::at_arrival(ARRIVAL).with_stated(StatedTime { time_unix_nano: 5, duration_nano: 8 });
        assert_eq!(corrected(wrong, &[(0, 0, &[])]), (vec![(ARRIVAL - 8, 8, vec![])], 1));
    }
}
