//! Merges the dictionaries of many batches into one.
//!
//! To hold profiles longer than a call, their elements are copied into an arena and the batch is dropped: otherwise one
//! eight-byte name would pin a megabyte of request. Equal elements are stored once, however many batches contain them,
//! and the cost of adding a batch depends on its referenced elements, not on the size of the arena.
//!
//! * Values are stored once, in columns; the hash tables contain their 32-bit ids.
//! * An element that equals the zero value is element 0, "not set". Attribute sets are sets (opentelemetry-proto
//!   `profiles.proto`: "Sample identity"), so sets that differ only in order are equal.
//! * Ids are assigned in order of first appearance, so the output is the same in every run although the hash is seeded
//!   at random per arena. The seed is needed because names and stacks come from outside: with a known hash their sender
//!   could put all of them into one bucket.
//! * Columns grow by a quarter, not by doubling. [`Arena::bytes`] counts the allocated memory.

mod equal;
mod limits;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod transfer;

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use self::equal::ByValue;
pub use self::limits::{ArenaLimits, Full, Work};
pub use self::source::TableSource;
pub(crate) use self::store::{TableStore, make_room};
pub(crate) use self::transfer::Carry;
pub use self::transfer::{TableWriter, Transfer};
use crate::buffer::ByteRange;
use crate::dictionary::{Attribute, Function, Line, Link, Location, Mapping, Tables};
use crate::id::{AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MappingId, StackId, StringId};
use crate::varint;

/// Columns grow by their length divided by this.
const GROWTH: usize = 4;

/// Interned, growing tables. See the [module](self).
#[derive(Debug)]
pub struct Arena {
    store: TableStore,
    limits: ArenaLimits,
    state: DefaultHashBuilder,
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

impl Default for Arena {
    fn default() -> Self {
        Self::new(ArenaLimits::ADDRESSABLE)
    }
}

/// Two locations are equal if these parts are equal: everything but the position of their lines.
type LocationKey<'a> = (Option<MappingId>, u64, Option<AttributeSetId>, &'a [Line]);

fn location_key<'a>(location: &Location, lines: &'a [Line]) -> LocationKey<'a> {
    let &Location { mapping, address, attributes, lines_start: _, lines_len: _ } = location;
    (mapping, address, attributes, lines)
}

/// Finds an element by its key, or adds it at the end of its column. `$at` is the key of the element `$i`.
macro_rules! intern {
    ($self:ident, $table:ident, $id:ident, $key:expr, |$store:ident, $i:ident| $at:expr, |$to:ident| $add:expr) => {{
        let key = $key;
        let hash = $self.state.hash_one(key);
        $self.work.lookups += 1;
        let comparisons = &mut $self.work.comparisons;
        let $store = &$self.store;
        let found = $self.$table.find(hash, |&index| {
            *comparisons += 1;
            let $i = index as usize;
            $at == key
        });
        if let Some(&index) = found {
            return Ok($id::new(index));
        }
        $self.admit()?;
        let $to = &mut $self.store;
        let id = $add?;
        let ($store, state) = (&$self.store, &$self.state);
        $self.$table.insert_unique(hash, $id::wire(id), |&index| {
            let $i = index as usize;
            state.hash_one($at)
        });
        Ok(id)
    }};
}

impl Arena {
    /// An empty arena that grows up to its limits.
    pub fn new(limits: ArenaLimits) -> Self {
        Self {
            store: TableStore::default(),
            limits: ArenaLimits { bytes: limits.bytes.min(ArenaLimits::ADDRESSABLE.bytes), ..limits },
            state: DefaultHashBuilder::default(),
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

    /// Memory use in bytes: the allocated columns and hash tables.
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

    /// The memory of the distinct elements alone, without hash tables and reserved capacity, in bytes.
    pub fn distinct_bytes(&self) -> u64 {
        self.store.used() as u64
    }

    /// Counters of the arena's work so far.
    pub fn work(&self) -> Work {
        self.work
    }

    /// The current tables, for reading.
    pub fn source(&self) -> TableSource<'_> {
        self.store.source()
    }

    /// Converts the arena into the tables of a dictionary without copying.
    pub fn into_tables(self) -> Tables {
        self.store.into_tables()
    }

    pub(crate) fn store_mut(&mut self) -> &mut TableStore {
        &mut self.store
    }

    fn admit(&self) -> Result<(), Full> {
        let ArenaLimits { bytes, strings, stacks } = self.limits;
        if self.store.tables.strings.len() as u64 > u64::from(strings) {
            return Err(Full { what: "strings", limit: u64::from(strings) });
        }
        if self.store.tables.stacks.len() as u64 > u64::from(stacks) {
            return Err(Full { what: "stacks", limit: u64::from(stacks) });
        }
        if self.bytes() >= bytes {
            return Err(Full { what: "bytes", limit: bytes });
        }
        Ok(())
    }

    /// Adds a string.
    ///
    /// # Errors
    ///
    /// The arena is at one of its limits, and the element is not in it yet.
    pub fn string(&mut self, text: &str) -> Result<Option<StringId>, Full> {
        self.put_string(text.as_bytes())
    }

    /// Adds a stack, from the leaf to the root.
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
}

impl TableWriter for Arena {
    fn put_string(&mut self, bytes: &[u8]) -> Result<Option<StringId>, Full> {
        if bytes.is_empty() {
            return Ok(None);
        }
        intern!(self, strings, StringId, bytes, |store, at| store.bytes(store.tables.strings[at]), |to| to
            .put_string(bytes))
    }

    fn put_blob(&mut self, bytes: &[u8]) -> Result<ByteRange, Full> {
        if bytes.is_empty() {
            return Ok(ByteRange::default());
        }
        let hash = self.state.hash_one(bytes);
        self.work.lookups += 1;
        if let Some(&span) = self.blobs.find(hash, |&span| self.store.bytes(span) == bytes) {
            return Ok(span);
        }
        self.admit()?;
        let span = self.store.put(bytes)?;
        let (store, state) = (&self.store, &self.state);
        self.blobs.insert_unique(hash, span, |&span| state.hash_one(store.bytes(span)));
        Ok(span)
    }

    fn put_mapping(&mut self, mapping: Mapping) -> Result<Option<MappingId>, Full> {
        if mapping == Mapping::default() {
            return Ok(None);
        }
        intern!(self, mappings, MappingId, &mapping, |store, at| &store.tables.mappings[at], |to| to
            .put_mapping(mapping))
    }

    fn put_function(&mut self, function: Function) -> Result<Option<FunctionId>, Full> {
        if function == Function::default() {
            return Ok(None);
        }
        intern!(self, functions, FunctionId, &function, |store, at| &store.tables.functions[at], |to| to
            .put_function(function))
    }

    fn put_location(&mut self, location: Location, lines: &[Line]) -> Result<Option<LocationId>, Full> {
        let key = location_key(&location, lines);
        if key == location_key(&Location::default(), &[]) {
            return Ok(None);
        }
        intern!(
            self,
            locations,
            LocationId,
            key,
            |store, at| location_key(&store.tables.locations[at], store.tables.lines(&store.tables.locations[at])),
            |to| to.put_location(location, lines)
        )
    }

    fn put_link(&mut self, link: Link) -> Result<Option<LinkId>, Full> {
        if link == Link::default() {
            return Ok(None);
        }
        intern!(self, links, LinkId, &link, |store, at| &store.tables.links[at], |to| to.put_link(link))
    }

    fn put_attribute(&mut self, attribute: Attribute) -> Result<Option<AttributeId>, Full> {
        if ByValue(&attribute) == ByValue(&Attribute::default()) {
            return Ok(None);
        }
        intern!(
            self,
            attributes,
            AttributeId,
            ByValue(&attribute),
            |store, at| ByValue(&store.tables.attributes[at]),
            |to| to.put_attribute(attribute)
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
        intern!(self, stacks, StackId, packed, |store, at| store.bytes(store.tables.stacks[at]), |to| to
            .put_stack(packed))
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
            items,
            |store, at| store.tables.attribute_set(AttributeSetId::new(at as u32)),
            |to| to.put_attribute_set(items)
        )
    }
}
