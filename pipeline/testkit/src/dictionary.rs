//! An interning `ProfilesDictionary`: every table starts with its zero element, and equal values share one index.
//!
//! Source: opentelemetry-proto `profiles.proto`, message `ProfilesDictionary` ("element 0 MUST be present and be the
//! zero value", "dups SHOULD NOT exist").

use std::collections::HashMap;

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, any_value},
    profiles::v1development::{
        Function, KeyValueAndUnit, Line, Link, Location, Mapping, ProfilesDictionary, Stack, ValueType,
    },
};
use prost::Message;

/// The value of an attribute, in the types used by profilers.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string, encoded inline as by the eBPF profiler.
    Text(String),
    /// An integer.
    Int(i64),
    /// A boolean.
    Bool(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<Value> for AnyValue {
    fn from(value: Value) -> Self {
        let value = match value {
            Value::Text(text) => any_value::Value::StringValue(text),
            Value::Int(number) => any_value::Value::IntValue(number),
            Value::Bool(flag) => any_value::Value::BoolValue(flag),
        };
        Self { value: Some(value) }
    }
}

/// A table in which equal entries (by their encoding) share one index.
#[derive(Clone, Debug)]
struct InternTable<T> {
    entries: Vec<T>,
    index: HashMap<Vec<u8>, i32>,
}

impl<T: Message + Default> Default for InternTable<T> {
    fn default() -> Self {
        // The zero value encodes to no bytes.
        Self { entries: vec![T::default()], index: HashMap::from([(Vec::new(), 0)]) }
    }
}

impl<T: Message> InternTable<T> {
    fn intern(&mut self, entry: T) -> i32 {
        let next = index_of(self.entries.len());
        let index = *self.index.entry(entry.encode_to_vec()).or_insert(next);
        if index == next {
            self.entries.push(entry);
        }
        index
    }
}

/// Table sizes stay far below 2^31: generated requests are at most some hundred megabytes.
fn index_of(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

/// The tables of a request under construction.
#[derive(Clone, Debug)]
pub struct Dictionary {
    strings: Vec<String>,
    string_index: HashMap<String, i32>,
    mappings: InternTable<Mapping>,
    locations: InternTable<Location>,
    functions: InternTable<Function>,
    links: InternTable<Link>,
    attributes: InternTable<KeyValueAndUnit>,
    stacks: InternTable<Stack>,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            strings: vec![String::new()],
            string_index: HashMap::from([(String::new(), 0)]),
            mappings: InternTable::default(),
            locations: InternTable::default(),
            functions: InternTable::default(),
            links: InternTable::default(),
            attributes: InternTable::default(),
            stacks: InternTable::default(),
        }
    }
}

impl Dictionary {
    /// Tables with only their zero elements.
    pub fn new() -> Self {
        Self::default()
    }

    /// The index of `text`; 0 for the empty string.
    pub fn string(&mut self, text: &str) -> i32 {
        if let Some(&index) = self.string_index.get(text) {
            return index;
        }
        let index = index_of(self.strings.len());
        self.strings.push(text.to_owned());
        self.string_index.insert(text.to_owned(), index);
        index
    }

    /// The index of a function with this name and file (either may be empty).
    pub fn function(&mut self, name: &str, filename: &str) -> i32 {
        let (name_strindex, filename_strindex) = (self.string(name), self.string(filename));
        self.functions.intern(Function { name_strindex, filename_strindex, ..Function::default() })
    }

    /// The index of an attribute without unit.
    pub fn attribute(&mut self, key: &str, value: impl Into<Value>) -> i32 {
        let key_strindex = self.string(key);
        let value = Some(value.into().into());
        self.attributes.intern(KeyValueAndUnit { key_strindex, value, unit_strindex: 0 })
    }

    /// The index of a mapping, interned unchanged.
    pub fn mapping(&mut self, mapping: Mapping) -> i32 {
        self.mappings.intern(mapping)
    }

    /// The index of a location; `lines` are innermost first.
    pub fn location(&mut self, mapping: i32, address: u64, lines: Vec<Line>, attributes: Vec<i32>) -> i32 {
        self.locations.intern(Location { mapping_index: mapping, address, lines, attribute_indices: attributes })
    }

    /// The index of a stack of location indices, leaf first.
    pub fn stack(&mut self, locations: Vec<i32>) -> i32 {
        self.stacks.intern(Stack { location_indices: locations })
    }

    /// The index of a link to a span.
    pub fn link(&mut self, trace: [u8; 16], span: [u8; 8]) -> i32 {
        self.links.intern(Link { trace_id: trace.to_vec(), span_id: span.to_vec() })
    }

    /// A value type such as `samples`/`count`.
    pub fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { type_strindex: self.string(kind), unit_strindex: self.string(unit) }
    }

    /// The finished tables.
    pub fn finish(self) -> ProfilesDictionary {
        ProfilesDictionary {
            mapping_table: self.mappings.entries,
            location_table: self.locations.entries,
            function_table: self.functions.entries,
            link_table: self.links.entries,
            string_table: self.strings,
            attribute_table: self.attributes.entries,
            stack_table: self.stacks.entries,
        }
    }
}
