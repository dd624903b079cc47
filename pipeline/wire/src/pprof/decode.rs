//! Decodes pprof into a batch: one resource, one scope, and a profile for each sample type.
//!
//! As with OTLP, the decoder copies as little as possible. Strings and values are byte ranges of the profile; so are
//! stacks if locations are numbered from 1 on, as Go and most other writers do. Samples usually precede the elements to
//! which they refer. A first pass therefore records the position of each element; then the decoded sizes are charged to
//! a budget ([`Limits`]), and the elements are decoded, samples last.
//!
//! A profile is rejected as a whole for the same errors as in google/pprof (a location with the id 0, a duplicate id, a
//! missing location, a number of values that differs from the number of types, a string table whose first element is
//! not the empty string), and for times before 1970, which OTLP cannot represent. References to missing mappings and
//! functions, or to those with the id 0, are dropped and counted. Ids may be in any order. Negative values are kept,
//! because differences of profiles contain them.

mod elements;
mod ids;
mod labels;
mod sample;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};
use profbridge_model::dictionary::Invalid;
use profbridge_model::{
    Attribute, AttributeId, AttributeSetId, Buffer, ByteRange, Line, Link, LinkId, Location, Mapping, Profile,
    Profiles, ResourceProfiles, Samples, Scope, ScopeProfiles, StringId, Tables, Value, ValueType,
};

use self::ids::Ids;
use super::error::DecodeError;
use super::keys::{COMMENT, DEFAULT_SAMPLE_TYPE, DOC_URL, DROP_FRAMES, KEEP_FRAMES};
use crate::otlp::Limits;
use crate::otlp::decode::census::count;
use crate::otlp::decode::checked;
use crate::otlp::decode::run::Spill;
use crate::otlp::decode::sets::Sets;
use crate::otlp::error::{Fault, Result};
use crate::otlp::limits::Budget;
use crate::otlp::reader::ProtobufReader;

/// A decoded pprof profile.
#[derive(Debug, Clone)]
pub struct DecodedProfile {
    /// The profiles, one for each sample type.
    pub profiles: Profiles,
    /// Number of strings that were not valid UTF-8 and had bytes replaced by U+FFFD.
    pub replaced_strings: u64,
    /// Number of labels with both a number and text, which pprof does not allow: only the text is used.
    pub left_out_numbers: u64,
    /// Number of references to missing mappings and functions, and of mappings and functions with the id 0, to which
    /// nothing can refer.
    pub left_out_references: u64,
}

/// Decodes an uncompressed pprof profile.
///
/// # Errors
///
/// See [`DecodeError`].
pub fn decode(profile: Bytes, limits: &Limits) -> std::result::Result<DecodedProfile, DecodeError> {
    let most = limits.max_request.min(i32::MAX as usize);
    if profile.len() > most {
        return Err(DecodeError::LimitExceeded { what: "bytes of the profile", limit: most as u64 });
    }
    let mut budget = Budget::new(limits, profile.len());
    let places = ElementRanges::of(&profile, &mut budget)?;
    let mut decoder = Decoder::new(&profile, limits, budget, &places)?;
    let header = decoder.read(places)?;
    decoder.finish(header, &profile)
}

/// The byte ranges of a profile's elements.
#[derive(Debug, Default)]
struct ElementRanges<'a> {
    strings: Vec<ByteRange>,
    functions: Vec<ByteRange>,
    mappings: Vec<ByteRange>,
    locations: Vec<ByteRange>,
    samples: Vec<ByteRange>,
    /// All other fields: the key, and a reader that is positioned at the value.
    rest: Vec<(u32, ProtobufReader<'a>)>,
    types: usize,
    /// Total number of lines of all locations.
    lines: usize,
}

impl<'a> ElementRanges<'a> {
    /// Scans the message, and rejects fields with a wrong wire type.
    fn of(profile: &'a [u8], budget: &mut Budget) -> Result<Self> {
        let mut places = Self::default();
        let mut reader = ProtobufReader::new(profile);
        while let Some(key) = reader.key()? {
            let list = match key {
                0x12 => &mut places.samples,
                0x1a => &mut places.mappings,
                0x22 => &mut places.locations,
                0x2a => &mut places.functions,
                0x32 => &mut places.strings,
                // sample_type, drop_frames to duration_nanos, period_type, period, comment, default_sample_type,
                // doc_url.
                0x0a | 0x38 | 0x40 | 0x48 | 0x50 | 0x5a | 0x60 | 0x68 | 0x6a | 0x70 | 0x78 => {
                    budget.charge::<(u32, ProtobufReader<'_>)>(1)?;
                    places.types += usize::from(key == 0x0a);
                    places.rest.push((key, reader));
                    reader.skip(key)?;
                    continue;
                }
                _ => {
                    reader.other(key, 15)?;
                    continue;
                }
            };
            budget.charge::<ByteRange>(1)?;
            list.push(reader.span()?);
            if key == 0x22 {
                let location = places.locations.last().copied().unwrap_or_default();
                places.lines += count(ProtobufReader::at(profile, location), 0x22)?;
            }
        }
        Ok(places)
    }
}

/// The profile's metadata, as indices into the string table.
#[derive(Debug, Default)]
struct Header {
    types: Vec<ValueType>,
    drop_frames: Option<StringId>,
    keep_frames: Option<StringId>,
    time_nanos: u64,
    duration_nanos: u64,
    period_type: ValueType,
    period: i64,
    comments: Vec<Value>,
    default_sample_type: Option<StringId>,
    doc_url: Option<StringId>,
}

/// The state of decoding one profile.
struct Decoder<'a> {
    profile: &'a [u8],
    limits: &'a Limits,
    budget: Budget,
    tables: Tables,
    /// Number of elements of `string_table`; the ids after it are for texts that the decoder adds.
    table_strings: u32,
    texts: Vec<(&'static str, Option<StringId>)>,
    /// For each key, the id of its `true` attribute.
    flags: Vec<(&'static str, Option<AttributeId>)>,
    sets: Sets,
    spill: Spill,
    mappings: Ids,
    functions: Ids,
    locations: Ids,
    /// The stacks, hashed by their bytes.
    stacks: HashTable<u32>,
    state: DefaultHashBuilder,
    labels: HashMap<[u64; 4], Option<AttributeId>>,
    links: HashMap<Link, Option<LinkId>>,
    left_out_numbers: u64,
    left_out_references: u64,
    sample_places: Vec<ByteRange>,
    samples: Samples,
    /// The values of all samples: one for each type of the first sample, then those of the second one, and so on.
    values: Vec<ByteRange>,
    /// The pieces of a list of locations, and its rewritten form.
    scratch: [Vec<u8>; 2],
    /// The labels and attributes of the current sample.
    sample_labels: Vec<labels::Label>,
    sample_attributes: Vec<Option<AttributeId>>,
}

impl<'a> Decoder<'a> {
    /// Charges the room for the counted elements, and allocates it.
    fn new(profile: &'a [u8], limits: &'a Limits, mut budget: Budget, places: &ElementRanges<'a>) -> Result<Self> {
        let samples = places.samples.len();
        let rows = samples.saturating_mul(places.types);
        budget.charge::<Mapping>(places.mappings.len())?;
        budget.charge::<profbridge_model::Function>(places.functions.len())?;
        budget.charge::<Location>(places.locations.len())?;
        budget.charge::<Line>(places.lines)?;
        // Each row has its values twice: as decoded, and in columns.
        budget.charge::<([u8; Samples::ROW_BYTES], ByteRange)>(rows)?;
        // A stack for each sample, and the stack's entry in the hash table.
        budget.charge::<[ByteRange; 2]>(samples)?;
        budget.charge::<Profile>(places.types)?;
        let mut tables = Tables::empty();
        tables.mappings.reserve_exact(places.mappings.len());
        tables.functions.reserve_exact(places.functions.len());
        tables.locations.reserve_exact(places.locations.len());
        tables.lines.reserve_exact(places.lines);
        tables.stacks.reserve_exact(samples);
        let mut columns = Samples::with_capacity(rows);
        columns.values.reserve_exact(rows);
        Ok(Self {
            profile,
            limits,
            tables,
            // There are fewer elements than bytes, and fewer than 2^31 bytes.
            table_strings: places.strings.len() as u32,
            texts: Vec::new(),
            flags: Vec::new(),
            sets: Sets::default(),
            spill: Spill::behind(profile),
            mappings: Ids::new("mapping", places.mappings.len(), &mut budget)?,
            functions: Ids::new("function", places.functions.len(), &mut budget)?,
            locations: Ids::new("location", places.locations.len(), &mut budget)?,
            stacks: HashTable::with_capacity(samples),
            state: DefaultHashBuilder::default(),
            labels: HashMap::new(),
            links: HashMap::new(),
            left_out_numbers: 0,
            left_out_references: 0,
            sample_places: Vec::new(),
            samples: columns,
            values: Vec::with_capacity(rows),
            scratch: [Vec::new(), Vec::new()],
            sample_labels: Vec::new(),
            sample_attributes: Vec::new(),
            budget,
        })
    }

    /// Calls the handler for each element of a field. An error gets the element's index.
    fn each(
        &mut self,
        places: &[ByteRange],
        name: &str,
        mut read: impl FnMut(&mut Self, ProtobufReader<'a>) -> Result<()>,
    ) -> Result<()> {
        let profile = self.profile;
        for (position, &place) in places.iter().enumerate() {
            let element = ProtobufReader::at(profile, place);
            read(self, element).map_err(|fault| fault.within(format_args!("{name}[{position}]")))?;
        }
        Ok(())
    }

    fn read(&mut self, places: ElementRanges<'a>) -> Result<Header> {
        let ElementRanges { strings, functions, mappings, locations, samples, rest, types: _, lines: _ } = places;
        self.tables.strings = strings;
        match self.tables.strings.first() {
            Some(first) if first.is_empty() => {}
            Some(_) => return Err(Fault::value("string_table[0]", "is not the empty string, which it has to be")),
            None => return Err(Fault::value("string_table", "is empty, its first element has to be the empty string")),
        }
        let header = self.header(&rest)?;
        self.each(&functions, "function", Self::function)?;
        self.each(&mappings, "mapping", Self::mapping)?;
        self.each(&locations, "location", Self::location)?;
        if header.types.is_empty() && !samples.is_empty() {
            return Err(Fault::value("sample_type", "there is none, and there are samples"));
        }
        let types = header.types.len();
        self.each(&samples, "sample", |this, sample| this.sample(sample, types))?;
        self.sample_places = samples;
        Ok(header)
    }

    fn header(&mut self, fields: &[(u32, ProtobufReader<'a>)]) -> Result<Header> {
        let mut header = Header::default();
        for &(key, mut reader) in fields {
            match key {
                0x0a => {
                    let place = format!("sample_type[{}]", header.types.len());
                    let sample_type = self.value_type(reader.message()?).map_err(|fault| fault.within(place))?;
                    self.budget.charge::<ValueType>(1)?;
                    header.types.push(sample_type);
                }
                0x38 => header.drop_frames = self.string(reader.varint()?, "drop_frames")?,
                0x40 => header.keep_frames = self.string(reader.varint()?, "keep_frames")?,
                0x48 => header.time_nanos = time(reader.varint()?, "time_nanos")?,
                0x50 => header.duration_nanos = time(reader.varint()?, "duration_nanos")?,
                0x5a => {
                    let period_type = self.value_type(reader.message()?);
                    header.period_type = period_type.map_err(|fault| fault.within("period_type"))?;
                }
                0x60 => header.period = reader.varint()? as i64,
                0x6a => {
                    let mut packed = reader.message()?;
                    while !packed.rest().is_empty() {
                        self.comment(packed.varint()?, &mut header)?;
                    }
                }
                0x70 => header.default_sample_type = self.string(reader.varint()?, "default_sample_type")?,
                0x78 => header.doc_url = self.string(reader.varint()?, "doc_url")?,
                // 0x68 (comment), the only other key that the first pass keeps.
                _ => self.comment(reader.varint()?, &mut header)?,
            }
        }
        Ok(header)
    }

    fn comment(&mut self, index: u64, header: &mut Header) -> Result<()> {
        self.budget.charge::<Value>(1)?;
        let comment = self.string(index, "comment")?;
        header.comments.push(Value::String(comment));
        Ok(())
    }

    /// The id of an element of `string_table`.
    #[inline]
    fn string(&self, index: u64, field: &str) -> Result<Option<StringId>> {
        if index >= u64::from(self.table_strings) {
            return Err(self.no_string(index, field));
        }
        Ok(StringId::new(index as u32))
    }

    #[cold]
    fn no_string(&self, index: u64, field: &str) -> Fault {
        let rule = format!("index {} is out of range, string_table has {} elements", index as i64, self.table_strings);
        Fault::value(field, rule)
    }

    /// The bytes of a string of the profile.
    fn bytes_of(&self, id: Option<StringId>) -> &'a [u8] {
        let span = id.and_then(|id| self.tables.strings.get(id.index())).copied().unwrap_or_default();
        self.profile.get(span.start as usize..span.start as usize + span.len as usize).unwrap_or_default()
    }

    /// The id of a text that the decoder adds.
    fn text(&mut self, text: &'static str) -> Result<Option<StringId>> {
        if let Some((_, known)) = self.texts.iter().find(|(known, _)| *known == text) {
            return Ok(*known);
        }
        self.budget.charge::<u8>(text.len() + size_of::<ByteRange>())?;
        let id = StringId::new(self.tables.strings.len() as u32);
        let place = self.spill.put(text.as_bytes());
        self.tables.strings.push(place);
        self.texts.push((text, id));
        Ok(id)
    }

    fn attribute(
        &mut self,
        key: Option<StringId>,
        value: Value,
        unit: Option<StringId>,
    ) -> Result<Option<AttributeId>> {
        self.budget.charge::<Attribute>(1)?;
        let id = AttributeId::new(self.tables.attributes.len() as u32);
        self.tables.attributes.push(Attribute { key, value, unit });
        Ok(id)
    }

    /// The `true` attribute of this key.
    fn flag(&mut self, key: &'static str) -> Result<Option<AttributeId>> {
        if let Some((_, known)) = self.flags.iter().find(|(known, _)| *known == key) {
            return Ok(*known);
        }
        let name = self.text(key)?;
        let id = self.attribute(name, Value::Bool(true), None)?;
        self.flags.push((key, id));
        Ok(id)
    }

    fn set(&mut self, ids: &[Option<AttributeId>]) -> Result<Option<AttributeSetId>> {
        self.sets.extended(None, ids, &mut self.budget)
    }

    fn finish(mut self, header: Header, profile: &Bytes) -> std::result::Result<DecodedProfile, DecodeError> {
        let attributes = self.attributes_of(&header)?;
        let mut scope = Scope::default();
        if header.default_sample_type.is_some() {
            let key = self.text(DEFAULT_SAMPLE_TYPE)?;
            let value = Value::String(header.default_sample_type);
            scope.attributes.push(Attribute { key, value, unit: None });
        }
        let rows = self.samples.len() as u32;
        self.columns(header.types.len());
        let profiles = (0..).zip(&header.types).map(|(k, &sample_type)| Profile {
            sample_type,
            samples: k * rows..(k + 1) * rows,
            time_unix_nano: header.time_nanos,
            duration_nano: header.duration_nanos,
            period_type: header.period_type,
            period: header.period,
            attributes,
            ..Profile::default()
        });
        let scope = ScopeProfiles { scope, profiles: profiles.collect(), schema_url: None };
        let resource = ResourceProfiles { scopes: vec![scope], ..ResourceProfiles::default() };
        let mut tables = std::mem::take(&mut self.tables);
        tables.table_strings = tables.strings.len() as u32;
        self.sets.finish(&mut tables);
        tables.buffer = Buffer::new(profile.clone(), self.spill.take());
        let (dictionary, replaced_strings) = match checked(tables, &mut self.budget, |invalid| invalid) {
            Ok(checked) => checked,
            Err(error) => {
                self.missing_location(&self.sample_places)?;
                return Err(error.into());
            }
        };
        let (resources, samples) = (vec![resource], std::mem::take(&mut self.samples));
        let profiles = Profiles::new(Arc::new(dictionary), resources, samples).map_err(malformed)?;
        let Self { left_out_numbers, left_out_references, .. } = self;
        Ok(DecodedProfile { profiles, replaced_strings, left_out_numbers, left_out_references })
    }

    /// The attributes that all profiles share.
    fn attributes_of(&mut self, header: &Header) -> Result<Option<AttributeSetId>> {
        let mut ids = Vec::new();
        for (key, text) in
            [(DROP_FRAMES, header.drop_frames), (KEEP_FRAMES, header.keep_frames), (DOC_URL, header.doc_url)]
        {
            if !self.bytes_of(text).is_empty() {
                let key = self.text(key)?;
                ids.push(self.attribute(key, Value::String(text), None)?);
            }
        }
        if !header.comments.is_empty() {
            let key = self.text(COMMENT)?;
            ids.push(self.attribute(key, Value::Array(header.comments.clone().into()), None)?);
        }
        self.set(&ids)
    }

    /// Creates the rows of each type. The rows of the first type exist, but have no values yet.
    fn columns(&mut self, types: usize) {
        let samples = &mut self.samples;
        let rows = samples.len();
        for k in 0..types {
            if k > 0 {
                samples.repeat(rows);
            }
            samples.values.extend(self.values.iter().skip(k).step_by(types));
        }
    }
}

/// Checks a time that OTLP represents as unsigned.
fn time(number: u64, field: &str) -> Result<u64> {
    if number > i64::MAX as u64 {
        return Err(Fault::value(field, format!("{} ns is no time", number as i64)));
    }
    Ok(number)
}

fn malformed(invalid: Invalid) -> DecodeError {
    DecodeError::Malformed { place: invalid.place, offset: None, rule: invalid.rule }
}
