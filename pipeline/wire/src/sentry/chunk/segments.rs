//! Splits a window into chunks.
//!
//! Sentry bills the time from a chunk's first to its last sample. If the process was idle for a long time, two chunks
//! are cheaper than one.

use super::settings::LoneSamples;
use super::threads::Lane;
use super::timeline::tick;

/// A part of a window: the observations of some threads between two times, both inclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: u64,
    pub(super) to: u64,
    /// The threads, as a range of lane indices.
    pub(super) lanes: std::ops::Range<u32>,
}

/// Maximum number of cells in the search for idle time.
const MAX_CELLS: u64 = 4096;

impl Segment {
    /// A thread's observations in this part.
    pub(super) fn keys<'a>(&self, lane: &'a Lane) -> &'a [u64] {
        let keys = lane.keys.as_slice();
        match (keys.first(), keys.last()) {
            (Some(&first), Some(&last)) if tick(first) >= self.from && tick(last) <= self.to => keys,
            _ => {
                let from = keys.partition_point(|&key| tick(key) < self.from);
                let to = keys.partition_point(|&key| tick(key) <= self.to);
                &keys[from..to.max(from)]
            }
        }
    }

    /// The time of a thread's next observation after this part.
    pub(super) fn next(&self, lane: &Lane) -> Option<u64> {
        let last = lane.keys.last().map(|&key| tick(key)).filter(|&last| last > self.to)?;
        lane.keys.get(lane.keys.partition_point(|&key| tick(key) <= self.to)).map(|&key| tick(key)).or(Some(last))
    }

    /// The lanes of the segment's threads.
    pub(super) fn lanes<'a>(&self, lanes: &'a [Lane]) -> &'a [Lane] {
        lanes.get(self.lanes.start as usize..self.lanes.end as usize).unwrap_or_default()
    }

    /// Splits in half: by time, or else by threads. `None` if it cannot be split further.
    pub(super) fn halves(&self, lanes: &[Lane]) -> Option<(Segment, Segment)> {
        let mut bounds: Option<(u64, u64)> = None;
        for keys in self.lanes(lanes).iter().map(|lane| self.keys(lane)) {
            if let (Some(&first), Some(&last)) = (keys.first(), keys.last()) {
                let (from, to) = bounds.unwrap_or((u64::MAX, 0));
                bounds = Some((from.min(tick(first)), to.max(tick(last))));
            }
        }
        let (first, last) = bounds?;
        let part = |from, to, lanes| Segment { from, to, lanes };
        if first < last {
            let middle = first + (last - first) / 2;
            let (left, right) = (self.lanes.clone(), self.lanes.clone());
            return Some((part(first, middle, left), part(middle + 1, last, right)));
        }
        let middle = self.lanes.start + (self.lanes.end - self.lanes.start) / 2;
        if middle == self.lanes.start {
            return None;
        }
        let halves = (self.lanes.start..middle, middle..self.lanes.end);
        Some((part(first, last, halves.0), part(first, last, halves.1)))
    }
}

/// Splits a window where the whole process is idle for longer than `max_gap`, all in ticks.
///
/// `weight` returns the duration of an observation. If single observations are dropped, no split creates one.
pub(super) fn cut_idle(
    lanes: &[Lane],
    last: u64,
    max_gap: u64,
    lone: LoneSamples,
    weight: impl Fn(u64) -> u64,
) -> Vec<Segment> {
    let whole = Segment { from: 0, to: last, lanes: 0..lanes.len() as u32 };
    if last <= max_gap || lanes.is_empty() {
        return vec![whole];
    }
    // Within a cell no gap can exceed `max_gap`, so the cell's first start and last end are enough.
    let width = max_gap.max(last / MAX_CELLS).max(1);
    let mut cells = vec![(u64::MAX, 0_u64); (last / width + 1) as usize];
    for lane in lanes {
        let (mut cell, mut limit) = (0, 0);
        for &key in &lane.keys {
            let at = tick(key);
            if at >= limit {
                cell = (at / width) as usize;
                limit = (cell as u64 + 1) * width;
                cells[cell].0 = cells[cell].0.min(at);
            }
            cells[cell].1 = cells[cell].1.max(at + weight(key));
        }
    }
    let mut segments = Vec::new();
    let mut from = 0;
    let mut busy_until: Option<u64> = None;
    for (start, end) in cells.into_iter().filter(|&(start, _)| start != u64::MAX) {
        if busy_until.is_some_and(|until| start.saturating_sub(until) > max_gap)
            && (lone == LoneSamples::Split || keeps_pairs(lanes, from, start))
        {
            segments.push(Segment { from, to: start - 1, lanes: whole.lanes.clone() });
            from = start;
        }
        busy_until = Some(busy_until.unwrap_or(0).max(end));
    }
    segments.push(Segment { from, ..whole });
    segments
}

/// Whether a split leaves no thread with a single observation that had several before.
fn keeps_pairs(lanes: &[Lane], from: u64, cut: u64) -> bool {
    lanes.iter().all(|lane| {
        let start = lane.keys.partition_point(|&key| tick(key) < from);
        let middle = lane.keys.partition_point(|&key| tick(key) < cut).max(start);
        let (left, right) = (middle - start, lane.keys.len() - middle);
        left + right == 1 || (left != 1 && right != 1)
    })
}
