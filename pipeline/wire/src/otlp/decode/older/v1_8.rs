//! 1.8: samples as in 1.9, and a profile that has comments and a temporality.

use profbridge_model::dictionary::Invalid;
use profbridge_model::{Profile, Value};

use super::super::super::error::Result;
use super::super::super::reader::Reader;
use super::super::Decoder;
use super::super::profile::{PERIOD_TYPE, SAMPLE_TYPE, profile_id};
use super::super::run::Run;
use super::super::sets::{Set, out_of_range};

impl<'a> Decoder<'a> {
    /// Reads a profile of 1.8 as [`profile`](Self::profile) reads one of 1.10.
    pub(in super::super) fn profile_1_8(
        &mut self,
        mut reader: Reader<'a>,
        fault: &mut Option<Invalid>,
    ) -> Result<Profile> {
        let mut profile = Profile::default();
        let mut attributes = Run::default();
        let (mut scratch, mut comments) = (Vec::new(), Vec::new());
        let first = self.samples.len() as u32;
        while let Some(key) = reader.key()? {
            match key {
                0x12 => {
                    let message = reader.message()?;
                    self.sample_1_9(message, first, fault).map_err(|fault| self.at_sample(fault, first))?;
                }
                0x0a => self
                    .value_type_with_temporality(reader.message()?, &mut profile.sample_type, SAMPLE_TYPE, fault)
                    .map_err(|fault| fault.within("sample_type"))?,
                0x19 => profile.time_unix_nano = reader.fixed64()?,
                0x20 => profile.duration_nano = reader.varint()?,
                0x2a => self
                    .value_type_with_temporality(reader.message()?, &mut profile.period_type, PERIOD_TYPE, &mut None)
                    .map_err(|fault| fault.within("period_type"))?,
                0x30 => profile.period = reader.varint()? as i64,
                0x38 => comments.push(self.comment(reader.varint()?)?),
                0x3a => {
                    let mut packed = reader.message()?;
                    while !packed.rest().is_empty() {
                        comments.push(self.comment(packed.varint()?)?);
                    }
                }
                0x42 => profile.profile_id = profile_id(reader.bytes()?, fault),
                0x48 => profile.dropped_attributes_count = reader.varint()? as u32,
                0x52 => profile.original_payload_format = self.inline_string(reader.span()?)?,
                0x5a => profile.original_payload = reader.span()?,
                0x62 => attributes.add(reader.span()?, self.request, &mut scratch)?,
                0x60 => attributes.add(reader.varint_bytes()?, self.request, &mut scratch)?,
                _ => self.other(&mut reader, key, 12)?,
            }
        }
        profile.samples = first..self.samples.len() as u32;
        // A payload comes with its format: else it may be of 1.9.
        self.suspicious |= profile.original_payload_format.is_some() == profile.original_payload.is_empty();
        self.scratch.attributes = scratch;
        let listed = match self.attribute_set(attributes)? {
            Set::Known(id) => id,
            Set::OutOfRange(index) => {
                fault.get_or_insert(out_of_range(index, self.table_attributes));
                None
            }
        };
        let comments = self.comments(comments)?;
        profile.attributes = match comments {
            None => listed,
            comments => self.sets.extended(listed, &[comments], &mut self.budget)?,
        };
        if let Some(invalid) = self.take_dangling(String::new) {
            fault.get_or_insert(invalid);
        }
        Ok(profile)
    }

    fn comment(&mut self, index: u64) -> Result<Value> {
        self.budget.charge::<Value>(1)?;
        Ok(Value::String(self.table_string(index, "comment_strindices")))
    }
}
