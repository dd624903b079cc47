//! Builds a batch, for code that creates profiles instead of decoding them.
//!
//! ```
//! use profbridge_model::{Builder, Profile};
//!
//! let mut builder = Builder::new();
//! builder.resource(&[("service.name", "checkout".into()), ("process.pid", 7.into())]);
//! builder.scope("example", "1.0");
//! let sample_type = builder.value_type("samples", "count");
//! let period_type = builder.value_type("cpu", "nanoseconds");
//! builder.profile(Profile { sample_type, period_type, period: 50_000_000, ..Profile::default() });
//! let leaf = builder.frame("work", "main.rs", 12);
//! let root = builder.frame("main", "main.rs", 3);
//! let stack = builder.stack(&[leaf, root]);
//! let thread = builder.attributes(&[("thread.id", 1.into())]);
//! builder.sample(stack, thread, None, &[1_000, 2_000], &[]);
//! let profiles = builder.finish()?;
//! assert_eq!(profiles.observations(), 2);
//! # Ok::<(), profbridge_model::dictionary::Invalid>(())
//! ```

mod any;
mod assembly;
#[cfg(test)]
mod tests;

pub use self::any::Any;
pub(crate) use self::assembly::Assembly;
use crate::arena::{Arena, Full, TableWriter};
use crate::buffer::ByteRange;
use crate::dictionary::{Attribute, Function, Invalid, Line, Link, Location, Mapping, Value};
use crate::id::{AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MappingId, StackId, StringId};
use crate::profiles::{Profile, Profiles, Resource, ResourceProfiles, SampleIds, Scope, ScopeProfiles, ValueType};
use crate::varint;

/// Builds a batch from top to bottom: a resource, a scope in it, a profile in the scope, and the profile's samples.
///
/// Equal elements of the dictionary are stored once. The only possible error before the end, a batch larger than 4 GiB
/// (the limit of its offsets), is reported by [`Builder::finish`], so that the other methods need no error handling.
#[derive(Debug, Default)]
pub struct Builder {
    arena: Arena,
    assembly: Assembly,
    full: Option<Full>,
    scratch: Vec<u8>,
}

impl Builder {
    /// Creates a builder of an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    fn take<T: Default>(&mut self, result: Result<T, Full>) -> T {
        result.unwrap_or_else(|full| {
            self.full.get_or_insert(full);
            T::default()
        })
    }

    /// Adds a string to the dictionary.
    pub fn string(&mut self, text: &str) -> Option<StringId> {
        let id = self.arena.string(text);
        self.take(id)
    }

    /// Adds a type with its unit.
    pub fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { kind: self.string(kind), unit: self.string(unit) }
    }

    /// Adds a mapping.
    pub fn mapping(&mut self, mapping: Mapping) -> Option<MappingId> {
        let id = self.arena.put_mapping(mapping);
        self.take(id)
    }

    /// Adds a function.
    pub fn function(&mut self, function: Function) -> Option<FunctionId> {
        let id = self.arena.put_function(function);
        self.take(id)
    }

    /// Adds a location with its lines, the innermost callee first. Its own range of lines is ignored.
    pub fn location(&mut self, location: Location, lines: &[Line]) -> Option<LocationId> {
        let id = self.arena.put_location(location, lines);
        self.take(id)
    }

    /// Adds a location with one line, as in an interpreted program.
    pub fn frame(&mut self, function: &str, filename: &str, line: i64) -> Option<LocationId> {
        let (name, filename) = (self.string(function), self.string(filename));
        let function = self.function(Function { name, filename, ..Function::default() });
        self.location(Location::default(), &[Line { function, line, column: 0 }])
    }

    /// Adds a stack, from the leaf to the root.
    pub fn stack(&mut self, locations: &[Option<LocationId>]) -> Option<StackId> {
        let id = self.arena.stack(locations.iter().copied());
        self.take(id)
    }

    /// Adds a link to a span.
    pub fn link(&mut self, trace_id: [u8; 16], span_id: [u8; 8]) -> Option<LinkId> {
        let id = self.arena.put_link(Link { trace_id, span_id });
        self.take(id)
    }

    /// Converts an attribute value.
    pub fn value(&mut self, value: Any<'_>) -> Value {
        match value {
            Any::Empty => Value::Empty,
            Any::Str(text) => Value::String(self.string(text)),
            Any::Bool(value) => Value::Bool(value),
            Any::Int(value) => Value::Int(value),
            Any::Double(value) => Value::Double(value),
            Any::Bytes(bytes) => {
                let span = self.arena.put_blob(bytes);
                Value::Bytes(self.take(span))
            }
            Any::Array(values) => Value::Array(values.iter().map(|&value| self.value(value)).collect()),
            Any::KeyValueList(list) => {
                Value::KeyValueList(list.iter().map(|&(key, value)| self.key_value(key, value)).collect())
            }
        }
    }

    /// Creates an attribute that is not in the attribute table, such as a resource's.
    pub fn key_value(&mut self, key: &str, value: Any<'_>) -> Attribute {
        Attribute { key: self.string(key), value: self.value(value), unit: None }
    }

    /// Adds an attribute with its unit to the attribute table.
    pub fn attribute(&mut self, key: &str, value: Any<'_>, unit: &str) -> Option<AttributeId> {
        let attribute = Attribute { unit: self.string(unit), ..self.key_value(key, value) };
        let id = self.arena.put_attribute(attribute);
        self.take(id)
    }

    /// Adds a set of attributes without units.
    pub fn attributes(&mut self, attributes: &[(&str, Any<'_>)]) -> Option<AttributeSetId> {
        let items: Vec<_> = attributes.iter().map(|&(key, value)| self.attribute(key, value, "")).collect();
        self.attribute_set(&items)
    }

    /// Adds a set of attributes of the attribute table.
    pub fn attribute_set(&mut self, items: &[Option<AttributeId>]) -> Option<AttributeSetId> {
        let id = self.arena.put_attribute_set(items);
        self.take(id)
    }

    /// Starts a resource; the following scopes belong to it.
    pub fn resource(&mut self, attributes: &[(&str, Any<'_>)]) {
        let attributes = attributes.iter().map(|&(key, value)| self.key_value(key, value)).collect();
        let resource = Resource { attributes, ..Resource::default() };
        self.resource_profiles(ResourceProfiles { resource, ..ResourceProfiles::default() });
    }

    /// Starts a resource with all its fields.
    pub fn resource_profiles(&mut self, resource: ResourceProfiles) {
        self.assembly.resource(resource);
    }

    /// Starts a scope; the following profiles belong to it.
    pub fn scope(&mut self, name: &str, version: &str) {
        let scope = Scope { name: self.string(name), version: self.string(version), ..Scope::default() };
        self.scope_profiles(ScopeProfiles { scope, ..ScopeProfiles::default() });
    }

    /// Starts a scope with all its fields.
    pub fn scope_profiles(&mut self, scope: ScopeProfiles) {
        self.assembly.scope(scope);
    }

    /// Starts a profile; the following samples belong to it. Its own range of samples is ignored.
    pub fn profile(&mut self, profile: Profile) {
        self.assembly.profile(profile);
    }

    /// Starts a profile like that of an on-CPU sampler: `samples` in `count`, sampled at this frequency.
    pub fn on_cpu(&mut self, hertz: u32) {
        let sample_type = self.value_type("samples", "count");
        let period_type = self.value_type("cpu", "nanoseconds");
        let period = 1_000_000_000 / i64::from(hertz.max(1));
        self.profile(Profile { sample_type, period_type, period, ..Profile::default() });
    }

    /// The current profile, to set fields that were not known at its start.
    pub fn open_profile(&mut self) -> Option<&mut Profile> {
        self.assembly.open()
    }

    /// Appends a sample. A sample with timestamps has as many values or none; one without timestamps has at least one
    /// value.
    pub fn sample(
        &mut self,
        stack: Option<StackId>,
        attributes: Option<AttributeSetId>,
        link: Option<LinkId>,
        timestamps_unix_nano: &[u64],
        values: &[i64],
    ) {
        self.scratch.clear();
        timestamps_unix_nano.iter().for_each(|time| self.scratch.extend_from_slice(&time.to_le_bytes()));
        let timestamps = self.put_scratch();
        self.scratch.clear();
        values.iter().for_each(|&value| varint::put(&mut self.scratch, value as u64));
        let values = self.put_scratch();
        self.assembly.row(SampleIds::new(stack, attributes, link), timestamps, values);
    }

    fn put_scratch(&mut self) -> ByteRange {
        let span = self.arena.store_mut().put(&self.scratch);
        self.take(span)
    }

    /// Adds bytes to the batch's buffer, such as an original payload.
    pub fn bytes(&mut self, bytes: &[u8]) -> ByteRange {
        let span = self.arena.store_mut().put(bytes);
        self.take(span)
    }

    /// Checks everything and returns the batch.
    ///
    /// # Errors
    ///
    /// The error names the broken rule of [`Profiles::new`](crate::Profiles::new), such as an id of another builder, or
    /// reports that the batch is too large.
    pub fn finish(self) -> Result<Profiles, Invalid> {
        if let Some(full) = self.full {
            return Err(Invalid { place: "batch".to_owned(), rule: full.to_string() });
        }
        self.assembly.finish(self.arena.into_tables())
    }
}
