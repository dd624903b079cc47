//! Splits a batch into smaller self-contained ones.
//!
//! A part contains only the dictionary entries that it refers to, so the cost of splitting a batch into many parts is
//! linear in their total contents. (The Collector copies the whole dictionary into every part.) Even a single sample
//! can be split, between two of its timestamps.

use std::ops::Range;

use crate::arena::{Carry, Full, TableSource, TableStore, Transfer};
use crate::builder::Assembly;
use crate::dictionary::{Attribute, Invalid};
use crate::profiles::{Profile, Profiles, Resource, ResourceProfiles, Sample, Scope, ScopeProfiles};
use crate::varint;

#[cfg(test)]
mod tests;

/// Copies selected samples of one batch into another. Resources, scopes and profiles are copied when they are started,
/// from top to bottom, as with a [`Builder`](crate::Builder).
///
/// The new batch keeps the peer of the original. As with a builder, a full batch is reported at the end.
#[derive(Debug)]
pub struct Compact<'a> {
    profiles: &'a Profiles,
    source: TableSource<'a>,
    transfer: &'a mut Transfer,
    store: TableStore,
    assembly: Assembly,
    full: Option<Full>,
}

impl<'a> Compact<'a> {
    /// Starts an empty copy of a batch. `transfer` is scratch space; reusing it saves allocations.
    pub fn new(profiles: &'a Profiles, transfer: &'a mut Transfer) -> Self {
        transfer.begin();
        let source = TableSource::from(&**profiles.dictionary());
        Self { profiles, source, transfer, store: TableStore::default(), assembly: Assembly::default(), full: None }
    }

    fn carry<T: Default>(
        &mut self,
        carry: impl FnOnce(&mut Transfer, &TableSource<'a>, &mut TableStore) -> Result<T, Full>,
    ) -> T {
        carry(self.transfer, &self.source, &mut self.store).unwrap_or_else(|full| {
            self.full.get_or_insert(full);
            T::default()
        })
    }

    /// Starts a copy of this resource without its scopes.
    pub fn resource(&mut self, resource: &ResourceProfiles) {
        let ResourceProfiles { resource, scopes: _, schema_url } = resource;
        let Resource { attributes, dropped_attributes_count, entity_refs } = resource;
        let schema_url = self.carry(|transfer, from, to| transfer.string(from, to, *schema_url));
        let attributes = self.attributes(attributes);
        let dropped_attributes_count = *dropped_attributes_count;
        let dictionary = self.profiles.dictionary();
        let entity_refs =
            entity_refs.iter().map(|&entity| self.carry(|_, _, to| to.put(dictionary.bytes(entity)))).collect();
        let resource = Resource { attributes, dropped_attributes_count, entity_refs };
        self.assembly.resource(ResourceProfiles { resource, schema_url, scopes: Vec::new() });
    }

    /// Starts a copy of this scope without its profiles.
    pub fn scope(&mut self, scope: &ScopeProfiles) {
        let ScopeProfiles { scope, profiles: _, schema_url } = scope;
        let Scope { name, version, attributes, dropped_attributes_count } = scope;
        let schema_url = self.carry(|transfer, from, to| transfer.string(from, to, *schema_url));
        let scope = Scope {
            name: self.carry(|transfer, from, to| transfer.string(from, to, *name)),
            version: self.carry(|transfer, from, to| transfer.string(from, to, *version)),
            attributes: self.attributes(attributes),
            dropped_attributes_count: *dropped_attributes_count,
        };
        self.assembly.scope(ScopeProfiles { scope, schema_url, profiles: Vec::new() });
    }

    fn attributes(&mut self, attributes: &[Attribute]) -> Vec<Attribute> {
        let carried = attributes.iter();
        carried.map(|attribute| self.carry(|transfer, from, to| transfer.key_value(from, to, attribute))).collect()
    }

    /// Starts a copy of this profile, without its samples and without its original payload, which would no longer
    /// match.
    pub fn profile(&mut self, profile: &Profile) {
        let profile = self.carry(|transfer, from, to| profile.map_ids(&mut Carry { transfer, from, to }));
        self.assembly.profile(profile);
    }

    /// Appends a sample of the batch.
    pub fn sample(&mut self, sample: &Sample<'_>) {
        self.some_of(sample, sample.timestamps_bytes(), sample.values_bytes());
    }

    /// Appends a sample of the batch with some of its timestamps and values.
    pub fn some_of(&mut self, sample: &Sample<'_>, timestamps: &[u8], values: &[u8]) {
        let ids = self.carry(|transfer, from, to| sample.ids.transfer(transfer, from, to));
        let timestamps = self.carry(|_, _, to| to.put(timestamps));
        let values = self.carry(|_, _, to| to.put(values));
        self.assembly.row(ids, timestamps, values);
    }

    /// Returns the batch.
    ///
    /// # Errors
    ///
    /// The batch would be larger than 4 GiB.
    pub fn finish(self) -> Result<Profiles, Invalid> {
        if let Some(full) = self.full {
            return Err(Invalid { place: "batch".to_owned(), rule: full.to_string() });
        }
        let mut profiles = self.assembly.finish(self.store.into_tables())?;
        profiles.peer.clone_from(&self.profiles.peer);
        profiles.relayed = self.profiles.relayed;
        Ok(profiles)
    }
}

/// Splits packed values after the first `count`.
pub fn split_values(values: &[u8], count: usize) -> (&[u8], &[u8]) {
    let mut rest = values;
    for _ in 0..count {
        if varint::take(&mut rest).is_none() {
            break;
        }
    }
    values.split_at(values.len() - rest.len())
}

/// A copy of some of the observations of a batch. They are numbered in order through all profiles.
///
/// For exporters with a size limit: `part(p, 0..n)` and `part(p, n..p.observations())` together contain everything in
/// `p`. A profile without samples belongs to the same part as the next observation, or as the last one. The copy keeps
/// the peer, the window and the profile ids (parts of a profile share its id), but not the original payloads.
///
/// # Errors
///
/// The part would be larger than 4 GiB.
pub fn part(profiles: &Profiles, observations: Range<u64>, transfer: &mut Transfer) -> Result<Profiles, Invalid> {
    let total = profiles.observations();
    let in_part = |start: u64, end: u64| {
        let inside = start < observations.end && end > observations.start;
        let at =
            start >= observations.start && (start < observations.end || start == total && observations.end >= total);
        if start == end { at } else { inside }
    };
    let mut compact = Compact::new(profiles, transfer);
    let mut position = 0;
    for resource in profiles.resources() {
        let mut named = false;
        for scope in &resource.scopes {
            let mut scope_named = false;
            for profile in &scope.profiles {
                let start = position;
                position += profiles.observations_of(profile);
                if !in_part(start, position) {
                    continue;
                }
                if !std::mem::replace(&mut named, true) {
                    compact.resource(resource);
                }
                if !std::mem::replace(&mut scope_named, true) {
                    compact.scope(scope);
                }
                compact.profile(profile);
                samples_between(&mut compact, profile, start, &observations);
            }
        }
    }
    let mut part = compact.finish()?;
    part.window.clone_from(&profiles.window);
    Ok(part)
}

fn samples_between(compact: &mut Compact<'_>, profile: &Profile, start: u64, observations: &Range<u64>) {
    let profiles = compact.profiles;
    let mut position = start;
    for sample in profiles.samples(profile) {
        let count = sample.observations();
        let from = observations.start.saturating_sub(position).min(count);
        let to = observations.end.saturating_sub(position).min(count);
        position += count;
        if from >= to {
            continue;
        }
        if to - from == count {
            compact.sample(&sample);
            continue;
        }
        let timestamps = &sample.timestamps_bytes()[from as usize * 8..to as usize * 8];
        let (_, values) = split_values(sample.values_bytes(), from as usize);
        let (values, _) = split_values(values, (to - from) as usize);
        compact.some_of(&sample, timestamps, values);
    }
}
