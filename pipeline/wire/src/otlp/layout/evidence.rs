//! Collects the evidence for one layout or another.
//!
//! Each profile and each sample is inspected separately: the wire types of its fields show which layouts it can have.
//! If profiles or samples of one request indicate different layouts, the request fits none of them.
//!
//! Two cases cannot be decided by wire types:
//!
//! * 1.9 or 1.10, if samples have values but neither attributes nor links: the values of 1.9 then read as attributes of
//!   1.10. Such a request could be 1.9 if in every sample their number is that of a 1.9 sample's values (one for each
//!   time, or any number without times). It counts as 1.9 if at least half of the samples are invalid as 1.10: an index
//!   is out of range, 0, duplicate, or that of an attribute that only locations or mappings have, or the sample has
//!   neither values nor times. If fewer samples are invalid, the layout is unclear and the request is rejected. The
//!   request is also rejected if none is invalid and all lists are equal, as counts would be, unless there are several
//!   lists and a period: in 1.10 such samples are plausible, because the period converts their counts to time. The
//!   encoder writes the link 0 into such samples, which only 1.10 can have.
//! * 1.8 or 1.9, if profiles have neither an id nor a dropped count: the layouts then do not differ, so it does not
//!   matter. The sixteen bytes of an id could also be sixteen comments of 1.8, but only if each is below 128 and in the
//!   range of the string table.

use profbridge_model::varint;

use super::super::error::DecodeError;
use super::super::reader::{FIXED64, LEN, ProtobufReader, VARINT};
use super::{Layout, Verdict};

/// The evidence found in a request.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    has_dictionary: bool,
    attributes: u64,
    strings: u64,
    /// The strings that are attribute keys of locations and mappings, and the attributes with such keys, both sorted.
    keys_of_places: Vec<u64>,
    of_places: Vec<u64>,
    /// Which of the fields 3 to 8 exist next to the resources, as a bit set.
    top_level: u16,
    /// Number of profiles that only 1.3 can have, and that only 1.4 or 1.5 can have.
    containers: u64,
    profiles_with_tables: u64,
    /// Number of profiles and samples that only 1.6 or 1.7 can have.
    ranges: u64,
    /// Number of samples that only 1.8 or 1.9 can have, and that only 1.10 can have.
    values_first: u64,
    current: u64,
    id_1_8: bool,
    details: Details,
    undecided: Undecided,
    /// Whether some profile has a period.
    has_period: bool,
    /// The list of the current sample.
    list: Vec<u64>,
}

/// Distinguishes 1.8 from 1.9 in a request that is known to be one of them.
#[derive(Debug, Default)]
struct Details {
    as_1_8: bool,
    as_1_9: bool,
    /// Whether some field is an id in 1.9 but could be comments in 1.8.
    id_or_comments: bool,
}

/// Counts of samples whose wire types fit both 1.9 and 1.10.
#[derive(Debug, Default)]
struct Undecided {
    with_list: u64,
    /// Number of lists that cannot be attributes.
    impossible: u64,
    /// Number of samples that are invalid as 1.9.
    not_1_9: u64,
    /// The first list, and whether another one differs.
    first: Vec<u64>,
    differ: bool,
}

/// The wire types seen for each field of a message, as bit sets.
#[derive(Debug, Default, Clone, Copy)]
struct FieldWireTypes([u8; 32]);

impl FieldWireTypes {
    fn add(&mut self, key: u32) {
        if let Some(types) = self.0.get_mut((key >> 3) as usize) {
            *types |= 1 << (key & 7);
        }
    }

    fn has(&self, field: usize, wire_type: u32) -> bool {
        self.0[field] & (1 << wire_type) != 0
    }

    /// Whether a sample is from 1.4 to 1.7: the second field is the length of a range, the third contains values, the
    /// sixth times.
    fn is_range(&self) -> bool {
        let range = self.has(2, VARINT) && (self.has(3, LEN) || self.has(6, LEN));
        range || self.has(5, VARINT) || (self.has(3, LEN) && self.has(4, LEN))
    }

    /// Whether a sample is from 1.10: the third field is a link, the fourth contains values.
    fn is_current(&self) -> bool {
        self.has(3, VARINT) || (self.has(4, LEN) && !self.has(2, VARINT) && !self.has(6, LEN))
    }
}

/// The part of a field's value that matters here.
enum FieldContent<'a> {
    Number(u64),
    Bytes(ProtobufReader<'a>),
    Other,
}

/// Calls `visit` with each field. Stops without an error at malformed data, so that the fields before it count.
fn walk<'a>(mut reader: ProtobufReader<'a>, mut visit: impl FnMut(u32, FieldContent<'a>)) {
    while let Ok(Some(key)) = reader.key() {
        let field = match key & 7 {
            VARINT => reader.varint().map(FieldContent::Number),
            LEN => reader.message().map(FieldContent::Bytes),
            _ => reader.skip(key).map(|()| FieldContent::Other),
        };
        match field {
            Ok(field) => visit(key, field),
            Err(_) => return,
        }
    }
}

impl Evidence {
    /// The state before the dictionary was read. A request of `len` bytes has at most half as many attributes.
    pub(super) fn before_reading(len: usize) -> Self {
        Self { attributes: len as u64 / 2, ..Self::default() }
    }

    /// Whether all samples so far can be from 1.8 or 1.9.
    pub(super) fn fits_values_first(&self) -> bool {
        self.current == 0 && self.ranges == 0 && self.undecided.not_1_9 == 0
    }

    /// Whether some sample so far can only be from 1.8 or 1.9.
    pub(super) fn is_values_first(&self) -> bool {
        self.values_first > 0
    }

    /// Whether, for at least half of the lists so far, the supposed attributes of 1.10 are invalid.
    pub(super) fn is_impossible_as_1_10(&self) -> bool {
        self.undecided.impossible > 0 && self.undecided.impossible * 2 >= self.undecided.with_list
    }

    pub(super) fn request(&mut self, reader: ProtobufReader<'_>) {
        // The attributes must be known before the samples are inspected.
        walk(reader, |key, inner| match (key >> 3, inner) {
            (2, FieldContent::Bytes(dictionary)) => {
                self.has_dictionary = true;
                walk(dictionary, |key, inner| {
                    if let (0x2a, FieldContent::Bytes(text)) = (key, inner) {
                        if is_key_of_place(text.rest()) {
                            self.keys_of_places.push(self.strings);
                        }
                        self.strings += 1;
                    }
                });
            }
            (field @ 3..=8, FieldContent::Bytes(_)) => self.top_level |= 1 << field,
            _ => {}
        });
        walk(reader, |key, inner| {
            if let (0x12, FieldContent::Bytes(dictionary)) = (key, inner) {
                walk(dictionary, |key, inner| {
                    if let (0x32, FieldContent::Bytes(attribute)) = (key, inner) {
                        walk(attribute, |key, inner| {
                            if let (0x08, FieldContent::Number(index)) = (key, inner)
                                && self.keys_of_places.binary_search(&index).is_ok()
                            {
                                self.of_places.push(self.attributes);
                            }
                        });
                        self.attributes += 1;
                    }
                });
            }
        });
        walk(reader, |key, inner| {
            if let (0x0a, FieldContent::Bytes(resource)) = (key, inner) {
                walk(resource, |key, inner| {
                    if let (0x12, FieldContent::Bytes(scope)) = (key, inner) {
                        walk(scope, |key, inner| {
                            if let (0x12, FieldContent::Bytes(profile)) = (key, inner) {
                                self.profile(profile, true);
                            }
                        });
                    }
                });
            }
        });
    }

    /// Inspects a profile, and its samples if `samples` is set.
    pub(super) fn profile(&mut self, reader: ProtobufReader<'_>, samples: bool) {
        let mut seen = FieldWireTypes::default();
        let (mut temporality, ranges) = (false, self.ranges);
        let (mut seventh, mut eighth): (&[u8], usize) = (&[], 0);
        walk(reader, |key, inner| {
            seen.add(key);
            match (key >> 3, inner) {
                (1, FieldContent::Bytes(value_type)) => walk(value_type, |key, _| temporality |= key == 0x18),
                (2, FieldContent::Bytes(sample)) if samples => self.sample(sample),
                (6, FieldContent::Number(period)) => self.has_period |= period != 0,
                (7, FieldContent::Bytes(bytes)) => seventh = bytes.rest(),
                (8, FieldContent::Bytes(bytes)) => eighth = bytes.rest().len(),
                _ => {}
            }
        });
        // A longer field cannot be an id, and a profile is not shorter.
        let holds_profile = eighth > 16 && !seen.has(2, LEN);
        if seen.has(2, FIXED64) || holds_profile {
            (self.containers, self.ranges) = (self.containers + 1, ranges);
            return;
        }
        if seen.has(4, LEN) || seen.has(17, LEN) || seen.has(12, VARINT) {
            // The samples of these profiles also have ranges.
            (self.profiles_with_tables, self.ranges) = (self.profiles_with_tables + 1, ranges);
            return;
        }
        self.ranges += u64::from(seen.has(3, LEN));
        if seen.has(3, LEN) {
            return;
        }
        self.id_1_8 |= seen.has(8, LEN) || seen.has(9, VARINT);
        let details = &mut self.details;
        let other_id = !seventh.is_empty() && seventh.len() != 16;
        let other_payload = seen.has(10, LEN) && !seen.has(9, LEN);
        details.as_1_8 |= temporality || seen.has(12, LEN) || seen.has(7, VARINT) || other_id || other_payload;
        details.as_1_9 |= seen.has(8, VARINT) || seen.has(9, LEN) || (seen.has(11, LEN) && !seen.has(10, LEN));
        details.id_or_comments |= !seventh.is_empty()
            && seventh.iter().all(|&byte| byte < 0x80 && u64::from(byte) < self.strings)
            && !(seen.has(8, VARINT) || seen.has(9, LEN));
    }

    /// Inspects a sample.
    pub(super) fn sample(&mut self, reader: ProtobufReader<'_>) {
        let mut seen = FieldWireTypes::default();
        let mut list = std::mem::take(&mut self.list);
        list.clear();
        let mut times = 0;
        walk(reader, |key, field| {
            seen.add(key);
            match (key, field) {
                (0x10, FieldContent::Number(index)) => list.push(index),
                (0x12, FieldContent::Bytes(packed)) => list.extend(varint::Packed::new(packed.rest())),
                (0x2a, FieldContent::Bytes(packed)) => times += packed.rest().len() / 8,
                (0x29, _) => times += 1,
                _ => {}
            }
        });
        if seen.is_range() {
            self.ranges += 1;
        } else if seen.has(3, LEN) {
            self.values_first += 1;
        } else if seen.is_current() {
            self.current += 1;
        } else {
            self.undecided(&mut list, times, seen);
        }
        self.list = list;
    }

    fn undecided(&mut self, list: &mut [u64], times: usize, seen: FieldWireTypes) {
        let count = list.len();
        if count > 0 {
            if self.undecided.with_list == 0 {
                self.undecided.first = list.to_vec();
            }
            self.undecided.differ |= self.undecided.first != *list;
            self.undecided.with_list += 1;
            list.sort_unstable();
            let twice = list.windows(2).any(|pair| pair[0] == pair[1]);
            let outside = list.last().is_some_and(|&last| last >= self.attributes.max(1));
            let nothing_left = times == 0 && !seen.has(4, VARINT) && !seen.has(4, LEN);
            let of_place = list.iter().any(|&index| self.of_places.binary_search(&index).is_ok());
            let impossible = twice || outside || of_place || list.first() == Some(&0) || nothing_left;
            self.undecided.impossible += u64::from(impossible);
        }
        let fits_1_9 = if times == 0 { count > 0 } else { count == 0 || count == times };
        self.undecided.not_1_9 += u64::from(!fits_1_9 || seen.has(4, LEN));
    }

    pub(super) fn verdict(&self, decoded: bool) -> Verdict {
        let Undecided { with_list, impossible, not_1_9, differ, .. } = self.undecided;
        let mut layouts = Vec::new();
        if self.containers > 0 {
            layouts.push(Layout::V1_3);
        }
        if self.profiles_with_tables > 0 {
            layouts.push(Layout::V1_4);
        }
        // A later version may add one field next to the dictionary, but not five tables.
        let tables_beside = self.top_level.count_ones() >= 3 || (self.top_level > 0 && self.ranges > 0);
        if self.ranges > 0 || (tables_beside && self.current == 0) {
            match (tables_beside, self.has_dictionary) {
                (true, _) => layouts.push(Layout::V1_6),
                (false, true) => layouts.push(Layout::V1_7),
                (false, false) => layouts.extend([Layout::V1_4, Layout::V1_6, Layout::V1_7]),
            }
        }
        let earlier = !layouts.is_empty();
        // The attributes of 1.10 may be values of 1.9.
        let may_be_counts = with_list == 1 || with_list > 1 && !differ && !self.has_period;
        let may_be_1_9 = decoded && not_1_9 == 0 && (impossible > 0 || may_be_counts) && self.current == 0;
        if self.values_first > 0 || (!earlier && self.current == 0 && (self.id_1_8 || may_be_1_9)) {
            if self.values_first == 0 && !self.id_1_8 && impossible * 2 < with_list {
                return unclear("values of 1.9 read as attributes of 1.10", &[Layout::V1_9, Layout::V1_10]);
            }
            let Details { as_1_8, as_1_9, id_or_comments } = self.details;
            match (as_1_8 || self.id_1_8, as_1_9) {
                (true, true) => layouts.extend([Layout::V1_8, Layout::V1_9]),
                (true, false) => layouts.push(Layout::V1_8),
                (false, false) if id_or_comments => {
                    return unclear("ids of 1.9 read as comments of 1.8", &[Layout::V1_8, Layout::V1_9]);
                }
                (false, _) => layouts.push(Layout::V1_9),
            }
        }
        if self.current > 0 {
            if decoded || layouts.is_empty() {
                return Verdict::Current;
            }
            layouts.push(Layout::V1_10);
        }
        match layouts[..] {
            [] => Verdict::Current,
            [one] => Verdict::Older(one),
            _ => unclear("its parts have different ones", &layouts),
        }
    }
}

/// Whether only locations and mappings have attributes of this key (semantic-conventions `model/profile`,
/// `model/pprof`).
fn is_key_of_place(key: &[u8]) -> bool {
    key == b"profile.frame.type"
        || [&b"process.executable.build_id."[..], b"pprof.location.", b"pprof.mapping."]
            .iter()
            .any(|prefix| key.starts_with(prefix))
}

fn unclear(why: &'static str, candidates: &[Layout]) -> Verdict {
    let names: Vec<&str> = candidates.iter().map(|layout| layout.name()).collect();
    Verdict::Unclear(DecodeError::UnclearLayout { candidates: names.join(", "), why })
}
