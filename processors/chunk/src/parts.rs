//! Splits observations that are longer than the rest of their window.
//!
//! A window is at most a minute, because Sentry accepts no much longer chunk. A longer observation continues in the
//! next windows. It belongs to the window in which its time begins (or ends, if its timestamp marks the end), and each
//! further part is an additional observation, counted as synthesized. Together the parts are as long as the
//! observation.
//!
//! * [`Timed`]: an observation with a timestamp and a value, such as 90 s of waiting.
//! * [`Ranged`]: the values without timestamps of a profile that is longer than a window.

use std::collections::HashMap;

use profbridge_identity::{Cell, timestamp};
use profbridge_model::{AttributeSetId, Meaning, Profile, Profiles, Sample, Value, varint};

/// The maximum number of windows among which an observation or a profile's range is split (an hour). The rest stays in
/// the last of them, and the exporter counts the time that it cannot show.
const MAX_PARTS: u64 = 60;

/// The number of parts that one request may add in addition to one per observation.
const SPARE_PARTS: u64 = 1 << 16;

/// The number of parts that a request with this many observations may add. Without a bound, a value of ten bytes could
/// become an hour of windows for each process.
pub(crate) fn allowance(observations: u64) -> u64 {
    observations.saturating_add(SPARE_PARTS)
}

/// A part of an observation, in the unit of its profile's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimePart {
    /// The cell that contains the part.
    pub(crate) cell: Cell,
    /// The timestamp of the part.
    pub(crate) time: u64,
    /// The part's share of the observation's value.
    pub(crate) value: i64,
}

impl TimePart {
    /// The value as a packed varint.
    pub(crate) fn packed(&self) -> Vec<u8> {
        let mut packed = Vec::with_capacity(varint::MAX_LEN);
        varint::put(&mut packed, self.value as u64);
        packed
    }
}

/// How the values of a profile with timestamps measure time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    /// Nanoseconds per unit, at least one.
    unit: u64,
    /// Whether a timestamp marks the end of an observation.
    ends: bool,
}

impl Timed {
    /// Returns `None` unless the profile's values are durations.
    pub(crate) fn of(profiles: &Profiles, profile: &Profile) -> Option<Self> {
        let meaning = Meaning::of(profiles.dictionary(), profile)?;
        Some(Self { unit: meaning.unit_nanos.max(1), ends: meaning.ends_at_timestamp })
    }

    /// The first and last nanosecond of an observation.
    #[inline]
    pub(crate) fn extent(self, time: u64, value: i64) -> (u64, u64) {
        let nanos = u64::try_from(value).unwrap_or(0).saturating_mul(self.unit);
        if self.ends {
            (time.saturating_sub(nanos), time)
        } else {
            (time, time.saturating_add(nanos.saturating_sub(1)))
        }
    }

    /// The position and the parts of the first observation that is longer than the rest of its cell.
    #[inline]
    pub(crate) fn find(
        self,
        timestamps: &[[u8; 8]],
        values: &[u8],
        cell: Cell,
        width: u64,
    ) -> Option<(usize, TimeParts)> {
        let values = varint::Packed::new(values).map(|value| value as i64);
        let mut all = timestamps.iter().map(|&time| timestamp(time)).zip(values).enumerate();
        all.find_map(|(at, (time, value))| Some((at, self.parts(time, value, cell, width)?)))
    }

    /// The parts of an observation, or `None` if it lies completely in its cell.
    #[inline]
    fn parts(self, time: u64, value: i64, cell: Cell, width: u64) -> Option<TimeParts> {
        let room = if self.ends { time.saturating_sub(cell.start) } else { cell.end.saturating_sub(time) };
        if u64::try_from(value).ok()?.saturating_mul(self.unit) <= room || self.is_last(cell) {
            return None;
        }
        // A single unit is not split, such as one sampling period at the end of a window.
        let fitting = i64::try_from(room / self.unit).unwrap_or(i64::MAX).max(1);
        let first = TimePart { cell, time, value: fitting.min(value) };
        (fitting < value).then_some(TimeParts {
            timed: self,
            width,
            next: Some(first),
            left: value - fitting,
            count: 1,
        })
    }

    /// Whether this cell lies at the end of representable time, so that no cell can follow it.
    fn is_last(self, cell: Cell) -> bool {
        if self.ends { cell.start == 0 } else { cell.end == u64::MAX }
    }
}

/// The parts of one observation with a timestamp. The first part lies in the cell of the timestamp.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeParts {
    timed: Timed,
    width: u64,
    next: Option<TimePart>,
    left: i64,
    count: u64,
}

impl Iterator for TimeParts {
    type Item = TimePart;

    fn next(&mut self) -> Option<TimePart> {
        let part = self.next.take()?;
        if self.left > 0 {
            self.count += 1;
            let Cell { start, end } = part.cell;
            let (cell, time) = if self.timed.ends {
                (Cell { start: start.saturating_sub(self.width), end: start }, start)
            } else {
                (Cell { start: end, end: end.saturating_add(self.width) }, end)
            };
            let room = i64::try_from(self.width / self.timed.unit).unwrap_or(i64::MAX).max(1);
            let all = self.count == MAX_PARTS || self.timed.is_last(cell);
            let value = if all { self.left } else { self.left.min(room) };
            self.left -= value;
            self.next = Some(TimePart { cell, time, value });
        }
        Some(part)
    }
}

/// The state of one thread of a profile.
#[derive(Debug, Default)]
struct ThreadLanes {
    is_named: bool,
    /// The sum of the thread's values.
    total: u64,
    /// The part of the sum that was placed so far.
    laid: u64,
}

/// The values without timestamps of a profile that is longer than a window.
///
/// The values of each thread are placed one after the other from the profile's start, and split at window ends. Values
/// without a thread fill as many parallel lanes as they need. So each window gets a thread's share of that time, and
/// few values are split.
#[derive(Debug)]
pub(crate) struct Ranged {
    start: u64,
    /// The profile's length in nanoseconds, and in units.
    length: u64,
    units: u64,
    unit: u64,
    width: u64,
    of_profile: Option<AttributeSetId>,
    threads: Vec<ThreadLanes>,
    /// Threads by process and name.
    by_name: HashMap<(u32, Option<String>), usize>,
    by_set: HashMap<(u32, Option<AttributeSetId>), usize>,
    parts: Vec<TimePart>,
}

impl Ranged {
    /// Creates the state for a profile with values without timestamps that is longer than `width` nanoseconds. A
    /// profile without a duration is as long as the longest of its threads; one without a time starts at `unknown`.
    /// `process` returns the number of a sample's process, given the sample's attributes.
    pub(crate) fn of(
        profiles: &Profiles,
        profile: &Profile,
        width: u64,
        unknown: u64,
        mut process: impl FnMut(Option<AttributeSetId>) -> Option<u32>,
    ) -> Option<Self> {
        if (1..=width).contains(&profile.duration_nano) {
            return None;
        }
        let untimed = |sample: &Sample<'_>| sample.timestamps_bytes().is_empty();
        if !profiles.samples(profile).any(|sample| untimed(&sample)) {
            return None;
        }
        let meaning = Meaning::of(profiles.dictionary(), profile).filter(|meaning| !meaning.ends_at_timestamp)?;
        let start = if profile.time_unix_nano == 0 { unknown } else { profile.time_unix_nano };
        let unit = meaning.unit_nanos.max(1);
        let mut ranged = Self {
            start,
            length: profile.duration_nano,
            units: 0,
            unit,
            width,
            of_profile: profile.attributes,
            threads: Vec::new(),
            by_name: HashMap::new(),
            by_set: HashMap::new(),
            parts: Vec::new(),
        };
        for sample in profiles.samples(profile).filter(untimed) {
            let Some(process) = process(sample.attributes) else { continue };
            let thread = ranged.thread(profiles, process, sample.attributes);
            let total = &mut ranged.threads[thread].total;
            *total = total.saturating_add(units(&sample));
        }
        if ranged.length == 0 {
            let named = ranged.threads.iter().filter(|thread| thread.is_named).map(|thread| thread.total);
            ranged.length = named.max().unwrap_or(0).saturating_mul(unit);
        }
        let longest = width.saturating_mul(MAX_PARTS).min(u64::MAX - start);
        ranged.length = ranged.length.min(longest);
        ranged.units = (ranged.length / unit).max(1);
        (ranged.length > width).then_some(ranged)
    }

    /// The first and last nanosecond of the profile.
    pub(crate) fn extent(&self) -> (u64, u64) {
        (self.start, self.start + self.length - 1)
    }

    /// The parts of a sample without timestamps, in order of time. A single part is the whole sample, whatever its
    /// values. `allowed` is the number of parts that may still be added, from which the parts added here are
    /// subtracted.
    pub(crate) fn parts(
        &mut self,
        profiles: &Profiles,
        process: u32,
        sample: &Sample<'_>,
        allowed: &mut u64,
    ) -> &[TimePart] {
        let at = self.thread(profiles, process, sample.attributes);
        let value = units(sample);
        let thread = &mut self.threads[at];
        let from = thread.laid;
        let to = from.saturating_add(value);
        thread.laid = to;
        let (named, total) = (thread.is_named, thread.total);
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        for number in 0..self.length.div_ceil(self.width) {
            let share = if named {
                let range = self.boundary(number, total)..self.boundary(number + 1, total);
                to.min(range.end).saturating_sub(from.max(range.start))
            } else {
                self.on_lanes(number, to) - self.on_lanes(number, from)
            };
            if share > 0 {
                let (cell, value) = (self.cell(number), i64::try_from(share).unwrap_or(i64::MAX));
                parts.push(TimePart { cell, time: cell.start, value });
            }
        }
        let more = (parts.len() as u64).saturating_sub(1);
        if parts.is_empty() {
            parts.push(TimePart { cell: self.cell(0), time: self.start, value: 0 });
        } else if more > *allowed {
            parts.truncate(1);
        } else {
            *allowed -= more;
        }
        self.parts = parts;
        &self.parts
    }

    fn cell(&self, number: u64) -> Cell {
        let start = self.start + number * self.width;
        Cell { start, end: start.saturating_add(self.width).min(self.start + self.length) }
    }

    /// The number of units before a cell.
    fn units_before(&self, number: u64) -> u64 {
        (u128::from(number) * u128::from(self.width) / u128::from(self.unit)).min(u128::from(self.units)) as u64
    }

    /// The amount of a thread's values before a cell. If a thread has more time than the profile is long, each cell
    /// gets its share of the excess.
    fn boundary(&self, number: u64, total: u64) -> u64 {
        let units = self.units_before(number);
        if number > 0 && units == self.units {
            return u64::MAX;
        }
        if total <= self.units {
            return units;
        }
        (u128::from(units) * u128::from(total) / u128::from(self.units)) as u64
    }

    /// The amount of the first `laid` units in a cell, if they fill parallel lanes of the profile's length.
    fn on_lanes(&self, number: u64, laid: u64) -> u64 {
        let (from, to) = (self.units_before(number), self.units_before(number + 1));
        let (lanes, offset) = (laid / self.units, laid % self.units);
        lanes * (to - from) + offset.clamp(from, to) - from
    }

    /// The number of a sample's thread.
    fn thread(&mut self, profiles: &Profiles, process: u32, set: Option<AttributeSetId>) -> usize {
        if let Some(&known) = self.by_set.get(&(process, set)) {
            return known;
        }
        let name = name(profiles, set).or_else(|| name(profiles, self.of_profile));
        let is_named = name.is_some();
        let threads = &mut self.threads;
        let thread = *self.by_name.entry((process, name)).or_insert_with(|| {
            threads.push(ThreadLanes { is_named, ..ThreadLanes::default() });
            threads.len() - 1
        });
        self.by_set.insert((process, set), thread);
        thread
    }
}

/// The text that distinguishes threads of a process: `thread.id`, or else `thread.name` (OpenTelemetry semantic
/// conventions).
fn name(profiles: &Profiles, set: Option<AttributeSetId>) -> Option<String> {
    let dictionary = profiles.dictionary();
    ["thread.id", "thread.name"].into_iter().find_map(|key| match dictionary.find(set, key)? {
        Value::Int(id) => Some(id.to_string()),
        Value::String(text) => Some(dictionary.string(*text).to_owned()).filter(|text| !text.is_empty()),
        _ => None,
    })
}

/// The sum of a sample's values. Negative values count as zero.
fn units(sample: &Sample<'_>) -> u64 {
    sample.values().fold(0, |sum, value| u64::try_from(value).unwrap_or(0).saturating_add(sum))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Guarantees: the parts of an observation add up to its length, each fits into its cell to within a unit, and
        /// their cells are consecutive.
        #[test]
        fn parts_are_the_whole(
            time in 0_u64..2_000, value in 0_i64..100_000, unit in 1_u64..300, ends: bool, width in 1_u64..500,
        ) {
            let timed = Timed { unit, ends };
            let cell = Cell::of(1_000_000 + time, width, 0);
            let Some(parts) = timed.parts(1_000_000 + time, value, cell, width) else { return Ok(()) };
            let parts: Vec<TimePart> = parts.collect();
            prop_assert!(parts.len() > 1 && parts.len() <= MAX_PARTS as usize);
            prop_assert_eq!(parts.iter().map(|part| part.value).sum::<i64>(), value);
            prop_assert_eq!((parts[0].cell, parts[0].time), (cell, 1_000_000 + time));
            for pair in parts.windows(2) {
                let (before, after) = if ends { (pair[1], pair[0]) } else { (pair[0], pair[1]) };
                prop_assert_eq!(before.cell.end, after.cell.start);
            }
            for part in &parts[..parts.len() - 1] {
                let (first, last) = timed.extent(part.time, part.value);
                prop_assert!(part.value == 1 || (first >= part.cell.start && last <= part.cell.end));
            }
        }
    }

    /// Guarantees: at both ends of representable time no part continues and nothing overflows.
    #[test]
    fn ends_of_time() {
        for (ends, time) in [(false, u64::MAX), (false, u64::MAX - 5), (true, 0), (true, 5)] {
            let timed = Timed { unit: 1_000_000_000, ends };
            let cell = Cell::of(time, 60, 7);
            let sum = timed.parts(time, i64::MAX, cell, 60).map(|parts| parts.map(|part| part.value as i128).sum());
            assert!(sum.is_none_or(|sum: i128| sum == i64::MAX as i128));
        }
    }
}
