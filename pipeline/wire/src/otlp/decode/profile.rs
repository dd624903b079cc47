//! Decodes `Profile` and `Sample`, where most of the time is spent.

use profbridge_model::dictionary::Invalid;
use profbridge_model::{Attribute, AttributeId, ByteRange, LinkId, Profile, SampleIds, StackId, Value, ValueType};

use super::super::error::{Fault, Result};
use super::super::layout::Layout;
use super::super::reader::{LEN, ProtobufReader, VARINT};
use super::Decoder;
use super::run::Run;
use super::sets::{Set, out_of_range};

const SAMPLE_TYPE: [&str; 2] = ["sample_type.type_strindex", "sample_type.unit_strindex"];
const PERIOD_TYPE: [&str; 2] = ["period_type.type_strindex", "period_type.unit_strindex"];

/// `Profile.comment_strindices` of 1.8 (semantic-conventions `model/pprof`; opentelemetry-proto#729).
pub(super) const COMMENT: &str = "pprof.profile.comment";

impl<'a> Decoder<'a> {
    /// Decodes a profile and its samples. Errors that the columns cannot represent are stored in `fault`; the batch
    /// checks everything else. `VALUES_FIRST` is for 1.8 and 1.9, which number a sample's fields differently. 1.8 also
    /// has a temporality, and comments as field 7, which shifts the following field numbers by one.
    pub(super) fn profile<const VALUES_FIRST: bool>(
        &mut self,
        mut reader: ProtobufReader<'a>,
        fault: &mut Option<Invalid>,
    ) -> Result<Profile> {
        let has_comments = VALUES_FIRST && self.layout == Layout::V1_8;
        let mut profile = Profile::default();
        let mut attributes = Run::default();
        // Pieces of the profile's own list may lie between samples, which use the shared scratch buffer.
        let (mut scratch, mut comments) = (Vec::new(), Vec::new());
        // There are fewer samples than bytes, and fewer than 2^31 bytes.
        let first = self.samples.len() as u32;
        while let Some(key) = reader.key()? {
            let renumbered = match key >> 3 {
                7 if has_comments => key - (7 << 3),
                8.. if has_comments => key - (1 << 3),
                _ => key,
            };
            match renumbered {
                0x12 => {
                    let message = reader.message()?;
                    self.sample::<VALUES_FIRST>(message, first, fault).map_err(|fault| self.at_sample(fault, first))?;
                }
                0x0a => self
                    .value_type(reader.message()?, &mut profile.sample_type, SAMPLE_TYPE, fault)
                    .map_err(|fault| fault.within("sample_type"))?,
                0x19 => profile.time_unix_nano = reader.fixed64()?,
                0x20 => profile.duration_nano = reader.varint()?,
                0x2a => self
                    .value_type(reader.message()?, &mut profile.period_type, PERIOD_TYPE, &mut None)
                    .map_err(|fault| fault.within("period_type"))?,
                0x30 => profile.period = reader.varint()? as i64,
                0x3a => profile.profile_id = profile_id(reader.bytes()?, fault),
                0x40 => profile.dropped_attributes_count = reader.varint()? as u32,
                0x4a => profile.original_payload_format = self.inline_string(reader.span()?)?,
                0x52 => profile.original_payload = reader.span()?,
                0x5a => attributes.add(reader.span()?, self.request, &mut scratch)?,
                0x58 => attributes.add(reader.varint_bytes()?, self.request, &mut scratch)?,
                VARINT if has_comments => comments.push(self.comment(reader.varint()?)?),
                LEN if has_comments => {
                    let mut packed = reader.message()?;
                    while !packed.rest().is_empty() {
                        comments.push(self.comment(packed.varint()?)?);
                    }
                }
                _ => self.other(&mut reader, key, if has_comments { 12 } else { 11 })?,
            }
        }
        profile.samples = first..self.samples.len() as u32;
        if VALUES_FIRST {
            // In the right layout a payload has a format, and an id does not look like sixteen string indices.
            self.suspicious |= profile.original_payload_format.is_some() == profile.original_payload.is_empty();
            let few = |&byte: &u8| byte < 0x80 && u32::from(byte) < self.table_strings;
            self.suspicious |= !has_comments && profile.profile_id.is_some_and(|id| id.iter().all(few));
        }
        if let Some(invalid) = self.take_dangling(String::new) {
            fault.get_or_insert(invalid);
        }
        self.scratch.attributes = scratch;
        profile.attributes = match self.attribute_set(attributes)? {
            Set::Known(id) => id,
            Set::OutOfRange(index) => {
                fault.get_or_insert(out_of_range(index, self.table_attributes));
                None
            }
        };
        if !comments.is_empty() {
            self.budget.charge::<u8>(COMMENT.len())?;
            let place = self.spill.put(COMMENT.as_bytes());
            let key = self.inline_string(place)?;
            self.budget.charge::<Attribute>(1)?;
            // Each attribute takes at least two bytes of the request, which has fewer than 2^31.
            let id = AttributeId::new(self.tables.attributes.len() as u32);
            self.tables.attributes.push(Attribute { key, value: Value::Array(comments.into()), unit: None });
            profile.attributes = self.sets.extended(profile.attributes, &[id], &mut self.budget)?;
        }
        Ok(profile)
    }

    fn comment(&mut self, index: u64) -> Result<Value> {
        self.budget.charge::<Value>(1)?;
        Ok(Value::String(self.table_string(index, "comment_strindices")))
    }

    /// Decodes a `ValueType`. If it has a temporality, only delta is accepted, because cumulative values would be
    /// counted again with each report.
    fn value_type(
        &mut self,
        mut reader: ProtobufReader<'a>,
        value_type: &mut ValueType,
        [kind, unit]: [&'static str; 2],
        fault: &mut Option<Invalid>,
    ) -> Result<()> {
        let known = if self.layout == Layout::V1_8 { 3 } else { 2 };
        while let Some(key) = reader.key()? {
            match key {
                0x08 => value_type.kind = self.table_string(reader.varint()?, kind),
                0x10 => value_type.unit = self.table_string(reader.varint()?, unit),
                0x18 if known == 3 => {
                    if let Some(rule) = not_delta(reader.varint()?) {
                        let place = "sample_type.aggregation_temporality".to_owned();
                        fault.get_or_insert(Invalid { place, rule });
                    }
                }
                _ => self.other(&mut reader, key, known)?,
            }
        }
        Ok(())
    }

    /// Decodes a sample. In 1.8 and 1.9, unpacked attributes are rejected although protobuf allows them, because a
    /// single one looks like a link of 1.10.
    #[inline(always)]
    fn sample<const VALUES_FIRST: bool>(
        &mut self,
        mut reader: ProtobufReader<'a>,
        first: u32,
        fault: &mut Option<Invalid>,
    ) -> Result<()> {
        let (mut stack, mut link) = (0, 0);
        let (mut attributes, mut values, mut timestamps) = (Run::default(), Run::default(), Run::default());
        while let Some(key) = reader.key()? {
            let renumbered = match key {
                0x10 | 0x12 if VALUES_FIRST => key + 0x10,
                0x18 if VALUES_FIRST => {
                    let rule = "a single integer is a link in opentelemetry-proto 1.10 and an attribute before it";
                    return Err(Fault::wire(reader.position(), rule));
                }
                0x1a if VALUES_FIRST => 0x12,
                0x20 if VALUES_FIRST => 0x18,
                0x22 if VALUES_FIRST => 0,
                _ => key,
            };
            match renumbered {
                0x08 => stack = reader.varint()? as u32,
                0x12 => attributes.add(reader.span()?, self.request, &mut self.scratch.attributes)?,
                0x18 => link = reader.varint()? as u32,
                0x22 => values.add(reader.span()?, self.request, &mut self.scratch.values)?,
                0x2a => timestamps.add_fixed(times(&mut reader)?, self.request, &mut self.scratch.timestamps),
                0x10 => attributes.add(reader.varint_bytes()?, self.request, &mut self.scratch.attributes)?,
                0x20 => values.add(reader.varint_bytes()?, self.request, &mut self.scratch.values)?,
                0x29 => timestamps.add_fixed(reader.fixed64_bytes()?, self.request, &mut self.scratch.timestamps),
                _ => self.other(&mut reader, key, 5)?,
            }
        }
        self.push_sample([stack, link], [attributes, timestamps, values], first, fault)
    }

    /// Appends a sample with its stack, link, attributes, timestamps and values.
    #[inline(always)]
    fn push_sample(
        &mut self,
        [stack, link]: [u32; 2],
        [attributes, timestamps, values]: [Run; 3],
        first: u32,
        fault: &mut Option<Invalid>,
    ) -> Result<()> {
        let timestamps = timestamps.finish(&mut self.scratch.timestamps, &mut self.spill);
        let values = values.finish(&mut self.scratch.values, &mut self.spill);
        let attributes = match self.attribute_set(attributes)? {
            Set::Known(id) => id,
            Set::OutOfRange(index) => {
                let Invalid { place, rule } = out_of_range(index, self.table_attributes);
                let row = self.samples.len() as u32 - first;
                fault.get_or_insert(Invalid { place: format!("samples[{row}].{place}"), rule });
                None
            }
        };
        let ids = SampleIds { stack: StackId::new(stack), attributes, link: LinkId::new(link) };
        self.samples.push(ids, timestamps, values);
        Ok(())
    }

    /// Returns the id of an attribute list.
    #[inline]
    pub(super) fn attribute_set(&mut self, list: Run) -> Result<Set> {
        let packed = list.bytes(self.request, &self.scratch.attributes);
        let set = self.sets.intern(packed, self.table_attributes, &mut self.budget)?;
        self.scratch.attributes.clear();
        Ok(set)
    }

    #[cold]
    fn at_sample(&self, fault: Fault, first: u32) -> Fault {
        fault.within(format_args!("samples[{}]", self.samples.len() as u32 - first))
    }
}

/// The range of a packed list of timestamps.
#[inline(always)]
fn times(reader: &mut ProtobufReader<'_>) -> Result<ByteRange> {
    let packed = reader.span()?;
    if packed.len % 8 != 0 {
        let fault = Fault::wire(packed.start as usize, "is not a list of eight-byte numbers");
        return Err(fault.within("timestamps_unix_nano"));
    }
    Ok(packed)
}

/// The id of a profile: sixteen bytes; all zeros mean none (opentelemetry-proto `profiles.proto`).
fn profile_id(bytes: &[u8], fault: &mut Option<Invalid>) -> Option<[u8; 16]> {
    match <[u8; 16]>::try_from(bytes) {
        Ok(id) => (id != [0; 16]).then_some(id),
        Err(_) if bytes.is_empty() => None,
        Err(_) => {
            let rule = format!("has {} bytes, not 16", bytes.len());
            fault.get_or_insert(Invalid { place: "profile_id".to_owned(), rule });
            None
        }
    }
}

/// The reason to reject a temporality, unless it is unset or delta (`AGGREGATION_TEMPORALITY_DELTA`).
pub(super) fn not_delta(temporality: u64) -> Option<String> {
    match temporality {
        0 | 1 => None,
        2 => Some("CUMULATIVE values are not read, only DELTA; let the profiler report changes".to_owned()),
        other => Some(format!("{other} is no temporality")),
    }
}
