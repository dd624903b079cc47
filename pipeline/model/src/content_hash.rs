//! A 128-bit hash of a profile's content: equal content gives an equal hash, whatever the order of the tables.
//!
//! Two batches with equal content rarely have equal indices, so values are hashed: each string, location, stack and
//! attribute once per batch, from the hashes of the elements that it refers to. The cost is linear in the size of the
//! batch. The order of attributes and of samples has no meaning in OTLP (opentelemetry-proto `profiles.proto`:
//! attributes are a set, a sample's identity is its stack, attributes and link), so it does not affect the hash.
//!
//! The hash includes the resource and scope. It excludes `profile_id`, which is set from the hash, and
//! `original_payload`, which repeats the profile. It does not resist deliberate collisions: a sender who creates them
//! only harms its own data.

use xxhash_rust::xxh3::xxh3_128;

use crate::dictionary::{Attribute, Dictionary, Function, Line, Link, Location, Mapping, Value};
use crate::id::{AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MappingId, StackId, StringId};
use crate::profiles::{Profile, Profiles, Resource, ResourceProfiles, SampleIds, Scope, ScopeProfiles, ValueType};

/// The content hash of each profile of a batch, in the order of [`Profiles::profiles`].
pub fn content_hashes(profiles: &Profiles) -> Vec<[u8; 16]> {
    let mut hasher = Hasher::new(profiles.dictionary());
    let mut hashes = Vec::new();
    for resource in profiles.resources() {
        let resource_hash = hasher.resource(resource);
        for scope in &resource.scopes {
            let scope_hash = hasher.scope(resource_hash, scope);
            hashes.extend(scope.profiles.iter().map(|profile| hasher.profile(profiles, scope_hash, profile)));
        }
    }
    hashes
}

/// The hashes of a table's elements; 0 means not computed yet.
struct Memo(Vec<u128>);

impl Memo {
    fn new(len: usize) -> Self {
        Self(vec![0; len])
    }

    fn get(&self, index: u32) -> Option<u128> {
        match self.0[index as usize] {
            0 => None,
            hash => Some(hash),
        }
    }

    fn set(&mut self, index: u32, hash: u128) -> u128 {
        // A hash is 0 with probability 2^-128; it is then recomputed each time, with the same result.
        self.0[index as usize] = hash;
        hash
    }
}

struct Hasher<'a> {
    dictionary: &'a Dictionary,
    strings: Memo,
    mappings: Memo,
    functions: Memo,
    locations: Memo,
    attributes: Memo,
    sets: Memo,
    stacks: Memo,
    /// Scratch bytes for hashing stacks and samples.
    scratch: Vec<u8>,
}

impl<'a> Hasher<'a> {
    fn new(dictionary: &'a Dictionary) -> Self {
        let tables = dictionary.tables();
        Self {
            dictionary,
            strings: Memo::new(tables.strings.len()),
            mappings: Memo::new(tables.mappings.len()),
            functions: Memo::new(tables.functions.len()),
            locations: Memo::new(tables.locations.len()),
            attributes: Memo::new(tables.attributes.len()),
            sets: Memo::new(tables.attribute_sets.len()),
            stacks: Memo::new(tables.stacks.len()),
            scratch: Vec::new(),
        }
    }

    fn string(&mut self, id: Option<StringId>) -> u128 {
        let index = StringId::wire(id);
        if let Some(hash) = self.strings.get(index) {
            return hash;
        }
        let hash = xxh3_128(self.dictionary.string_bytes(id));
        self.strings.set(index, hash)
    }

    fn value(&mut self, value: &Value) -> u128 {
        match value {
            Value::Empty => fold(0, &[]),
            Value::String(id) => fold(1, &[self.string(*id)]),
            Value::Bool(flag) => fold(2, &[u128::from(*flag)]),
            Value::Int(number) => fold(3, &[*number as u128]),
            Value::Double(number) => fold(4, &[u128::from(number.to_bits())]),
            Value::Bytes(span) => fold(5, &[xxh3_128(self.dictionary.bytes(*span))]),
            Value::Array(values) => values.iter().fold(fold(6, &[]), |hash, value| fold(6, &[hash, self.value(value)])),
            Value::KeyValueList(list) => fold(7, &[self.unordered(list)]),
        }
    }

    fn attribute(&mut self, attribute: &Attribute) -> u128 {
        let Attribute { key, value, unit } = attribute;
        fold(8, &[self.string(*key), self.value(value), self.string(*unit)])
    }

    /// The hash of a list of attributes whose order has no meaning.
    fn unordered(&mut self, list: &[Attribute]) -> u128 {
        list.iter().fold(0, |sum, attribute| self.attribute(attribute).wrapping_add(sum))
    }

    fn table_attribute(&mut self, id: AttributeId) -> u128 {
        if let Some(hash) = self.attributes.get(id.get()) {
            return hash;
        }
        let hash = self.attribute(self.dictionary.attribute(id));
        self.attributes.set(id.get(), hash)
    }

    fn set(&mut self, id: Option<AttributeSetId>) -> u128 {
        let Some(id) = id else { return 0 };
        if let Some(hash) = self.sets.get(id.get()) {
            return hash;
        }
        let items = self.dictionary.attribute_set(Some(id)).iter().flatten();
        let hash = items.fold(0, |sum, &item| self.table_attribute(item).wrapping_add(sum));
        self.sets.set(id.get(), hash)
    }

    fn mapping(&mut self, id: Option<MappingId>) -> u128 {
        let Some(id) = id else { return 0 };
        if let Some(hash) = self.mappings.get(id.get()) {
            return hash;
        }
        let &Mapping { memory_start, memory_limit, file_offset, filename, attributes } = self.dictionary.mapping(id);
        let name = self.string(filename);
        let numbers = [memory_start, memory_limit, file_offset].map(u128::from);
        let hash = fold(9, &[name, numbers[0], numbers[1], numbers[2], self.set(attributes)]);
        self.mappings.set(id.get(), hash)
    }

    fn function(&mut self, id: Option<FunctionId>) -> u128 {
        let Some(id) = id else { return 0 };
        if let Some(hash) = self.functions.get(id.get()) {
            return hash;
        }
        let &Function { name, system_name, filename, start_line } = self.dictionary.function(id);
        let names = [name, system_name, filename].map(|name| self.string(name));
        let hash = fold(10, &[names[0], names[1], names[2], start_line as u128]);
        self.functions.set(id.get(), hash)
    }

    fn location(&mut self, id: Option<LocationId>) -> u128 {
        let Some(id) = id else { return 0 };
        if let Some(hash) = self.locations.get(id.get()) {
            return hash;
        }
        let location = self.dictionary.location(id);
        let &Location { mapping, address, attributes, lines_start: _, lines_len: _ } = location;
        let mapping = self.mapping(mapping);
        let mut hash = fold(11, &[mapping, address.into(), self.set(attributes)]);
        for &Line { function, line, column } in self.dictionary.lines(location) {
            hash = fold(11, &[hash, self.function(function), line as u128, column as u128]);
        }
        self.locations.set(id.get(), hash)
    }

    fn stack(&mut self, id: Option<StackId>) -> u128 {
        let Some(id) = id else { return 0 };
        if let Some(hash) = self.stacks.get(id.get()) {
            return hash;
        }
        self.scratch.clear();
        for location in self.dictionary.stack(Some(id)) {
            let hash = self.location(location);
            self.scratch.extend_from_slice(&hash.to_le_bytes());
        }
        let hash = xxh3_128(&self.scratch);
        self.stacks.set(id.get(), hash)
    }

    fn link(&self, id: Option<LinkId>) -> [u8; 24] {
        let mut bytes = [0; 24];
        if let Some(id) = id {
            let Link { trace_id, span_id } = self.dictionary.link(id);
            bytes[..16].copy_from_slice(trace_id);
            bytes[16..].copy_from_slice(span_id);
        }
        bytes
    }

    fn resource(&mut self, resource: &ResourceProfiles) -> u128 {
        let ResourceProfiles { resource, scopes: _, schema_url } = resource;
        let Resource { attributes, dropped_attributes_count, entity_refs } = resource;
        let entities =
            entity_refs.iter().fold(0u128, |sum, &entity| xxh3_128(self.dictionary.bytes(entity)).wrapping_add(sum));
        let attributes = self.unordered(attributes);
        fold(12, &[attributes, (*dropped_attributes_count).into(), entities, self.string(*schema_url)])
    }

    fn scope(&mut self, resource: u128, scope: &ScopeProfiles) -> u128 {
        let ScopeProfiles { scope, profiles: _, schema_url } = scope;
        let Scope { name, version, attributes, dropped_attributes_count } = scope;
        let strings = [*name, *version, *schema_url].map(|text| self.string(text));
        let attributes = self.unordered(attributes);
        let dropped = (*dropped_attributes_count).into();
        fold(13, &[resource, strings[0], strings[1], strings[2], attributes, dropped])
    }

    fn profile(&mut self, profiles: &Profiles, scope: u128, profile: &Profile) -> [u8; 16] {
        let Profile {
            sample_type,
            samples: positions,
            time_unix_nano,
            duration_nano,
            period_type,
            period,
            profile_id: _,
            dropped_attributes_count,
            original_payload_format: _,
            original_payload: _,
            attributes,
        } = profile;
        let types = [sample_type, period_type].map(|&ValueType { kind, unit }| [self.string(kind), self.string(unit)]);
        let own = fold(14, &[types[0][0], types[0][1], types[1][0], types[1][1]]);
        let times = fold(14, &[(*time_unix_nano).into(), (*duration_nano).into(), *period as u128]);
        let attributes = self.set(*attributes);
        let dropped = (*dropped_attributes_count).into();
        let samples = self.samples(profiles, profile);
        let count = positions.len() as u128;
        fold(14, &[scope, own, times, attributes, dropped, count, samples]).to_be_bytes()
    }

    fn samples(&mut self, profiles: &Profiles, profile: &Profile) -> u128 {
        profiles.samples(profile).fold(0, |sum, sample| {
            let SampleIds { stack, attributes, link } = sample.ids;
            let (stack, set, link) = (self.stack(stack), self.set(attributes), self.link(link));
            let timestamps = sample.timestamps_bytes();
            self.scratch.clear();
            self.scratch.extend_from_slice(&stack.to_le_bytes());
            self.scratch.extend_from_slice(&set.to_le_bytes());
            self.scratch.extend_from_slice(&link);
            self.scratch.extend_from_slice(&(timestamps.len() as u64).to_le_bytes());
            self.scratch.extend_from_slice(timestamps);
            // Decoded values are hashed, because a varint may be encoded in more bytes than needed.
            for value in sample.values() {
                self.scratch.extend_from_slice(&value.to_le_bytes());
            }
            xxh3_128(&self.scratch).wrapping_add(sum)
        })
    }
}

/// The hash of some parts. `kind` distinguishes kinds of elements that may have the same parts.
fn fold(kind: u8, parts: &[u128]) -> u128 {
    let mut bytes = [0; 1 + 8 * 16];
    bytes[0] = kind;
    let len = 1 + parts.len() * 16;
    for (place, part) in bytes[1..].chunks_exact_mut(16).zip(parts) {
        place.copy_from_slice(&part.to_le_bytes());
    }
    xxh3_128(&bytes[..len.min(bytes.len())])
}

#[cfg(test)]
mod tests;
