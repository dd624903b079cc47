//! Address ranges that may overlap, each with a number.

/// Address ranges with numbers, searched by address.
#[derive(Debug, Default)]
pub(crate) struct Intervals {
    /// The ranges in order of their starts.
    entries: Vec<Interval>,
}

#[derive(Debug, Clone, Copy)]
struct Interval {
    start: u64,
    end: u64,
    /// The largest end of this range and all ranges before it.
    reach: u64,
    value: usize,
}

impl Intervals {
    /// Size of one range in memory, in bytes.
    pub(crate) const BYTES: usize = size_of::<Interval>();

    /// Adds a range. Call [`Intervals::sort`] before searching.
    pub(crate) fn push(&mut self, start: u64, end: u64, value: usize) {
        if start < end {
            self.entries.push(Interval { start, end, reach: end, value });
        }
    }

    pub(crate) fn sort(&mut self) {
        self.entries.sort_unstable_by_key(|entry| (entry.start, std::cmp::Reverse(entry.end), entry.value));
        self.entries.shrink_to_fit();
        let mut reach = 0;
        for entry in &mut self.entries {
            reach = reach.max(entry.end);
            entry.reach = reach;
        }
    }

    /// The numbers of the ranges that contain an address, in descending order of their starts. Visits at most `steps`
    /// ranges.
    pub(crate) fn find(&self, address: u64, steps: usize) -> impl Iterator<Item = usize> + '_ {
        let after = self.entries.partition_point(|entry| entry.start <= address);
        let before = self.entries[..after].iter().rev().take(steps);
        before
            .take_while(move |entry| entry.reach > address)
            .filter(move |entry| entry.end > address)
            .map(|entry| entry.value)
    }
}
