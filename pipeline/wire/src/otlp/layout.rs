//! Recognises the earlier layouts of OTLP profiles, which came over the same path and with the same names.
//!
//! Between 1.4 and 1.10 fields were renumbered under one package (opentelemetry-proto CHANGELOG.md, and the comparison
//! in open-telemetry/opentelemetry-python#5223); before that the package was `v1experimental`:
//!
//! | version | tables | `Sample` | `Profile` |
//! |---|---|---|---|
//! | 1.3 | in `ProfileContainer.profile` | as 1.4 | `ProfileContainer`: times are fields 2 and 3, eight bytes each |
//! | 1.4, 1.5 | in `Profile`, fields 3 to 10 | 1, 2 a range of locations, 3 values, 4 attributes, 5 link, 6 times | 17 id |
//! | 1.6 | beside the resources, fields 2 to 8 | as 1.4 | 3 locations, 10 id |
//! | 1.7 | in the dictionary | as 1.4 | as 1.6 |
//! | 1.8 | in the dictionary | 1 stack, 2 values, 3 attributes, 4 link, 5 times | 7 comments, 8 id, 9 dropped count |
//! | 1.9 | in the dictionary | as 1.8 | 7 id, 8 dropped count |
//! | 1.10 | in the dictionary | 1 stack, 2 attributes, 3 link, 4 values, 5 times | as 1.9 |
//!
//! Wire types settle nearly all of it. What they leave open is a request in the layout of 1.9 whose samples have values
//! but neither attributes nor links: the values read as attributes. Such a request is taken for 1.9 if every sample
//! has as many of those as a 1.9 sample has values (one for each time, or no times) and at least half of them
//! cannot be attributes: an index is out of range, 0, or there twice, or the sample is left without values and times.
//! A request where that holds for no sample is read as 1.10, which it then is for all that can be known.

use profbridge_model::varint;

use super::error::DecodeError;
use super::reader::{FIXED64, LEN, Reader, VARINT};

/// Says which earlier layout a request has; `None` where nothing speaks for one. Reads the request once more, so it is
/// asked only when decoding found something odd. `decoded` says that its wire types fit 1.10, so that only the meaning
/// of its numbers can tell.
pub(super) fn detect(request: &[u8], decoded: bool) -> Option<DecodeError> {
    let mut evidence = Evidence::default();
    evidence.request(Reader::new(request));
    let (generation, message) = evidence.verdict(decoded)?;
    Some(DecodeError::OlderLayout { generation, message })
}

const UPGRADE_OLD: &str = "upgrade the sender: the OpenTelemetry Collector to v0.148.0 or later, the eBPF profiler to a \
     release after 2026-03-18, Telegraf to 1.36 or later and any SDK to opentelemetry-proto 1.10 or later";
const UPGRADE_1_8: &str = "upgrade the sender: the OpenTelemetry Collector (v0.136 to v0.139 write this) to v0.148.0 or later, the \
     eBPF profiler to a release after 2026-03-18";
const UPGRADE_1_9: &str = "upgrade the sender: the OpenTelemetry Collector (v0.140 to v0.147 write this) to v0.148.0 or later, \
     async-profiler to a release after 2026-07-12, Python's opentelemetry-proto to a release after 2026-05";

/// What speaks for one layout or another.
#[derive(Debug, Default)]
struct Evidence {
    has_dictionary: bool,
    attributes: u64,
    /// Which of the fields 3 to 8 stand beside the resources, as bits.
    top_level: u16,
    container: bool,
    tables_in_profile: bool,
    location_list: bool,
    profile_1_8: bool,
    temporality: bool,
    /// Samples that can only be of 1.4 to 1.7, of 1.8 or 1.9, and of 1.10.
    range_samples: u64,
    values_first: u64,
    current: u64,
    undecided: Undecided,
    /// The list of the sample at hand.
    list: Vec<u64>,
}

/// Samples whose wire types fit both 1.9 and 1.10.
#[derive(Debug, Default)]
struct Undecided {
    with_list: u64,
    /// Lists that cannot be attributes.
    impossible: u64,
    /// Samples that 1.9 would not have.
    not_1_9: u64,
}

/// The wire types with which the fields of a message were seen, as bits.
#[derive(Debug, Default, Clone, Copy)]
struct WireTypes([u8; 32]);

impl WireTypes {
    fn add(&mut self, key: u32) {
        if let Some(types) = self.0.get_mut((key >> 3) as usize) {
            *types |= 1 << (key & 7);
        }
    }

    fn has(&self, field: usize, wire_type: u32) -> bool {
        self.0[field] & (1 << wire_type) != 0
    }
}

/// The value of a field, as far as it matters here.
enum Field<'a> {
    Number(u64),
    Bytes(Reader<'a>),
    Other,
}

/// Calls `visit` with each field. Ends quietly where the message is malformed: what came before it counts.
fn walk<'a>(mut reader: Reader<'a>, mut visit: impl FnMut(u32, Field<'a>)) {
    while let Ok(Some(key)) = reader.key() {
        let field = match key & 7 {
            VARINT => reader.varint().map(Field::Number),
            LEN => reader.message().map(Field::Bytes),
            _ => reader.skip(key).map(|()| Field::Other),
        };
        match field {
            Ok(field) => visit(key, field),
            Err(_) => return,
        }
    }
}

impl Evidence {
    fn request(&mut self, reader: Reader<'_>) {
        // How many attributes there are has to be known before the samples are judged.
        walk(reader, |key, inner| match (key >> 3, inner) {
            (2, Field::Bytes(dictionary)) => {
                self.has_dictionary = true;
                walk(dictionary, |key, _| self.attributes += u64::from(key == 0x32));
            }
            (field @ 3..=8, Field::Bytes(_)) => self.top_level |= 1 << field,
            _ => {}
        });
        walk(reader, |key, inner| {
            if let (0x0a, Field::Bytes(resource)) = (key, inner) {
                walk(resource, |key, inner| {
                    if let (0x12, Field::Bytes(scope)) = (key, inner) {
                        walk(scope, |key, inner| {
                            if let (0x12, Field::Bytes(profile)) = (key, inner) {
                                self.profile(profile);
                            }
                        });
                    }
                });
            }
        });
    }

    fn profile(&mut self, reader: Reader<'_>) {
        let mut seen = WireTypes::default();
        walk(reader, |key, inner| {
            seen.add(key);
            match (key >> 3, inner) {
                (1, Field::Bytes(value_type)) => walk(value_type, |key, _| self.temporality |= key == 0x18),
                (2, Field::Bytes(sample)) => self.sample(sample),
                _ => {}
            }
        });
        let in_profile = seen.has(4, LEN) || seen.has(17, LEN);
        self.container |= seen.has(2, FIXED64);
        self.tables_in_profile |= in_profile;
        self.location_list |= seen.has(3, LEN);
        self.profile_1_8 |= !seen.has(3, LEN) && !in_profile && (seen.has(8, LEN) || seen.has(9, VARINT));
    }

    fn sample(&mut self, reader: Reader<'_>) {
        let mut seen = WireTypes::default();
        let mut list = std::mem::take(&mut self.list);
        list.clear();
        let mut times = 0;
        walk(reader, |key, field| {
            seen.add(key);
            match (key, field) {
                (0x10, Field::Number(index)) => list.push(index),
                (0x12, Field::Bytes(packed)) => list.extend(varint::Packed::new(packed.rest())),
                (0x2a, Field::Bytes(packed)) => times += packed.rest().len() / 8,
                (0x29, _) => times += 1,
                _ => {}
            }
        });
        let range = seen.has(2, VARINT) && (seen.has(3, LEN) || seen.has(6, LEN));
        if range || seen.has(5, VARINT) || (seen.has(3, LEN) && seen.has(4, LEN)) {
            self.range_samples += 1;
        } else if seen.has(3, LEN) {
            self.values_first += 1;
        } else if seen.has(3, VARINT) || (seen.has(4, LEN) && !seen.has(2, VARINT) && !seen.has(6, LEN)) {
            self.current += 1;
        } else {
            self.undecided(&mut list, times, seen);
        }
        self.list = list;
    }

    fn undecided(&mut self, list: &mut [u64], times: usize, seen: WireTypes) {
        let count = list.len();
        if count > 0 {
            self.undecided.with_list += 1;
            list.sort_unstable();
            let twice = list.windows(2).any(|pair| pair[0] == pair[1]);
            let outside = list.last().is_some_and(|&last| last >= self.attributes.max(1));
            let nothing_left = times == 0 && !seen.has(4, VARINT) && !seen.has(4, LEN);
            self.undecided.impossible += u64::from(twice || outside || list.first() == Some(&0) || nothing_left);
        }
        let fits_1_9 = if times == 0 { count > 0 } else { count == 0 || count == times };
        self.undecided.not_1_9 += u64::from(!fits_1_9 || seen.has(4, LEN));
    }

    fn verdict(&self, decoded: bool) -> Option<(&'static str, &'static str)> {
        if self.container {
            return Some(("1.3 (v1experimental)", UPGRADE_OLD));
        }
        if self.tables_in_profile {
            return Some(("1.4 or 1.5", UPGRADE_OLD));
        }
        if self.current > 0 {
            return None;
        }
        // A later version may add one field beside the dictionary; five tables it will not add.
        if self.top_level.count_ones() >= 3 {
            return Some(("1.6", UPGRADE_OLD));
        }
        if self.location_list || self.range_samples > 0 {
            return Some((if self.has_dictionary { "1.7" } else { "1.4 to 1.6" }, UPGRADE_OLD));
        }
        if self.profile_1_8 || (self.temporality && self.values_first > 0) {
            return Some(("1.8", UPGRADE_1_8));
        }
        let Undecided { with_list, impossible, not_1_9 } = self.undecided;
        let impossible_as_1_10 = decoded && not_1_9 == 0 && impossible > 0 && impossible * 2 >= with_list;
        if self.values_first > 0 || impossible_as_1_10 {
            return Some(if self.temporality { ("1.8", UPGRADE_1_8) } else { ("1.9", UPGRADE_1_9) });
        }
        None
    }
}
