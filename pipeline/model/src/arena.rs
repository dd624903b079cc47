//! Holds the dictionaries of many batches as one.
//!
//! Whoever holds profiles longer than a call puts what they refer to into an arena and lets the batch go: otherwise one
//! eight-byte name pins a megabyte of request. Equal elements are one element, however many batches bring them, and
//! putting a batch in costs what is referenced of it, not what the arena already holds.
//!
//! * Values lie in columns, in one place only; the hash tables hold 32-bit ids of them.
//! * An element that equals the zero value is element 0, "not set". Attribute sets are sets (opentelemetry-proto
//!   `profiles.proto`: "Sample identity"), so their order does not tell two of them apart.
//! * Ids are given in order of first appearance, so what comes out is the same from run to run, although the hash is
//!   seeded at random per arena. It has to be: names and stacks come from outside, and with a known hash their sender
//!   could put all of them into one bucket.
//! * Columns grow by a quarter, not by doubling. [`Arena::bytes`] counts what is allocated.

mod equal;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod transfer;

use std::fmt;
use std::hash::{BuildHasher, Hasher};

use hashbrown::HashTable;

pub use self::source::Source;
pub(crate) use self::store::{Store, make_room};
pub use self::transfer::{Sink, Transfer};
use crate::buffer::ByteRange;
use crate::dictionary::{Attribute, Function, Line, Link, Location, Mapping, Tables, Value};
use crate::id::{AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MappingId, StackId, StringId};
use crate::varint;

type RandomState = foldhash::fast::RandomState;

/// Columns grow by one part in this many.
const GROWTH: usize = 4;

/// What an arena may become. Checked before an element is added, so a full arena stays whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The memory of everything, allocated, in bytes.
    pub bytes: u64,
    /// How many strings.
    pub strings: u32,
    /// How many stacks.
    pub stacks: u32,
}

impl Limits {
    /// No limit but what 32-bit offsets can address.
    pub const ADDRESSABLE: Self = Self { bytes: u32::MAX as u64, strings: u32::MAX, stacks: u32::MAX };

    /// A limit on the memory alone, in bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self { bytes, ..Self::ADDRESSABLE }
    }
}

/// An arena takes no more: the caller starts another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// What there is too much of.
    pub what: &'static str,
    /// How much of it there may be.
    pub limit: u64,
}

impl Full {
    const fn addressable() -> Self {
        Self { what: "bytes", limit: u32::MAX as u64 }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tables are full: at most {} {}", self.limit, self.what)
    }
}

impl std::error::Error for Full {}

/// How much work an arena did, to show that merging is linear without measuring time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Elements that were looked up.
    pub lookups: u64,
    /// Elements that a lookup was compared with.
    pub comparisons: u64,
}

/// Interned tables that grow. See the [module](self).
#[derive(Debug)]
pub struct Arena {
    store: Store,
    limits: Limits,
    state: RandomState,
    work: Work,
    strings: HashTable<u32>,
    blobs: HashTable<ByteRange>,
    mappings: HashTable<u32>,
    functions: HashTable<u32>,
    locations: HashTable<u32>,
    links: HashTable<u32>,
    attributes: HashTable<u32>,
    attribute_sets: HashTable<u32>,
    stacks: HashTable<u32>,
    sorted: Vec<Option<AttributeId>>,
    packed: Vec<u8>,
}

impl std::ops::Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { lookups: self.lookups + other.lookups, comparisons: self.comparisons + other.comparisons }
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new(Limits::ADDRESSABLE)
    }
}

fn hash_bytes(state: &RandomState, bytes: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(bytes);
    // The length tells "" and "\0" apart.
    hasher.write_usize(bytes.len());
    hasher.finish()
}

fn hash_location(state: &RandomState, location: &Location, lines: &[Line]) -> u64 {
    state.hash_one((location.mapping, location.address, location.attributes, lines))
}

fn same_location(a: &Location, b: &Location) -> bool {
    (a.mapping, a.address, a.attributes) == (b.mapping, b.address, b.attributes)
}

fn hash_attribute(state: &RandomState, attribute: &Attribute) -> u64 {
    let mut hasher = state.build_hasher();
    equal::hash_attribute(attribute, &mut hasher);
    hasher.finish()
}

/// Finds an element, or adds it at the end of its column.
macro_rules! intern {
    ($self:ident, $table:ident, $id:ident, $hash:expr, $equal:expr, $rehash:expr, $add:expr) => {{
        let hash: u64 = $hash;
        $self.work.lookups += 1;
        let comparisons = &mut $self.work.comparisons;
        let store = &$self.store;
        let found = $self.$table.find(hash, |&index| {
            *comparisons += 1;
            $equal(store, index as usize)
        });
        if let Some(&index) = found {
            return Ok($id::new(index));
        }
        $self.admit()?;
        let id = $add(&mut $self.store)?;
        let (store, state) = (&$self.store, &$self.state);
        $self.$table.insert_unique(hash, $id::wire(id), |&index| $rehash(state, store, index as usize));
        Ok(id)
    }};
}

impl Arena {
    /// An arena that grows up to its limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            store: Store::default(),
            limits: Limits { bytes: limits.bytes.min(Limits::ADDRESSABLE.bytes), ..limits },
            state: RandomState::default(),
            work: Work::default(),
            strings: HashTable::new(),
            blobs: HashTable::new(),
            mappings: HashTable::new(),
            functions: HashTable::new(),
            locations: HashTable::new(),
            links: HashTable::new(),
            attributes: HashTable::new(),
            attribute_sets: HashTable::new(),
            stacks: HashTable::new(),
            sorted: Vec::new(),
            packed: Vec::new(),
        }
    }

    /// The memory it occupies: columns and hash tables as allocated, in bytes.
    pub fn bytes(&self) -> u64 {
        let tables = self.strings.allocation_size()
            + self.blobs.allocation_size()
            + self.mappings.allocation_size()
            + self.functions.allocation_size()
            + self.locations.allocation_size()
            + self.links.allocation_size()
            + self.attributes.allocation_size()
            + self.attribute_sets.allocation_size()
            + self.stacks.allocation_size();
        (size_of::<Self>() + self.store.allocated() + tables) as u64
    }

    /// The memory of its distinct elements alone: without hash tables and what is reserved, in bytes.
    pub fn distinct_bytes(&self) -> u64 {
        self.store.used() as u64
    }

    /// What it has done so far.
    pub fn work(&self) -> Work {
        self.work
    }

    /// The tables as they stand, to read from.
    pub fn source(&self) -> Source<'_> {
        self.store.source()
    }

    /// The tables, to be made a dictionary of; nothing is copied.
    pub fn into_tables(self) -> Tables {
        self.store.into_tables()
    }

    pub(crate) fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    fn admit(&self) -> Result<(), Full> {
        let Limits { bytes, strings, stacks } = self.limits;
        if self.store.strings.len() as u64 > u64::from(strings) {
            return Err(Full { what: "strings", limit: u64::from(strings) });
        }
        if self.store.stacks.len() as u64 > u64::from(stacks) {
            return Err(Full { what: "stacks", limit: u64::from(stacks) });
        }
        if self.bytes() >= bytes {
            return Err(Full { what: "bytes", limit: bytes });
        }
        Ok(())
    }

    /// A string.
    ///
    /// # Errors
    ///
    /// As all of these: the arena is at one of its limits, and the element is not in it yet.
    pub fn string(&mut self, text: &str) -> Result<Option<StringId>, Full> {
        self.put_string(text.as_bytes())
    }

    /// A mapping.
    ///
    /// # Errors
    ///
    /// See [`Arena::string`].
    pub fn mapping(&mut self, mapping: Mapping) -> Result<Option<MappingId>, Full> {
        self.put_mapping(mapping)
    }

    /// A function.
    ///
    /// # Errors
    ///
    /// See [`Arena::string`].
    pub fn function(&mut self, function: Function) -> Result<Option<FunctionId>, Full> {
        self.put_function(function)
    }

    /// A location with its lines, the innermost callee first. Its own range of lines is ignored.
    ///
    /// # Errors
    ///
    /// See [`Arena::string`].
    pub fn location(&mut self, location: Location, lines: &[Line]) -> Result<Option<LocationId>, Full> {
        self.put_location(location, lines)
    }

    /// A link.
    ///
    /// # Errors
    ///
    /// See [`Arena::string`].
    pub fn link(&mut self, link: Link) -> Result<Option<LinkId>, Full> {
        self.put_link(link)
    }

    /// An attribute.
    ///
    /// # Errors
    ///
    /// See [`Arena::string`].
    pub fn attribute(&mut self, attribute: Attribute) -> Result<Option<AttributeId>, Full> {
        self.put_attribute(attribute)
    }

    /// A set of attributes.
    ///
    /// # Errors
    ///
    /// See [`Arena::string`].
    pub fn attribute_set(&mut self, items: &[Option<AttributeId>]) -> Result<Option<AttributeSetId>, Full> {
        self.put_attribute_set(items)
    }

    /// A stack, from the leaf to the root.
    ///
    /// # Errors
    ///
    /// See [`Arena::string`].
    pub fn stack(&mut self, locations: impl IntoIterator<Item = Option<LocationId>>) -> Result<Option<StackId>, Full> {
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        for location in locations {
            varint::put(&mut packed, u64::from(LocationId::wire(location)));
        }
        let stack = self.put_stack(&packed);
        self.packed = packed;
        stack
    }

    /// Bytes for [`Value::Bytes`].
    ///
    /// # Errors
    ///
    /// See [`Arena::string`].
    pub fn blob(&mut self, bytes: &[u8]) -> Result<ByteRange, Full> {
        self.put_blob(bytes)
    }
}

/// Finds what is there and adds what is not.
impl Sink for Arena {
    fn put_string(&mut self, bytes: &[u8]) -> Result<Option<StringId>, Full> {
        if bytes.is_empty() {
            return Ok(None);
        }
        intern!(
            self,
            strings,
            StringId,
            hash_bytes(&self.state, bytes),
            |store: &Store, index: usize| store.bytes(store.strings[index]) == bytes,
            |state: &RandomState, store: &Store, index: usize| hash_bytes(state, store.bytes(store.strings[index])),
            |store: &mut Store| store.put_string(bytes)
        )
    }

    fn put_blob(&mut self, bytes: &[u8]) -> Result<ByteRange, Full> {
        if bytes.is_empty() {
            return Ok(ByteRange::default());
        }
        let hash = hash_bytes(&self.state, bytes);
        self.work.lookups += 1;
        if let Some(&span) = self.blobs.find(hash, |&span| self.store.bytes(span) == bytes) {
            return Ok(span);
        }
        self.admit()?;
        let span = self.store.put(bytes)?;
        let (store, state) = (&self.store, &self.state);
        self.blobs.insert_unique(hash, span, |&span| hash_bytes(state, store.bytes(span)));
        Ok(span)
    }

    fn put_mapping(&mut self, mapping: Mapping) -> Result<Option<MappingId>, Full> {
        if mapping == Mapping::default() {
            return Ok(None);
        }
        intern!(
            self,
            mappings,
            MappingId,
            self.state.hash_one(mapping),
            |store: &Store, index: usize| store.mappings[index] == mapping,
            |state: &RandomState, store: &Store, index: usize| state.hash_one(store.mappings[index]),
            |store: &mut Store| store.put_mapping(mapping)
        )
    }

    fn put_function(&mut self, function: Function) -> Result<Option<FunctionId>, Full> {
        if function == Function::default() {
            return Ok(None);
        }
        intern!(
            self,
            functions,
            FunctionId,
            self.state.hash_one(function),
            |store: &Store, index: usize| store.functions[index] == function,
            |state: &RandomState, store: &Store, index: usize| state.hash_one(store.functions[index]),
            |store: &mut Store| store.put_function(function)
        )
    }

    fn put_location(&mut self, location: Location, lines: &[Line]) -> Result<Option<LocationId>, Full> {
        if same_location(&location, &Location::default()) && lines.is_empty() {
            return Ok(None);
        }
        intern!(
            self,
            locations,
            LocationId,
            hash_location(&self.state, &location, lines),
            |store: &Store, index: usize| {
                let other = &store.locations[index];
                same_location(other, &location) && store.lines(other) == lines
            },
            |state: &RandomState, store: &Store, index: usize| {
                let location = &store.locations[index];
                hash_location(state, location, store.lines(location))
            },
            |store: &mut Store| store.put_location(location, lines)
        )
    }

    fn put_link(&mut self, link: Link) -> Result<Option<LinkId>, Full> {
        if link == Link::default() {
            return Ok(None);
        }
        intern!(
            self,
            links,
            LinkId,
            self.state.hash_one(link),
            |store: &Store, index: usize| store.links[index] == link,
            |state: &RandomState, store: &Store, index: usize| state.hash_one(store.links[index]),
            |store: &mut Store| store.put_link(link)
        )
    }

    fn put_attribute(&mut self, attribute: Attribute) -> Result<Option<AttributeId>, Full> {
        if attribute.key.is_none() && attribute.unit.is_none() && attribute.value == Value::Empty {
            return Ok(None);
        }
        intern!(
            self,
            attributes,
            AttributeId,
            hash_attribute(&self.state, &attribute),
            |store: &Store, index: usize| equal::same_attribute(&store.attributes[index], &attribute),
            |state: &RandomState, store: &Store, index: usize| hash_attribute(state, &store.attributes[index]),
            |store: &mut Store| store.put_attribute(attribute)
        )
    }

    fn put_attribute_set(&mut self, items: &[Option<AttributeId>]) -> Result<Option<AttributeSetId>, Full> {
        // Sorted by id, which is the order of first appearance: most sets are sorted already.
        let mut sorted = std::mem::take(&mut self.sorted);
        sorted.clear();
        sorted.extend(items.iter().filter(|item| item.is_some()));
        sorted.sort_unstable();
        let set = self.sorted_set(&sorted);
        self.sorted = sorted;
        set
    }

    fn put_stack(&mut self, packed: &[u8]) -> Result<Option<StackId>, Full> {
        if packed.is_empty() {
            return Ok(None);
        }
        intern!(
            self,
            stacks,
            StackId,
            hash_bytes(&self.state, packed),
            |store: &Store, index: usize| store.bytes(store.stacks[index]) == packed,
            |state: &RandomState, store: &Store, index: usize| hash_bytes(state, store.bytes(store.stacks[index])),
            |store: &mut Store| store.put_stack(packed)
        )
    }
}

impl Arena {
    fn sorted_set(&mut self, items: &[Option<AttributeId>]) -> Result<Option<AttributeSetId>, Full> {
        if items.is_empty() {
            return Ok(None);
        }
        intern!(
            self,
            attribute_sets,
            AttributeSetId,
            self.state.hash_one(items),
            |store: &Store, index: usize| store.set(store.attribute_sets[index]) == items,
            |state: &RandomState, store: &Store, index: usize| {
                state.hash_one(store.set(store.attribute_sets[index]))
            },
            |store: &mut Store| store.put_attribute_set(items)
        )
    }
}
