//! A batch whose observations are linked with spans.
//!
//! Only the samples and the table of links change: every other table, and the bytes of times and values, are shared or
//! moved and never looked at.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::{Profile, Profiles, Sample, Samples};
use crate::buffer::ByteRange;
use crate::dictionary::{Dictionary, Link};
use crate::id::LinkId;
use crate::varint;

/// Says with which span an observation is linked.
pub trait Linker {
    /// Begins a sample of the resource at a position. Whether [`Linker::observation`] is to be asked about it; a sample
    /// that is linked already stays as it is whatever the answer.
    fn sample(&mut self, profiles: &Profiles, resource: u32, profile: &Profile, sample: &Sample<'_>) -> bool;

    /// The span of an observation of that sample, in order. The time is `None` where the sample has none.
    fn observation(&mut self, time: Option<u64>) -> Option<Link>;
}

impl Profiles {
    /// Gives observations those links that `linker` names. A sample whose observations are linked with several spans
    /// becomes several, one for each span and one for those that are linked with none: an OTLP sample has one link.
    /// Every observation keeps its value. Where nothing is linked the batch stays what it was.
    ///
    /// `linker` is dropped before the batch is changed, so that it may share the batch without making it be copied. A
    /// sample that would have to be taken apart in a batch of nearly 4 GiB stays as it is.
    pub fn link(&mut self, linker: impl Linker) {
        let mut linking = Linking::new(self);
        linking.all(self, linker);
        let Linking { samples, ranges, links, text, buffer, changed, .. } = linking;
        if !changed {
            return;
        }
        let mut ranges = ranges.into_iter();
        let profiles = self.resources_mut().iter_mut().flat_map(|resource| &mut resource.scopes);
        for profile in profiles.flat_map(|scope| &mut scope.profiles) {
            profile.samples = ranges.next().unwrap_or_default();
        }
        let dictionary = std::mem::take(&mut self.dictionary);
        let mut tables = Arc::try_unwrap(dictionary).unwrap_or_else(|shared| (*shared).clone()).into_tables();
        debug_assert_eq!(tables.buffer.len(), buffer);
        tables.buffer.append(&text);
        tables.links.extend(links);
        self.dictionary = Arc::new(Dictionary::of_checked(tables));
        self.samples = Arc::new(samples);
        self.received = None;
        debug_assert_eq!(self.profiles().map(|profile| self.observations_of(profile)).sum::<u64>(), self.observations);
    }
}

/// The samples that a batch gets, and what is appended to its tables for them.
struct Linking {
    samples: Samples,
    /// The rows of each profile.
    ranges: Vec<std::ops::Range<u32>>,
    /// What is appended to the table of links, which has so many.
    links: Vec<Link>,
    before: usize,
    known: HashMap<Link, u32, FixedState>,
    last: Option<(Link, Option<LinkId>)>,
    /// What is appended to the buffer, which has so many bytes.
    text: Vec<u8>,
    buffer: usize,
    changed: bool,
    /// The observations of the sample at hand by link, in order of first appearance.
    groups: Vec<Group>,
    group_of: HashMap<Option<LinkId>, usize, FixedState>,
}

/// Observations of one sample that are linked with the same span.
#[derive(Default)]
struct Group {
    link: Option<LinkId>,
    times: Vec<u8>,
    values: Vec<u8>,
}

impl Linking {
    fn new(batch: &Profiles) -> Self {
        let tables = batch.dictionary.tables();
        let known = tables.links.iter().enumerate().skip(1).map(|(at, link)| (*link, at as u32));
        Self {
            samples: Samples::default(),
            ranges: Vec::new(),
            links: Vec::new(),
            before: tables.links.len(),
            known: known.collect(),
            last: None,
            text: Vec::new(),
            buffer: tables.buffer.len(),
            changed: false,
            groups: Vec::new(),
            group_of: HashMap::default(),
        }
    }

    fn all(&mut self, batch: &Profiles, mut linker: impl Linker) {
        let rows = batch.samples.len();
        let Samples { stack, attributes, link, timestamps, values: _ } = &mut self.samples;
        stack.reserve_exact(rows);
        attributes.reserve_exact(rows);
        link.reserve_exact(rows);
        timestamps.reserve_exact(rows);
        // One list of links for all samples: those of the sample at hand.
        let mut of_times = Vec::new();
        for (at, resource) in batch.resources.iter().enumerate() {
            for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
                let start = self.samples.len() as u32;
                for row in profile.samples.clone() {
                    let sample = batch.sample(row);
                    let asked = linker.sample(batch, at as u32, profile, &sample) && sample.link.is_none();
                    self.row(batch, row, &sample, asked.then_some(&mut linker), &mut of_times);
                }
                self.ranges.push(start..self.samples.len() as u32);
            }
        }
    }

    /// Appends what becomes of a row.
    fn row(
        &mut self,
        batch: &Profiles,
        row: u32,
        sample: &Sample<'_>,
        linker: Option<&mut impl Linker>,
        links: &mut Vec<Option<LinkId>>,
    ) {
        let row = row as usize;
        let (times, values) = (batch.samples.timestamps[row], batch.samples.values_at(row));
        let Some(linker) = linker else {
            return self.samples.push(sample.stack, sample.attributes, sample.link, times, values);
        };
        links.clear();
        if times.is_empty() {
            links.push(linker.observation(None).and_then(|link| self.id(link)));
        } else {
            links.extend(sample.timestamps().map(|time| linker.observation(Some(time)).and_then(|link| self.id(link))));
        }
        let first = links.first().copied().flatten();
        if links.iter().all(|link| *link == first) {
            self.changed |= first.is_some();
            return self.samples.push(sample.stack, sample.attributes, first, times, values);
        }
        if u32::try_from(self.buffer + self.text.len() + (times.len + values.len) as usize).is_err() {
            return self.samples.push(sample.stack, sample.attributes, None, times, values);
        }
        self.changed = true;
        self.take_apart(sample, links);
    }

    /// Appends one row for each link of a sample.
    fn take_apart(&mut self, sample: &Sample<'_>, links: &[Option<LinkId>]) {
        self.group_of.clear();
        let (mut used, mut last) = (0, None);
        let mut values = sample.values();
        for (time, link) in sample.timestamps.chunks_exact(8).zip(links) {
            // Times are mostly in order, so what follows is mostly of the same span.
            let at = match last.filter(|at: &usize| self.groups[*at].link == *link) {
                Some(at) => at,
                None => *self.group_of.entry(*link).or_insert_with(|| {
                    if used == self.groups.len() {
                        self.groups.push(Group::default());
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
        for group in &self.groups[..used] {
            let mut put = |bytes: &[u8]| {
                let start = (self.buffer + self.text.len()) as u32;
                self.text.extend_from_slice(bytes);
                if bytes.is_empty() { ByteRange::default() } else { ByteRange { start, len: bytes.len() as u32 } }
            };
            let (times, values) = (put(&group.times), put(&group.values));
            self.samples.push(sample.stack, sample.attributes, group.link, times, values);
        }
    }

    /// The id of a link, which is appended where it is new. One of zeros means that there is none.
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

    /// One observation: the profile's number, its time, its value, and the first byte of its trace's id.
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

    /// Links a time with the span of that number modulo `spans`; 0 is none.
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
        /// Guarantees: each observation gets the link that it is to have and keeps its value, none is lost or invented, no
        /// sample is there twice, and a link that a sample had stays.
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

    /// Guarantees: a batch in which nothing is linked is the same, with the request it came as; one in which something
    /// is linked is not, and links that it has already are not there twice.
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
}
