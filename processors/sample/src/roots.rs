//! Stores the times during which sampled root spans of each process were open.

use std::collections::{BTreeMap, HashMap};

/// The maximum number of stored time ranges. Beyond that, the older half is dropped early.
const MOST: usize = 1 << 16;

/// Time ranges in which at least one sampled root span was open, by process name. Ranges that overlap or touch are
/// merged, so a busy process has few ranges.
#[derive(Debug, Default)]
pub(crate) struct RootSpanTimes {
    by_name: HashMap<u128, BTreeMap<u64, TimeRange>>,
    count: usize,
    /// Monotonic time before which no sweep is needed.
    next_sweep: u64,
}

/// An inclusive time range, keyed by its start, in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
struct TimeRange {
    end: u64,
    /// Monotonic time at which the range is dropped.
    until: u64,
}

impl RootSpanTimes {
    /// Records a sampled root span, open from `start` to `end` in nanoseconds since the Unix epoch, until the monotonic
    /// time `until`. Returns how many ranges had to be dropped early.
    pub(crate) fn add(&mut self, names: &[u128], start: u64, end: u64, until: u64) -> u64 {
        for name in names {
            let stretches = self.by_name.entry(*name).or_default();
            let (mut start, mut new) = (start, TimeRange { end, until });
            while let Some((&begin, &known)) = stretches.range(..=new.end).next_back().filter(|(_, of)| of.end >= start)
            {
                stretches.remove(&begin);
                self.count -= 1;
                start = start.min(begin);
                new = TimeRange { end: new.end.max(known.end), until: new.until.max(known.until) };
            }
            stretches.insert(start, new);
            self.count += 1;
        }
        if self.count <= MOST { 0 } else { self.forget_older_half() }
    }

    fn forget_older_half(&mut self) -> u64 {
        let mut times: Vec<u64> = self.by_name.values().flat_map(BTreeMap::values).map(|of| of.until).collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let (median, mut surplus) = (*median, middle);
        let before = self.count;
        // Many ranges may have the same age, so exactly half of all are dropped.
        self.retain(|of| {
            of.until > median || (of.until == median && surplus == 0) || {
                surplus = surplus.saturating_sub(1);
                false
            }
        });
        (before - self.count) as u64
    }

    /// Drops expired ranges, at most once per `every` nanoseconds.
    pub(crate) fn forget(&mut self, now: u64, every: u64) {
        if now >= self.next_sweep {
            self.next_sweep = now.saturating_add(every);
            self.retain(|of| of.until > now);
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(&TimeRange) -> bool) {
        self.by_name.retain(|_, stretches| {
            stretches.retain(|_, of| keep(of));
            !stretches.is_empty()
        });
        self.count = self.by_name.values().map(BTreeMap::len).sum();
        if self.by_name.len() < self.by_name.capacity() / 4 {
            self.by_name.shrink_to_fit();
        }
    }

    /// Whether a sampled root span of a process with one of these names was open at any time from `from` to `to`,
    /// inclusive.
    pub(crate) fn cover(&self, names: &[u128], from: u64, to: u64) -> bool {
        let known = names.iter().filter_map(|name| self.by_name.get(name));
        let mut last = known.filter_map(|stretches| stretches.range(..=to).next_back());
        last.any(|(_, of)| of.end >= from)
    }

    /// Approximate heap size in bytes, assuming tree nodes that are half empty.
    pub(crate) fn bytes(&self) -> usize {
        self.by_name.capacity() * (size_of::<(u128, BTreeMap<u64, TimeRange>)>() + 1)
            + self.count * 2 * size_of::<(u64, TimeRange)>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Guarantees: a time is covered if any of the spans of a process with that name was open then, and only then.
        /// rule: profiles-sdk#lifecycle-trace
        #[test]
        fn covers_what_spans_cover(
            spans in prop::collection::vec((0u128..3, 0u64..60, 0u64..20), 0..20),
            asked in prop::collection::vec((0u128..4, 0u64..80, 0u64..10), 1..30),
        ) {
            let mut roots = RootSpanTimes::default();
            for (name, start, len) in &spans {
                prop_assert_eq!(roots.add(&[*name], *start, start + len, 100), 0);
            }
            for (name, from, len) in asked {
                let overlaps = |(of, start, span): &(u128, u64, u64)| {
                    *of == name && *start <= from + len && start + span >= from
                };
                prop_assert_eq!(roots.cover(&[name, 9], from, from + len), spans.iter().any(overlaps));
            }
            roots.forget(100, 1);
            prop_assert_eq!((roots.count, roots.by_name.len()), (0, 0));
        }
    }

    /// Guarantees: the number of stored ranges is bounded; beyond that the older half is dropped, and counted.
    #[test]
    fn bounded() {
        let mut roots = RootSpanTimes::default();
        let forgotten: u64 = (0..100_000).map(|n| roots.add(&[1], n * 10, n * 10 + 1, n)).sum();
        assert!(roots.count <= MOST && forgotten == 100_000 - roots.count as u64);
        assert!(roots.cover(&[1], 999_990, 999_990) && !roots.cover(&[1], 0, 1));
        let mut equal = RootSpanTimes::default();
        let forgotten: u64 = (0..=MOST as u64).map(|n| equal.add(&[1], n * 10, n * 10 + 1, 5)).sum();
        assert_eq!((forgotten, equal.count), (MOST as u64 / 2, MOST / 2 + 1));
    }
}
