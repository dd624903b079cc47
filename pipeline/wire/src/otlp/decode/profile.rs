//! `Profile` and `Sample`, where the time goes.

use profbridge_model::dictionary::Invalid;
use profbridge_model::{ByteRange, LinkId, Profile, StackId, ValueType};

use super::super::error::{Fault, Result};
use super::super::reader::Reader;
use super::Decoder;
use super::run::Run;
use super::sets::{Set, out_of_range};

pub(super) const SAMPLE_TYPE: [&str; 2] = ["sample_type.type_strindex", "sample_type.unit_strindex"];
pub(super) const PERIOD_TYPE: [&str; 2] = ["period_type.type_strindex", "period_type.unit_strindex"];

impl<'a> Decoder<'a> {
    /// Reads a profile and its samples. What the columns cannot say is noted in `fault`; the batch checks the rest.
    pub(super) fn profile(&mut self, reader: Reader<'a>, fault: &mut Option<Invalid>) -> Result<Profile> {
        self.profile_with(reader, fault, Self::sample)
    }

    /// Reads a profile whose samples `sample` reads, which is told the row of the profile's first sample.
    #[inline(always)]
    pub(super) fn profile_with(
        &mut self,
        mut reader: Reader<'a>,
        fault: &mut Option<Invalid>,
        sample: impl Fn(&mut Self, Reader<'a>, u32, &mut Option<Invalid>) -> Result<()>,
    ) -> Result<Profile> {
        let mut profile = Profile::default();
        let mut attributes = Run::default();
        // Pieces of the profile's own list may stand between samples, which use the common scratch.
        let mut scratch = Vec::new();
        // There are fewer samples than bytes, of which there are fewer than 2^31.
        let first = self.samples.len() as u32;
        while let Some(key) = reader.key()? {
            match key {
                0x12 => {
                    let message = reader.message()?;
                    sample(self, message, first, fault).map_err(|fault| self.at_sample(fault, first))?;
                }
                0x0a => self
                    .value_type(reader.message()?, &mut profile.sample_type, SAMPLE_TYPE)
                    .map_err(|fault| fault.within("sample_type"))?,
                0x19 => profile.time_unix_nano = reader.fixed64()?,
                0x20 => profile.duration_nano = reader.varint()?,
                0x2a => self
                    .value_type(reader.message()?, &mut profile.period_type, PERIOD_TYPE)
                    .map_err(|fault| fault.within("period_type"))?,
                0x30 => profile.period = reader.varint()? as i64,
                0x3a => profile.profile_id = profile_id(reader.bytes()?, fault),
                0x40 => profile.dropped_attributes_count = reader.varint()? as u32,
                0x4a => profile.original_payload_format = self.inline_string(reader.span()?)?,
                0x52 => profile.original_payload = reader.span()?,
                0x5a => attributes.add(reader.span()?, self.request, &mut scratch)?,
                0x58 => attributes.add(reader.varint_bytes()?, self.request, &mut scratch)?,
                _ => self.other(&mut reader, key, 11)?,
            }
        }
        profile.samples = first..self.samples.len() as u32;
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
        Ok(profile)
    }

    pub(super) fn value_type(
        &mut self,
        mut reader: Reader<'a>,
        value_type: &mut ValueType,
        [kind, unit]: [&'static str; 2],
    ) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x08 => value_type.kind = self.table_string(reader.varint()?, kind),
                0x10 => value_type.unit = self.table_string(reader.varint()?, unit),
                _ => self.other(&mut reader, key, 2)?,
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn sample(&mut self, mut reader: Reader<'a>, first: u32, fault: &mut Option<Invalid>) -> Result<()> {
        let (mut stack, mut link) = (0, 0);
        let (mut attributes, mut values, mut timestamps) = (Run::default(), Run::default(), Run::default());
        while let Some(key) = reader.key()? {
            match key {
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

    /// Appends a sample of a stack, a link, attributes, timestamps and values.
    #[inline(always)]
    pub(super) fn push_sample(
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
        self.samples.push(StackId::new(stack), attributes, LinkId::new(link), timestamps, values);
        Ok(())
    }

    /// The id of a list of attributes.
    #[inline]
    pub(super) fn attribute_set(&mut self, list: Run) -> Result<Set> {
        let packed = list.bytes(self.request, &self.scratch.attributes);
        let set = self.sets.intern(packed, self.table_attributes, &mut self.budget)?;
        self.scratch.attributes.clear();
        Ok(set)
    }

    #[cold]
    pub(super) fn at_sample(&self, fault: Fault, first: u32) -> Fault {
        fault.within(format_args!("samples[{}]", self.samples.len() as u32 - first))
    }
}

/// The place of a packed list of timestamps.
#[inline(always)]
pub(super) fn times(reader: &mut Reader<'_>) -> Result<ByteRange> {
    let packed = reader.span()?;
    if packed.len % 8 != 0 {
        let fault = Fault::wire(packed.start as usize, "is not a list of eight-byte numbers");
        return Err(fault.within("timestamps_unix_nano"));
    }
    Ok(packed)
}

/// The id of a profile: sixteen bytes, where all zeros are as good as none (opentelemetry-proto `profiles.proto`).
pub(super) fn profile_id(bytes: &[u8], fault: &mut Option<Invalid>) -> Option<[u8; 16]> {
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
