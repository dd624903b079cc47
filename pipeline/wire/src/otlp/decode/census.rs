//! Counts the elements of a request, so that columns are charged first and then allocated once, at their final size.

use profbridge_model::{Profile, Samples, ScopeProfiles};

use super::super::error::Result;
use super::super::limits::Budget;
use super::super::reader::ProtobufReader;

/// The number of elements in the resources.
#[derive(Debug, Default)]
pub(super) struct Census {
    scopes: usize,
    profiles: usize,
    pub(super) samples: usize,
}

impl Census {
    /// Counts a `ResourceProfiles`.
    pub(super) fn resource_profiles(&mut self, mut reader: ProtobufReader<'_>) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x12 => {
                    self.scopes += 1;
                    self.scope_profiles(reader.message()?)?;
                }
                _ => reader.skip(key)?,
            }
        }
        Ok(())
    }

    fn scope_profiles(&mut self, mut reader: ProtobufReader<'_>) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x12 => {
                    self.profiles += 1;
                    self.samples += count(reader.message()?, 0x12)?;
                }
                _ => reader.skip(key)?,
            }
        }
        Ok(())
    }

    /// Charges all counted elements.
    pub(super) fn charge(&self, budget: &mut Budget) -> Result<()> {
        budget.charge::<ScopeProfiles>(self.scopes)?;
        budget.charge::<Profile>(self.profiles)?;
        budget.charge::<[u8; Samples::ROW_BYTES]>(self.samples)
    }
}

/// Number of fields with this key in a message.
pub(crate) fn count(mut reader: ProtobufReader<'_>, wanted: u32) -> Result<usize> {
    let mut found = 0;
    while let Some(key) = reader.key()? {
        found += usize::from(key == wanted);
        if key & 7 == super::super::reader::LEN {
            reader.message()?;
        } else {
            reader.skip(key)?;
        }
    }
    Ok(found)
}
