//! Links the observations of a batch with spans.
//!
//! Only the samples and the link table change, one column after the other, so that there are never two copies of all
//! columns. All other tables, and the bytes of times and values, are shared or moved without being read.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::samples::{SamplePiece, SampleSplit};
use super::{Profile, Profiles, Sample};
use crate::buffer::ByteRange;
use crate::dictionary::{Dictionary, Link};
use crate::id::LinkId;
use crate::varint;

/// The maximum number of bytes of times and values that are rewritten per batch for samples that are split.
const MAX_TEXT: usize = 16 << 20;

/// Decides which span an observation is linked with.
pub trait Linker {
    /// Begins a sample of the resource at a position. Returns whether [`Linker::observation`] should be called for its
    /// observations. A sample that already has a link keeps that link in any case.
    fn sample(&mut self, profiles: &Profiles, resource: u32, profile: &Profile, sample: &Sample<'_>) -> bool;

    /// The span of the sample's next observation. The time is `None` if the sample has no timestamps.
    fn observation(&mut self, time: Option<u64>) -> Option<Link>;
}

impl Profiles {
    /// Adds the links that `linker` returns to observations. An OTLP sample has one link, so a sample whose
    /// observations belong to several spans is split: one sample per span, and one for unlinked observations. Every
    /// observation keeps its value. If nothing is linked, the batch is unchanged.
    ///
    /// Returns how many observations stay unlinked although `linker` returned a span: once splitting would rewrite more
    /// than 16 MiB of a batch, the remaining samples are not split.
    ///
    /// `linker` is dropped before the batch is changed, so it may share the batch without forcing a copy.
    pub fn link(&mut self, linker: impl Linker) -> u64 {
        let mut linking = Linking::new(self);
        linking.all(self, linker);
        let Linking { column, mut splits, links, text, not_linked, .. } = linking;
        let Some(column) = column else { return not_linked };
        let dictionary = std::mem::take(&mut self.dictionary);
        let mut tables = Arc::try_unwrap(dictionary).unwrap_or_else(|shared| (*shared).clone()).into_tables();
        tables.buffer.append(&text);
        tables.links.extend(links);
        let samples = Arc::make_mut(&mut self.samples);
        samples.ids.iter_mut().zip(column).for_each(|(ids, link)| ids.link = link);
        if !splits.is_empty() {
            // Rows are sorted by profile unless the batch was built in another way.
            splits.sort_by_key(|split| split.row);
            splits.dedup_by_key(|split| split.row);
            samples.split(&splits);
            // The cumulative number of added rows up to each split.
            let more: Vec<u32> = splits
                .iter()
                .scan(0, |sum, split| {
                    *sum += split.pieces.len() as u32 - 1;
                    Some(*sum)
                })
                .collect();
            let moved = |row: u32| match splits.partition_point(|split| split.row < row) {
                0 => row,
                before => row + more[before - 1],
            };
            let profiles = self.resources_mut().iter_mut().flat_map(|resource| &mut resource.scopes);
            for profile in profiles.flat_map(|scope| &mut scope.profiles) {
                profile.samples = moved(profile.samples.start)..moved(profile.samples.end);
            }
        }
        self.dictionary = Arc::new(Dictionary::from_checked(tables));
        self.received = None;
        debug_assert_eq!(self.profiles().map(|profile| self.observations_of(profile)).sum::<u64>(), self.observations);
        not_linked
    }
}

/// Additions to a batch's tables, and the changes to its samples.
struct Linking {
    /// The links of all rows; `None` as long as no link is new.
    column: Option<Vec<Option<LinkId>>>,
    splits: Vec<SampleSplit>,
    /// Links to append to the link table, and the table's current length.
    links: Vec<Link>,
    before: usize,
    known: HashMap<Link, u32, FixedState>,
    last: Option<(Link, Option<LinkId>)>,
    /// Bytes to append to the buffer, and the buffer's current length.
    text: Vec<u8>,
    buffer: usize,
    not_linked: u64,
    /// The links of the current sample's observations, and the observations grouped by link, in order of first
    /// appearance.
    of_times: Vec<Option<LinkId>>,
    groups: Vec<LinkGroup>,
    group_of: HashMap<Option<LinkId>, usize, FixedState>,
}

/// Observations of one sample that are linked with the same span.
#[derive(Default)]
struct LinkGroup {
    link: Option<LinkId>,
    times: Vec<u8>,
    values: Vec<u8>,
}

impl Linking {
    fn new(batch: &Profiles) -> Self {
        let tables = batch.dictionary.tables();
        let known = tables.links.iter().enumerate().skip(1).map(|(at, link)| (*link, at as u32));
        Self {
            column: None,
            splits: Vec::new(),
            links: Vec::new(),
            before: tables.links.len(),
            known: known.collect(),
            last: None,
            text: Vec::new(),
            buffer: tables.buffer.len(),
            not_linked: 0,
            of_times: Vec::new(),
            groups: Vec::new(),
            group_of: HashMap::default(),
        }
    }

    fn all(&mut self, batch: &Profiles, mut linker: impl Linker) {
        for (at, resource) in batch.resources.iter().enumerate() {
            for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
                for row in profile.samples.clone() {
                    let sample = batch.sample(row);
                    if linker.sample(batch, at as u32, profile, &sample) && sample.link.is_none() {
                        self.row(batch, row, &sample, &mut linker);
                    }
                }
            }
        }
    }

    /// Determines the links of a row.
    fn row(&mut self, batch: &Profiles, row: u32, sample: &Sample<'_>, linker: &mut impl Linker) {
        let mut links = std::mem::take(&mut self.of_times);
        links.clear();
        if sample.timestamps.is_empty() {
            links.push(linker.observation(None).and_then(|link| self.id(link)));
        } else {
            links.extend(sample.timestamps().map(|time| linker.observation(Some(time)).and_then(|link| self.id(link))));
        }
        let first = links.first().copied().flatten();
        let is_one = links.iter().all(|link| *link == first);
        if !is_one && !self.take_apart(row, sample, &links) {
            self.not_linked += links.iter().flatten().count() as u64;
        } else if !is_one || first.is_some() {
            let column = self.column.get_or_insert_with(|| batch.samples.ids.iter().map(|ids| ids.link).collect());
            column[row as usize] = first;
        }
        self.of_times = links;
    }

    /// Splits a sample by link, unless the limit is reached.
    fn take_apart(&mut self, row: u32, sample: &Sample<'_>, links: &[Option<LinkId>]) -> bool {
        let text = self.text.len() + sample.timestamps.len() + sample.values.len();
        if text > MAX_TEXT || u32::try_from(self.buffer + text).is_err() {
            return false;
        }
        self.group_of.clear();
        let (mut used, mut last) = (0, None);
        let mut values = sample.values();
        for (time, link) in sample.timestamps.chunks_exact(8).zip(links) {
            // Times are mostly in order, so the next observation mostly has the same span.
            let at = match last.filter(|at: &usize| self.groups[*at].link == *link) {
                Some(at) => at,
                None => *self.group_of.entry(*link).or_insert_with(|| {
                    if used == self.groups.len() {
                        self.groups.push(LinkGroup::default());
                    }
                    let group = &mut self.groups[used];
                    group.times.clear();
                    group.values.clear();
                    group.link = *link;
                    used += 1;
                    used - 1
                }),
            };
            last = Some(at);
            self.groups[at].times.extend_from_slice(time);
            if let Some(value) = values.next() {
                varint::put(&mut self.groups[at].values, value as u64);
            }
        }
        let mut pieces = Vec::with_capacity(used);
        for group in &self.groups[..used] {
            let mut put = |bytes: &[u8]| {
                let start = (self.buffer + self.text.len()) as u32;
                self.text.extend_from_slice(bytes);
                if bytes.is_empty() { ByteRange::default() } else { ByteRange { start, len: bytes.len() as u32 } }
            };
            pieces.push(SamplePiece { link: group.link, timestamps: put(&group.times), values: put(&group.values) });
        }
        self.splits.push(SampleSplit { row, pieces });
        true
    }

    /// The id of a link, which is appended if it is new. An all-zero link means none.
    fn id(&mut self, link: Link) -> Option<LinkId> {
        if let Some((last, id)) = self.last
            && last == link
        {
            return id;
        }
        let next = self.before + self.links.len();
        let id = if link == Link::default() {
            None
        } else {
            let at = *self.known.entry(link).or_insert_with(|| {
                self.links.push(link);
                next as u32
            });
            LinkId::new(at)
        };
        self.last = Some((link, id));
        id
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Builder;
    use crate::dictionary::Value;

    /// One observation: the profile's number, its time, its value, and the first byte of its trace id.
    type Seen = (i64, Option<u64>, Option<i64>, Option<u8>);

    fn all(batch: &Profiles) -> Vec<Seen> {
        let mut all = Vec::new();
        for profile in batch.profiles() {
            let number = match batch.dictionary().find(profile.attributes, "number") {
                Some(Value::Int(number)) => *number,
                _ => 0,
            };
            for sample in batch.samples(profile) {
                let link = sample.link.map(|id| batch.dictionary().link(id).trace_id[0]);
                let mut values = sample.values();
                if sample.timestamps().len() == 0 {
                    all.push((number, None, values.next(), link));
                }
                all.extend(sample.timestamps().map(|time| (number, Some(time), values.next(), link)));
            }
        }
        all.sort_unstable();
        all
    }

    /// Links a time with the span of number `time % spans`; 0 means none.
    struct ByTime {
        spans: u64,
        asks: bool,
    }

    fn span_of(time: Option<u64>, spans: u64) -> u8 {
        time.map_or(1, |time| (time % spans) as u8)
    }

    impl Linker for ByTime {
        fn sample(&mut self, _: &Profiles, _: u32, _: &Profile, _: &Sample<'_>) -> bool {
            self.asks
        }

        fn observation(&mut self, time: Option<u64>) -> Option<Link> {
            let span = span_of(time, self.spans);
            (span > 0).then_some(Link { trace_id: [span; 16], span_id: [span; 8] })
        }
    }

    proptest! {
        /// Guarantees: each observation gets the intended link and keeps its value, no observation is lost or invented,
        /// no sample is duplicated, and existing links stay.
        /// rule: otlp-profiles#sample-identity
        #[test]
        fn observations_are_linked(
            samples in prop::collection::vec(
                (0usize..3, prop::collection::vec(0u64..50, 0..12), any::<bool>(), prop::option::of(1u8..9)), 0..12),
            spans in 1u64..6,
        ) {
            let mut builder = Builder::new();
            let mut expected = Vec::new();
            for number in 0..3 {
                builder.on_cpu(20);
                let attributes = builder.attributes(&[("number", (number as i64).into())]);
                builder.open_profile().unwrap().attributes = attributes;
                for (at, (_, times, has_values, had)) in samples.iter().enumerate().filter(|(_, of)| of.0 == number) {
                    let values: Vec<i64> = match (times.len(), has_values) {
                        (0, _) => vec![7],
                        (len, true) => (0..len as i64).map(|n| n * 1000 - 5).collect(),
                        _ => Vec::new(),
                    };
                    let frame = builder.frame("f", "f.c", at as i64);
                    let stack = builder.stack(&[frame]);
                    let link = had.and_then(|had| builder.link([had; 16], [had; 8]));
                    builder.sample(stack, None, link, times, &values);
                    let mut left = values.iter();
                    let linked = |time| had.or(Some(span_of(time, spans)).filter(|span| *span > 0));
                    if times.is_empty() {
                        expected.push((number as i64, None, left.next().copied(), linked(None)));
                    }
                    expected.extend(
                        times.iter().map(|time| (number as i64, Some(*time), left.next().copied(), linked(Some(*time)))));
                }
            }
            expected.sort_unstable();
            let batch = builder.finish().unwrap();
            let link = |asks: bool| {
                let mut linked = batch.clone();
                linked.link(ByTime { spans, asks });
                linked
            };
            let linked = link(true);
            prop_assert_eq!(all(&linked), expected);
            prop_assert_eq!(linked.observations(), batch.observations());
            for profile in linked.profiles() {
                let mut ids: Vec<_> = linked.samples(profile).map(|sample| (sample.stack, sample.link)).collect();
                ids.sort_unstable();
                let count = ids.len();
                ids.dedup();
                prop_assert_eq!(ids.len(), count, "one sample for each link");
            }
            prop_assert_eq!(all(&link(false)), all(&batch));
        }
    }

    /// Guarantees: a batch without new links stays the same, including its original request bytes; otherwise the bytes
    /// are dropped, and links that already exist are not added again.
    #[test]
    fn nothing_linked_nothing_changed() {
        let mut builder = Builder::new();
        builder.on_cpu(20);
        let link = builder.link([1; 16], [1; 8]);
        builder.sample(None, None, link, &[9], &[]);
        builder.sample(None, None, None, &[3, 4], &[]);
        let mut batch = builder.finish().unwrap();
        batch.received = Some(bytes::Bytes::from_static(b"request"));
        batch.link(ByTime { spans: 1, asks: true });
        assert!(batch.received.is_some());
        batch.link(ByTime { spans: 2, asks: true });
        assert_eq!((batch.received.is_none(), batch.columns().len()), (true, 3));
        assert_eq!(batch.dictionary().tables().links.len(), 2);
    }

    /// Guarantees: the number of rewritten bytes of split samples is bounded; beyond it observations stay unlinked and
    /// are counted, and none is lost.
    #[test]
    fn what_is_written_anew_is_bounded() {
        let mut builder = Builder::new();
        builder.on_cpu(20);
        let times: Vec<u64> = (0..MAX_TEXT as u64 / 8 * 3 / 4).collect();
        for line in 0..2 {
            let frame = builder.frame("f", "f.c", line);
            let stack = builder.stack(&[frame]);
            builder.sample(stack, None, None, &times, &[]);
        }
        let mut batch = builder.finish().unwrap();
        let observations = batch.observations();
        let not_linked = batch.link(ByTime { spans: 2, asks: true });
        assert_eq!((not_linked, batch.observations()), (times.len() as u64 / 2, observations));
        let rows: Vec<bool> = batch.profiles().flat_map(|of| batch.samples(of)).map(|of| of.link.is_some()).collect();
        assert_eq!(rows, [false, true, false]);
    }
}
