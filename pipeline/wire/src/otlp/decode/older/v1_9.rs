//! 1.9: as 1.10, but for the numbers of a sample's fields.

use profbridge_model::Profile;
use profbridge_model::dictionary::Invalid;

use super::super::super::error::{Fault, Result};
use super::super::super::reader::Reader;
use super::super::Decoder;
use super::super::profile::times;
use super::super::run::Run;

impl<'a> Decoder<'a> {
    /// Reads a profile of 1.9 as [`profile`](Self::profile) reads one of 1.10.
    pub(in super::super) fn profile_1_9(&mut self, reader: Reader<'a>, fault: &mut Option<Invalid>) -> Result<Profile> {
        let profile = self.profile_with(reader, fault, Self::sample_1_9)?;
        // A payload comes with its format, and an id is not sixteen indices of strings: else it may be of 1.8.
        self.suspicious |= profile.original_payload_format.is_some() == profile.original_payload.is_empty();
        let few = |&byte: &u8| byte < 0x80 && u32::from(byte) < self.table_strings;
        self.suspicious |= profile.profile_id.is_some_and(|id| id.iter().all(few));
        Ok(profile)
    }

    /// Reads a sample of 1.8 or 1.9. Attributes that are not packed are refused, though protobuf allows them: one of
    /// them is what 1.10 has as a link.
    #[inline]
    pub(super) fn sample_1_9(&mut self, mut reader: Reader<'a>, first: u32, fault: &mut Option<Invalid>) -> Result<()> {
        let (mut stack, mut link) = (0, 0);
        let (mut attributes, mut values, mut timestamps) = (Run::default(), Run::default(), Run::default());
        while let Some(key) = reader.key()? {
            match key {
                0x08 => stack = reader.varint()? as u32,
                0x12 => values.add(reader.span()?, self.request, &mut self.scratch.values)?,
                0x1a => attributes.add(reader.span()?, self.request, &mut self.scratch.attributes)?,
                0x20 => link = reader.varint()? as u32,
                0x2a => timestamps.add_fixed(times(&mut reader)?, self.request, &mut self.scratch.timestamps),
                0x10 => values.add(reader.varint_bytes()?, self.request, &mut self.scratch.values)?,
                0x18 => {
                    let rule = "a single integer is a link in opentelemetry-proto 1.10 and an attribute before it";
                    return Err(Fault::wire(reader.position(), rule));
                }
                0x29 => timestamps.add_fixed(reader.fixed64_bytes()?, self.request, &mut self.scratch.timestamps),
                _ => self.other(&mut reader, key, 5)?,
            }
        }
        self.push_sample([stack, link], [attributes, timestamps, values], first, fault)
    }
}
