//! Decodes `ResourceProfiles`, `ScopeProfiles`, and their resource and scope.

use profbridge_model::dictionary::Invalid;
use profbridge_model::profiles::RequestPart;
use profbridge_model::{Attribute, ByteRange, Profile, Resource, ResourceProfiles, Scope, ScopeProfiles, varint};

use super::super::error::Result;
use super::super::layout::Layout;
use super::super::reader::ProtobufReader;
use super::Decoder;
use super::census::count;

impl<'a> Decoder<'a> {
    /// Decodes the `r`th `ResourceProfiles`.
    pub(super) fn resource_profiles(&mut self, mut reader: ProtobufReader<'a>, r: usize) -> Result<ResourceProfiles> {
        let mut decoded = ResourceProfiles::default();
        decoded.scopes.reserve_exact(count(reader, 0x12)?);
        // A resource's error comes before those of its content, wherever the resource field is in the message.
        let first_fault = self.faults.len();
        let mut fault = None;
        while let Some(key) = reader.key()? {
            match key {
                0x0a => {
                    let message = reader.message()?;
                    self.resource(message, &mut decoded.resource, &mut fault)
                        .map_err(|fault| fault.within("resource"))?;
                }
                0x12 => {
                    let s = decoded.scopes.len();
                    let scope = self.scope_profiles(reader.message()?, r, s);
                    decoded.scopes.push(scope.map_err(|fault| fault.within(format_args!("scope_profiles[{s}]")))?);
                }
                0x1a => decoded.schema_url = self.inline_string(reader.span()?)?,
                _ => self.other(&mut reader, key, 3)?,
            }
        }
        decoded.resource.attributes.shrink_to_fit();
        decoded.resource.entity_refs.shrink_to_fit();
        if let Some(invalid) = fault {
            // The resource is rejected as a whole, so errors inside of it are irrelevant.
            self.faults.truncate(first_fault);
            self.faults.push((RequestPart::Resource(r), within("resource_profiles", r, "resource", invalid)));
        }
        Ok(decoded)
    }

    fn resource(
        &mut self,
        mut reader: ProtobufReader<'a>,
        resource: &mut Resource,
        fault: &mut Option<Invalid>,
    ) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x0a => self.attribute_of(reader.message()?, &mut resource.attributes, fault)?,
                0x10 => resource.dropped_attributes_count = reader.varint()? as u32,
                0x1a => {
                    let entity = self.entity_ref(reader.message()?).map_err(|fault| fault.within("entity_refs"))?;
                    self.budget.charge::<ByteRange>(1)?;
                    resource.entity_refs.push(entity);
                }
                _ => self.other(&mut reader, key, 3)?,
            }
        }
        Ok(())
    }

    fn attribute_of(
        &mut self,
        reader: ProtobufReader<'a>,
        attributes: &mut Vec<Attribute>,
        fault: &mut Option<Invalid>,
    ) -> Result<()> {
        let i = attributes.len();
        self.budget.charge::<Attribute>(1)?;
        let attribute = self.key_value(reader, 0).map_err(|fault| fault.within(format_args!("attributes[{i}]")))?;
        attributes.push(attribute);
        if let Some(invalid) = self.take_dangling(|| format!("attributes[{i}]")) {
            fault.get_or_insert(invalid);
        }
        Ok(())
    }

    fn scope_profiles(&mut self, mut reader: ProtobufReader<'a>, r: usize, s: usize) -> Result<ScopeProfiles> {
        let mut decoded = ScopeProfiles::default();
        decoded.profiles.reserve_exact(count(reader, 0x12)?);
        let first_fault = self.faults.len();
        let mut fault = None;
        while let Some(key) = reader.key()? {
            match key {
                0x0a => {
                    let message = reader.message()?;
                    self.scope(message, &mut decoded.scope, &mut fault).map_err(|fault| fault.within("scope"))?;
                }
                0x12 => {
                    let p = decoded.profiles.len();
                    let profile = self.checked_profile(reader.message()?, [r, s, p]);
                    decoded.profiles.push(profile.map_err(|fault| fault.within(format_args!("profiles[{p}]")))?);
                }
                0x1a => decoded.schema_url = self.inline_string(reader.span()?)?,
                _ => self.other(&mut reader, key, 3)?,
            }
        }
        decoded.scope.attributes.shrink_to_fit();
        if let Some(invalid) = fault {
            self.faults.truncate(first_fault);
            let invalid = within("scope_profiles", s, "scope", invalid);
            let place = format!("resource_profiles[{r}].{}", invalid.place);
            self.faults.push((RequestPart::Scope(r, s), Invalid { place, ..invalid }));
        }
        Ok(decoded)
    }

    fn scope(&mut self, mut reader: ProtobufReader<'a>, scope: &mut Scope, fault: &mut Option<Invalid>) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x0a => scope.name = self.inline_string(reader.span()?)?,
                0x12 => scope.version = self.inline_string(reader.span()?)?,
                0x1a => self.attribute_of(reader.message()?, &mut scope.attributes, fault)?,
                0x20 => scope.dropped_attributes_count = reader.varint()? as u32,
                _ => self.other(&mut reader, key, 4)?,
            }
        }
        Ok(())
    }

    /// The range of an `EntityRef`, which is stored in encoded form. One with invalid UTF-8 is rewritten.
    fn entity_ref(&mut self, mut reader: ProtobufReader<'a>) -> Result<ByteRange> {
        if is_text(reader)? {
            return Ok(reader.place());
        }
        // An invalid byte becomes the three bytes of U+FFFD, and lengths may take more bytes.
        self.budget.charge::<[u8; 4]>(reader.rest().len())?;
        let mut anew = Vec::new();
        while let Some(key) = reader.key()? {
            if !matches!(key, 0x0a | 0x12 | 0x1a | 0x22) {
                reader.skip(key)?;
                continue;
            }
            let bytes = reader.bytes()?;
            let text = String::from_utf8_lossy(bytes);
            self.replaced += u64::from(text.as_bytes() != bytes);
            anew.push(key as u8);
            varint::put(&mut anew, text.len() as u64);
            anew.extend_from_slice(text.as_bytes());
        }
        Ok(self.spill.put(&anew))
    }

    /// Decodes a profile and records its error, if any.
    fn checked_profile(&mut self, reader: ProtobufReader<'a>, [r, s, p]: [usize; 3]) -> Result<Profile> {
        let mut fault = None;
        let profile = match self.layout {
            Layout::V1_8 | Layout::V1_9 => self.profile::<true>(reader, &mut fault)?,
            _ => self.profile::<false>(reader, &mut fault)?,
        };
        let part = RequestPart::Profile(r, s, p);
        if self.known_faults.front().is_some_and(|(known, _)| *known == part) {
            self.faults.extend(self.known_faults.pop_front());
        } else if let Some(invalid) = fault {
            let place = format!("resource_profiles[{r}].scope_profiles[{s}].profiles[{p}].{}", invalid.place);
            self.faults.push((part, Invalid { place, ..invalid }));
        }
        Ok(profile)
    }
}

fn within(list: &str, element: usize, message: &str, inner: Invalid) -> Invalid {
    Invalid { place: format!("{list}[{element}].{message}.{}", inner.place), ..inner }
}

/// Whether all strings of an `EntityRef` are UTF-8. Its four fields are all strings (opentelemetry-proto
/// `common.proto`).
fn is_text(mut reader: ProtobufReader<'_>) -> Result<bool> {
    let mut text = true;
    while let Some(key) = reader.key()? {
        match key {
            0x0a | 0x12 | 0x1a | 0x22 => text &= std::str::from_utf8(reader.bytes()?).is_ok(),
            _ => reader.other(key, 4)?,
        }
    }
    Ok(text)
}
