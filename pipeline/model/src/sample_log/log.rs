//! A lossless byte log of observations, at about seven bytes each.
//!
//! One record contains timestamps of one sample that were added together:
//!
//! ```text
//! head        1 byte: bit 0 the series follows, bit 1 the attribute set follows, bit 2 the link follows,
//!             bit 3 values follow, bits 4 to 7 the number of timestamps; 15 says that 15 and a varint are to be added
//! series      varint; otherwise as in the record before
//! attributes  varint; otherwise as in the record before
//! link        varint; otherwise none
//! stack       varint
//! timestamps  varints: each the zigzag difference in nanoseconds to the timestamp before, over records as well
//! values      with timestamps as many varints; without, a varint of their length in bytes and the bytes
//! ```
//!
//! The capacity grows by a quarter of the log's length, so at most a fifth of it is unused.

use crate::arena::make_room;
use crate::id::{AttributeSetId, LinkId, StackId};
use crate::profiles::SampleIds;
use crate::varint;

const SERIES: u8 = 1;
const ATTRIBUTES: u8 = 2;
const LINK: u8 = 4;
const VALUES: u8 = 8;
const COUNT_SHIFT: u32 = 4;
const MANY: u64 = 15;

/// The fields that a record inherits from the record before it.
#[derive(Debug, Clone, Copy, Default)]
struct DeltaState {
    series: u32,
    attributes: u32,
    time: u64,
}

/// The log. See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct RecordLog {
    bytes: Vec<u8>,
    last: DeltaState,
    records: u32,
}

/// The fields of a record except its timestamps and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RecordHead {
    pub(crate) series: u32,
    pub(crate) ids: SampleIds,
}

impl RecordHead {
    /// Packs all fields into two words, which are hashed faster than the fields.
    #[inline]
    pub(crate) fn packed(&self) -> (u64, u64) {
        let &Self { series, ids: SampleIds { stack, attributes, link } } = self;
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        (pair(series, StackId::wire(stack)), pair(AttributeSetId::wire(attributes), LinkId::wire(link)))
    }
}

fn zigzag(delta: i64) -> u64 {
    ((delta << 1) ^ (delta >> 63)) as u64
}

fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

impl RecordLog {
    /// Appends a record. `timestamps` are eight little-endian bytes each, `values` packed varints.
    pub(crate) fn push(&mut self, head: RecordHead, timestamps: &[u8], values: &[u8]) {
        let (times, _) = timestamps.as_chunks::<8>();
        let count = times.len() as u64;
        let RecordHead { series, ids: SampleIds { stack, attributes, link } } = head;
        let (attributes, link) = (AttributeSetId::wire(attributes), LinkId::wire(link));
        let mut first = (count.min(MANY) as u8) << COUNT_SHIFT;
        first |= if series == self.last.series { 0 } else { SERIES };
        first |= if attributes == self.last.attributes { 0 } else { ATTRIBUTES };
        first |= if link == 0 { 0 } else { LINK };
        first |= if values.is_empty() { 0 } else { VALUES };
        // Reserves room for the head and at most five varints; runs of timestamps reserve their own room.
        make_room(&mut self.bytes, 1 + 5 * varint::MAX_LEN);
        self.bytes.push(first);
        if count >= MANY {
            varint::put(&mut self.bytes, count - MANY);
        }
        if first & SERIES != 0 {
            varint::put(&mut self.bytes, u64::from(series));
        }
        if first & ATTRIBUTES != 0 {
            varint::put(&mut self.bytes, u64::from(attributes));
        }
        if first & LINK != 0 {
            varint::put(&mut self.bytes, u64::from(link));
        }
        varint::put(&mut self.bytes, u64::from(StackId::wire(stack)));
        let mut before = self.last.time;
        for run in times.chunks(16) {
            make_room(&mut self.bytes, run.len() * varint::MAX_LEN);
            for &time in run {
                let time = u64::from_le_bytes(time);
                varint::put_in_room(&mut self.bytes, zigzag(time.wrapping_sub(before) as i64));
                before = time;
            }
        }
        if !values.is_empty() {
            make_room(&mut self.bytes, varint::MAX_LEN + values.len());
            if count == 0 {
                varint::put(&mut self.bytes, values.len() as u64);
            }
            self.bytes.extend_from_slice(values);
        }
        self.last = DeltaState { series, attributes, time: before };
        self.records += 1;
    }

    /// The allocated memory, in bytes.
    pub(crate) fn allocated(&self) -> usize {
        self.bytes.capacity()
    }

    /// The number of records.
    pub(crate) fn len(&self) -> usize {
        self.records as usize
    }

    /// A reader from the beginning of the log.
    pub(crate) fn reader(&self) -> RecordReader<'_> {
        RecordReader { rest: &self.bytes, last: DeltaState::default() }
    }
}

/// Reads a log: for each record first its [`head`](Self::head), then its timestamps, then its [`values`](Self::values).
#[derive(Debug, Clone)]
pub(crate) struct RecordReader<'a> {
    rest: &'a [u8],
    last: DeltaState,
}

/// The part of a record before its timestamps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) head: RecordHead,
    /// The number of timestamps.
    pub(crate) count: usize,
    has_values: bool,
}

impl<'a> RecordReader<'a> {
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        varint::take(&mut self.rest)
    }

    /// The next record.
    #[inline]
    pub(crate) fn head(&mut self) -> Option<Opening> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        let mut count = u64::from(first >> COUNT_SHIFT);
        if count == MANY {
            count += self.varint()?;
        }
        if first & SERIES != 0 {
            self.last.series = self.varint()? as u32;
        }
        if first & ATTRIBUTES != 0 {
            self.last.attributes = self.varint()? as u32;
        }
        let link = if first & LINK != 0 { self.varint()? as u32 } else { 0 };
        let stack = self.varint()? as u32;
        let head = RecordHead {
            series: self.last.series,
            ids: SampleIds {
                stack: StackId::new(stack),
                attributes: AttributeSetId::new(self.last.attributes),
                link: LinkId::new(link),
            },
        };
        Some(Opening { head, count: count as usize, has_values: first & VALUES != 0 })
    }

    /// Skips the timestamps of a record. Later timestamps cannot be read then, since they are relative to the skipped
    /// ones.
    #[inline]
    pub(crate) fn skip_timestamps(&mut self, record: &Opening) {
        self.run(record.count);
    }

    /// Writes the timestamps of a record, in nanoseconds since the Unix epoch, one to each of `places`.
    #[inline]
    pub(crate) fn timestamps<'b>(&mut self, places: impl Iterator<Item = &'b mut [u8; 8]>) {
        for place in places {
            let Some(delta) = self.varint() else { return };
            self.last.time = self.last.time.wrapping_add(unzigzag(delta));
            *place = self.last.time.to_le_bytes();
        }
    }

    /// The packed values of a record.
    #[inline]
    pub(crate) fn values(&mut self, record: &Opening) -> &'a [u8] {
        match (record.has_values, record.count) {
            (false, _) => &[],
            (true, 0) => {
                let len = self.varint().unwrap_or_default() as usize;
                let (values, rest) = self.rest.split_at(len.min(self.rest.len()));
                self.rest = rest;
                values
            }
            (true, count) => self.run(count),
        }
    }

    /// Takes the bytes of `count` varints off the front.
    #[inline]
    fn run(&mut self, count: usize) -> &'a [u8] {
        let all = self.rest;
        let mut left = count;
        let end = all.iter().position(|&byte| {
            left -= usize::from(left > 0 && byte < 0x80);
            left == 0
        });
        let len = if count == 0 { 0 } else { end.map_or(all.len(), |last| last + 1) };
        let (run, rest) = all.split_at(len);
        self.rest = rest;
        run
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Plain = (u32, u32, u32, u32, Vec<u64>, Vec<u64>);

    fn pack(values: &[u64]) -> Vec<u8> {
        let mut packed = Vec::new();
        values.iter().for_each(|&value| varint::put(&mut packed, value));
        packed
    }

    fn push(log: &mut RecordLog, record: &Plain) {
        let (series, stack, attributes, link, times, values) = record;
        let (stack, attributes, link) = (StackId::new(*stack), AttributeSetId::new(*attributes), LinkId::new(*link));
        let head = RecordHead { series: *series, ids: SampleIds::new(stack, attributes, link) };
        let bytes: Vec<u8> = times.iter().flat_map(|time| time.to_le_bytes()).collect();
        log.push(head, &bytes, &pack(values));
    }

    fn read(log: &RecordLog) -> Vec<Plain> {
        let (mut reader, mut skipping) = (log.reader(), log.reader());
        let mut all = Vec::new();
        while let Some(record) = reader.head() {
            let mut times = vec![[0; 8]; record.count];
            reader.timestamps(times.iter_mut());
            let values = reader.values(&record);
            // A reader that skips timestamps must return the same in all other fields.
            let other = skipping.head().unwrap();
            skipping.skip_timestamps(&other);
            assert_eq!((other.head, other.count, skipping.values(&other)), (record.head, record.count, values));
            let RecordHead { series, ids: SampleIds { stack, attributes, link } } = record.head;
            all.push((
                series,
                StackId::wire(stack),
                AttributeSetId::wire(attributes),
                LinkId::wire(link),
                times.into_iter().map(u64::from_le_bytes).collect(),
                varint::Packed::new(values).collect(),
            ));
        }
        assert!(skipping.head().is_none());
        all
    }

    fn record() -> impl Strategy<Value = Plain> {
        let times = prop_oneof![
            prop::collection::vec(any::<u64>(), 0..40),
            prop::collection::vec(1_700_000_000_000_000_000u64..1_700_000_060_000_000_000, 0..4)
        ];
        (0u32..4, any::<u32>(), 0u32..4, prop_oneof![Just(0), any::<u32>()], times, any::<bool>(), any::<u64>())
            .prop_map(|(series, stack, attributes, link, times, valued, value)| {
                let values = match (valued, times.len()) {
                    (_, 0) => vec![value; 2],
                    (true, count) => vec![value; count],
                    (false, _) => Vec::new(),
                };
                (series, stack, attributes, link, times, values)
            })
    }

    proptest! {
        /// Guarantees: every record is read back unchanged.
        #[test]
        fn lossless(records in prop::collection::vec(record(), 0..30)) {
            let mut log = RecordLog::default();
            records.iter().for_each(|record| push(&mut log, record));
            prop_assert_eq!(log.len(), records.len());
            prop_assert_eq!(read(&log), records);
        }
    }

    /// Guarantees: at 101 Hz, with two or three observations per sample, an observation takes at most eight bytes, and
    /// at most a quarter of that is reserved in addition.
    #[test]
    fn eight_bytes_for_an_observation() {
        let mut log = RecordLog::default();
        let mut observations = 0;
        for n in 0..40_000u64 {
            let time = |step: u64| 1_700_000_000_000_000_000 + (n % 500) * 9_900_990 + step * 990_099_000 + n * 131;
            let times: Vec<u64> = (0..2 + n % 2).map(time).collect();
            observations += times.len();
            push(&mut log, &(0, 1 + (n * 7919 % 4_000) as u32, 1 + (n % 24) as u32, 0, times, Vec::new()));
        }
        let used = log.bytes.len();
        assert!(used <= 8 * observations, "{} bytes each", used as f64 / observations as f64);
        assert!(log.allocated() <= used + used / 4 + 256, "{} of {}", used, log.allocated());
    }
}
