//! Removes some observations from a batch.

use std::sync::Arc;

use super::{Profile, Profiles, Sample, Samples};
use crate::buffer::ByteRange;
use crate::compact::split_values;

impl Profiles {
    /// The observations for which `keep` returns true, or `None` if none is left. `keep` gets the position of the
    /// resource, the profile, the sample and the time (`None` if the sample has none). The tables and the bytes of
    /// times and values are shared with this batch; a sample whose removed times lie between kept ones becomes several
    /// samples. Profiles with removed observations lose their `original_payload`, which no longer matches.
    #[must_use]
    pub fn retain(&self, mut keep: impl FnMut(u32, &Profile, &Sample<'_>, Option<u64>) -> bool) -> Option<Self> {
        let mut samples = Samples::default();
        let resources = self.map_resources(|[position, ..], profile| {
            let start = samples.len() as u32;
            for row in profile.samples.clone() {
                let sample = self.sample(row);
                self.retain_of(row, &mut samples, |time| keep(position as u32, profile, &sample, time));
            }
            let mut left = Profile { samples: start..samples.len() as u32, ..profile.clone() };
            let observations = left.samples.clone().map(|row| observations(&samples, row)).sum::<u64>();
            if observations < self.observations_of(profile) {
                (left.original_payload, left.original_payload_format) = (ByteRange::default(), None);
            }
            (!left.samples.is_empty()).then_some(left)
        });
        if resources.is_empty() {
            return None;
        }
        let mut left = Self::from_checked(Arc::clone(&self.dictionary), resources, samples);
        if left.observations() == self.observations() {
            return Some(self.clone());
        }
        left.peer.clone_from(&self.peer);
        left.relayed = self.relayed;
        left.window.clone_from(&self.window);
        Some(left)
    }

    /// Appends the kept part of a row.
    fn retain_of(&self, row: u32, to: &mut Samples, mut keep: impl FnMut(Option<u64>) -> bool) {
        let sample = self.sample(row);
        let row = row as usize;
        let (timestamps, values) = (self.samples.timestamps[row], self.samples.values_at(row));
        let mut push = |timestamps, values| to.push(sample.ids, timestamps, values);
        if timestamps.is_empty() {
            if keep(None) {
                push(timestamps, values);
            }
            return;
        }
        // Runs of kept times, with their values.
        let (mut run, mut at, mut values_at, mut values_left) = (0_u32, 0_u32, values.start, sample.values);
        let mut put = |run: u32, at: u32, values_at: &mut u32, values_left: &mut &[u8], kept: bool| {
            let (taken, rest) = split_values(values_left, (at - run) as usize);
            let taken_len = taken.len() as u32;
            if kept && at > run {
                let times = ByteRange { start: timestamps.start + run * 8, len: (at - run) * 8 };
                let values = ByteRange { start: *values_at, len: taken_len };
                push(times, if taken_len == 0 { ByteRange::default() } else { values });
            }
            (*values_at, *values_left) = (*values_at + taken_len, rest);
        };
        let mut kept = false;
        for time in sample.timestamps() {
            let keeps = keep(Some(time));
            if keeps != kept {
                put(run, at, &mut values_at, &mut values_left, kept);
                (run, kept) = (at, keeps);
            }
            at += 1;
        }
        put(run, at, &mut values_at, &mut values_left, kept);
    }
}

fn observations(samples: &Samples, row: u32) -> u64 {
    u64::from(samples.timestamps[row as usize].len / 8).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Builder;

    /// All observations of a batch: the service, the time and the value of each.
    fn all(batch: &Profiles) -> Vec<(String, Option<u64>, Option<i64>)> {
        let mut all = Vec::new();
        for resource in batch.resources() {
            let name = match batch.find(&resource.resource.attributes, "service.name") {
                Some(crate::Value::String(text)) => batch.dictionary().string(*text).to_owned(),
                _ => String::new(),
            };
            for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
                for sample in batch.samples(profile) {
                    let mut values = sample.values();
                    if sample.timestamps().len() == 0 {
                        all.push((name.clone(), None, values.next()));
                    }
                    all.extend(sample.timestamps().map(|time| (name.clone(), Some(time), values.next())));
                }
            }
        }
        all
    }

    proptest! {
        /// Guarantees: the observations selected by `keep` remain, in order and with their values; `None` if none
        /// remains.
        #[test]
        fn keeps_what_it_is_told(
            samples in prop::collection::vec((prop::collection::vec(0u64..50, 0..8), any::<bool>(), 0usize..3), 0..12),
            kept in prop::collection::btree_set(0u64..50, 0..40),
            untimed: bool,
        ) {
            let mut builder = Builder::new();
            let frame = builder.frame("f", "f.c", 1);
            let stack = builder.stack(&[frame]);
            for resource in ["a", "b", "c"].iter().enumerate() {
                builder.resource(&[("service.name", (*resource.1).into())]);
                builder.on_cpu(20);
                for (times, has_values, _) in samples.iter().filter(|sample| sample.2 == resource.0) {
                    let values: Vec<i64> = match (times.len(), has_values) {
                        (0, _) => vec![7],
                        (len, true) => (0..len as i64).map(|n| n * 1000).collect(),
                        _ => Vec::new(),
                    };
                    builder.sample(stack, None, None, times, &values);
                }
            }
            let mut batch = builder.finish().unwrap();
            batch.peer = Some("peer".into());
            let keep = |resource: u32, time: Option<u64>| {
                resource != 2 && time.map_or(untimed, |time| kept.contains(&time))
            };
            let left = batch.retain(|resource, _, _, time| keep(resource, time));
            let index = |name: &str| ["a", "b", "c"].iter().position(|known| *known == name).unwrap() as u32;
            let expected: Vec<_> =
                all(&batch).into_iter().filter(|(name, time, _)| keep(index(name), *time)).collect();
            prop_assert_eq!(left.as_ref().map_or(0, Profiles::observations), expected.len() as u64);
            prop_assert_eq!(left.as_ref().map(all).unwrap_or_default(), expected);
            prop_assert!(left.is_none_or(|left| left.peer.as_deref() == Some("peer")));
        }
    }

    /// Guarantees: a batch from which nothing is removed stays the same, including its original request bytes;
    /// otherwise the bytes are dropped.
    #[test]
    fn nothing_left_out_nothing_changed() {
        let mut builder = Builder::new();
        builder.on_cpu(20);
        builder.sample(None, None, None, &[1, 2, 3], &[]);
        let mut batch = builder.finish().unwrap();
        batch.received = Some(bytes::Bytes::from_static(b"request"));
        assert!(batch.retain(|_, _, _, _| true).unwrap().received.is_some());
        let thinned = batch.retain(|_, _, _, time| time != Some(2)).unwrap();
        assert_eq!((thinned.received.is_none(), thinned.observations(), thinned.columns().len()), (true, 2, 2));
    }
}
