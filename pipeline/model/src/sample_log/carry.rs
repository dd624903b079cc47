//! Copies the elements that profiles refer to into the arena of a [`SampleLog`](super::SampleLog).

use super::{LoggedResource, LoggedScope, SampleLayout, Series};
use crate::arena::{Arena, Carry, Full, TableSource, TableWriter, Transfer};
use crate::dictionary::Attribute;
use crate::id::AttributeSetId;
use crate::profiles::{Profile, Resource, ResourceProfiles, Scope, ScopeProfiles};
use crate::varint;

/// The source, the destination, and the elements copied so far.
#[derive(Debug)]
pub struct Carrier<'a> {
    /// The dictionary of the profiles.
    pub source: &'a TableSource<'a>,
    /// The elements copied so far.
    pub transfer: &'a mut Transfer,
    /// The arena.
    pub arena: &'a mut Arena,
}

impl Carrier<'_> {
    /// Copies a resource, with `attributes` instead of its own.
    ///
    /// # Errors
    ///
    /// As with all of these methods, the arena is full.
    pub fn resource<'b>(
        &mut self,
        resource: &ResourceProfiles,
        attributes: impl Iterator<Item = &'b Attribute>,
    ) -> Result<LoggedResource, Full> {
        let ResourceProfiles { resource, scopes: _, schema_url } = resource;
        let Resource { attributes: _, dropped_attributes_count, entity_refs } = resource;
        let mut entities = Vec::new();
        for &entity in entity_refs {
            let message = self.source.bytes(entity);
            varint::put(&mut entities, message.len() as u64);
            entities.extend_from_slice(message);
        }
        let entity_refs = self.arena.put_blob(&entities)?;
        Ok(LoggedResource {
            attributes: self.attributes(attributes)?,
            dropped_attributes_count: *dropped_attributes_count,
            schema_url: self.transfer.string(self.source, self.arena, *schema_url)?,
            entity_refs,
        })
    }

    /// Copies a scope.
    ///
    /// # Errors
    ///
    /// See [`Carrier::resource`].
    pub fn scope(&mut self, scope: &ScopeProfiles) -> Result<LoggedScope, Full> {
        let ScopeProfiles { scope, profiles: _, schema_url } = scope;
        let Scope { name, version, attributes, dropped_attributes_count } = scope;
        Ok(LoggedScope {
            name: self.transfer.string(self.source, self.arena, *name)?,
            version: self.transfer.string(self.source, self.arena, *version)?,
            attributes: self.attributes(attributes.iter())?,
            dropped_attributes_count: *dropped_attributes_count,
            schema_url: self.transfer.string(self.source, self.arena, *schema_url)?,
        })
    }

    /// Copies the common properties of profiles that can be merged.
    ///
    /// # Errors
    ///
    /// See [`Carrier::resource`].
    pub fn series(
        &mut self,
        profile: &Profile,
        resource: u32,
        scope: u32,
        shape: SampleLayout,
    ) -> Result<Series, Full> {
        let mut carry = Carry { transfer: self.transfer, from: self.source, to: self.arena };
        let profile = profile.map_ids(&mut carry)?;
        // `SampleLog::series` gets the times and the id separately.
        let profile = Profile { time_unix_nano: 0, duration_nano: 0, profile_id: None, ..profile };
        Ok(Series { resource, scope, profile, shape })
    }

    fn attributes<'b>(
        &mut self,
        attributes: impl Iterator<Item = &'b Attribute>,
    ) -> Result<Option<AttributeSetId>, Full> {
        let mut items = Vec::new();
        for attribute in attributes {
            let attribute = self.transfer.key_value(self.source, self.arena, attribute)?;
            items.push(self.arena.put_attribute(attribute)?);
        }
        self.arena.put_attribute_set(&items)
    }
}
