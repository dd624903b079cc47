//! Attribute lists, each stored once.
//!
//! Hundreds of thousands of samples share a few hundred lists (a thread's id and name, for example), so a list is first
//! looked up by its bytes in a cache of recent lists, and only then by its indices.

use hashbrown::{DefaultHashBuilder, HashTable};
use profbridge_model::dictionary::Invalid;
use profbridge_model::{AttributeId, AttributeSetId, ByteRange, Tables, varint};
use std::hash::{BuildHasher, Hasher};

use super::super::error::{Fault, Result};
use super::super::limits::Budget;

/// The result of storing a list of indices. It is small, since it is returned for each sample.
#[derive(Debug)]
pub(crate) enum Set {
    /// A stored list; `None` if it is empty.
    Known(Option<AttributeSetId>),
    /// An invalid list, which contains this index.
    OutOfRange(u32),
}

/// The error for an index of a list that is out of range.
#[cold]
pub(crate) fn out_of_range(index: u32, attributes: u32) -> Invalid {
    let rule = format!("index {} is out of range, attribute_table has {attributes} elements", index as i32);
    Invalid { place: "attribute_indices".to_owned(), rule }
}

/// Size of the cache of recent lists: enough for the threads of a host, in eight kilobytes.
const RECENT: usize = 512;

/// The distinct lists of attributes of a request.
#[derive(Debug)]
pub(crate) struct Sets {
    sets: Vec<ByteRange>,
    items: Vec<Option<AttributeId>>,
    index: HashTable<u32>,
    state: DefaultHashBuilder,
    /// A cache of recent lists of up to seven bytes, at a position derived from the bytes. An entry consists of the
    /// number of bytes and the bytes, and the list's id. Zero is an empty entry.
    recent: Box<[(u64, u32)]>,
    /// Whether some list has duplicate indices or index 0, so that the sender may use another layout.
    pub(crate) odd: bool,
}

impl Default for Sets {
    fn default() -> Self {
        Self {
            sets: vec![ByteRange::default()],
            items: Vec::new(),
            index: HashTable::new(),
            state: DefaultHashBuilder::default(),
            recent: vec![(0, 0); RECENT].into(),
            odd: false,
        }
    }
}

impl Sets {
    /// Returns the id of a packed list of indices into an `attribute_table` with `attributes` elements; `None` for the
    /// empty list.
    #[inline]
    pub(crate) fn intern(&mut self, packed: &[u8], attributes: u32, budget: &mut Budget) -> Result<Set> {
        if packed.is_empty() {
            return Ok(Set::Known(None));
        }
        if packed.len() > 7 {
            return self.look_up(packed, attributes, budget);
        }
        // The key starts with the number of bytes, which distinguishes lists that differ in leading zeros.
        let key = packed.iter().fold(packed.len() as u64, |key, &byte| key << 8 | u64::from(byte));
        // A multiplication mixes towards the high bits.
        let place = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % RECENT;
        let (seen, id) = self.recent[place];
        if seen == key {
            return Ok(Set::Known(AttributeSetId::new(id)));
        }
        let found = self.look_up(packed, attributes, budget)?;
        if let Set::Known(id) = found {
            self.recent[place] = (key, AttributeSetId::wire(id));
        }
        Ok(found)
    }

    /// Returns the id of the list `base` followed by the valid indices `more`; `None` for the empty list.
    pub(crate) fn extended(
        &mut self,
        base: Option<AttributeSetId>,
        more: &[Option<AttributeId>],
        budget: &mut Budget,
    ) -> Result<Option<AttributeSetId>> {
        let start = self.items.len();
        if let Some(base) = base {
            let span = self.sets[base.index()];
            self.items.extend_from_within(span.start as usize..span.start as usize + span.len as usize);
        }
        self.items.extend_from_slice(more);
        if self.items.len() == start {
            return Ok(None);
        }
        Ok(AttributeSetId::new(self.find_or_insert(start, budget)?))
    }

    fn look_up(&mut self, packed: &[u8], attributes: u32, budget: &mut Budget) -> Result<Set> {
        // The items are appended as if the list were new, and removed again if it is not.
        let start = self.items.len();
        let mut rest = packed;
        while !rest.is_empty() {
            let Some(index) = varint::take(&mut rest) else {
                return Err(Fault::value("attribute_indices", "an integer is cut off or too long"));
            };
            let index = index as u32;
            if index >= attributes && index != 0 {
                self.items.truncate(start);
                return Ok(Set::OutOfRange(index));
            }
            self.items.push(AttributeId::new(index));
        }
        let id = self.find_or_insert(start, budget)?;
        Ok(Set::Known(AttributeSetId::new(id)))
    }

    fn find_or_insert(&mut self, start: usize, budget: &mut Budget) -> Result<u32> {
        let (known, list) = self.items.split_at(start);
        let hash = hash_list(&self.state, list);
        let slice = |id: u32| {
            let span = self.sets[id as usize];
            &known[span.start as usize..][..span.len as usize]
        };
        if let Some(&id) = self.index.find(hash, |&id| slice(id) == list) {
            self.items.truncate(start);
            return Ok(id);
        }
        budget.charge::<Option<AttributeId>>(list.len())?;
        // Charges the range of the list and its entry in the hash table.
        budget.charge::<[u64; 2]>(1)?;
        self.odd |= list.contains(&None) || has_duplicate(list);
        let id = self.sets.len() as u32;
        let state = &self.state;
        let sets = &self.sets;
        let rehash = |&id: &u32| {
            let span: ByteRange = sets[id as usize];
            hash_list(state, &known[span.start as usize..][..span.len as usize])
        };
        self.index.insert_unique(hash, id, rehash);
        self.sets.push(ByteRange { start: start as u32, len: list.len() as u32 });
        Ok(id)
    }

    /// Moves the lists into the tables.
    pub(crate) fn finish(&mut self, tables: &mut Tables) {
        tables.attribute_sets = std::mem::take(&mut self.sets);
        tables.attribute_set_items = std::mem::take(&mut self.items);
        tables.attribute_sets.shrink_to_fit();
        tables.attribute_set_items.shrink_to_fit();
    }
}

fn hash_list(state: &DefaultHashBuilder, list: &[Option<AttributeId>]) -> u64 {
    let mut hasher = state.build_hasher();
    list.iter().for_each(|&item| hasher.write_u32(AttributeId::wire(item)));
    hasher.finish()
}

/// Whether a list has duplicate indices. Long lists are sorted, so that a hostile one does not take quadratic time.
fn has_duplicate(list: &[Option<AttributeId>]) -> bool {
    if list.len() <= 16 {
        return list.iter().enumerate().any(|(i, item)| list[..i].contains(item));
    }
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}
