//! Lists of attributes, each stored once.
//!
//! Samples by the hundred thousand carry one of a few hundred lists (a thread's id and name, say), so a list is
//! compared as bytes with the one before it, then looked up by its indices.

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use profbridge_model::dictionary::Invalid;
use profbridge_model::{AttributeId, AttributeSetId, Span, Tables, varint};
use std::hash::BuildHasher;

use super::super::error::{Fault, Result};
use super::super::limits::Budget;

/// The distinct lists of attributes of a request.
#[derive(Debug)]
pub(super) struct Sets {
    sets: Vec<Span>,
    items: Vec<Option<AttributeId>>,
    index: HashTable<u32>,
    state: RandomState,
    last: Vec<u8>,
    last_id: Option<AttributeSetId>,
    /// A list holds an index twice, or index 0: whoever sends that may mean something else by it.
    pub(super) odd: bool,
}

impl Default for Sets {
    fn default() -> Self {
        Self {
            sets: vec![Span::default()],
            items: Vec::new(),
            index: HashTable::new(),
            state: RandomState::default(),
            last: Vec::new(),
            last_id: None,
            odd: false,
        }
    }
}

impl Sets {
    /// The id of a packed list of indices into an `attribute_table` of this many elements; none for the empty list.
    ///
    /// The inner result is for an index that is out of range; the outer for what is no list of integers.
    #[inline]
    pub(super) fn intern(
        &mut self,
        packed: &[u8],
        attributes: u32,
        budget: &mut Budget,
    ) -> Result<std::result::Result<Option<AttributeSetId>, Invalid>> {
        if packed.is_empty() {
            return Ok(Ok(None));
        }
        if packed == self.last {
            return Ok(Ok(self.last_id));
        }
        self.look_up(packed, attributes, budget)
    }

    fn look_up(
        &mut self,
        packed: &[u8],
        attributes: u32,
        budget: &mut Budget,
    ) -> Result<std::result::Result<Option<AttributeSetId>, Invalid>> {
        // The items are appended as if the list were seen for the first time, and taken back if it was not.
        let start = self.items.len();
        let mut rest = packed;
        while !rest.is_empty() {
            let Some(index) = varint::take(&mut rest) else {
                return Err(Fault::value("attribute_indices", "an integer is cut off or too long"));
            };
            let index = index as u32;
            if index >= attributes && index != 0 {
                self.items.truncate(start);
                let rule =
                    format!("index {} is out of range, attribute_table has {attributes} elements", index as i32);
                return Ok(Err(Invalid { place: "attribute_indices".to_owned(), rule }));
            }
            self.items.push(AttributeId::new(index));
        }
        let id = self.find_or_insert(start, budget)?;
        self.last.clear();
        self.last.extend_from_slice(packed);
        self.last_id = AttributeSetId::new(id);
        Ok(Ok(self.last_id))
    }

    fn find_or_insert(&mut self, start: usize, budget: &mut Budget) -> Result<u32> {
        let (known, list) = self.items.split_at(start);
        let hash = self.state.hash_one(list);
        let slice = |id: u32| {
            let span = self.sets[id as usize];
            &known[span.start as usize..][..span.len as usize]
        };
        if let Some(&id) = self.index.find(hash, |&id| slice(id) == list) {
            self.items.truncate(start);
            return Ok(id);
        }
        budget.charge::<Option<AttributeId>>(list.len())?;
        // The place of the list, and its share of the hash table.
        budget.charge::<[u64; 2]>(1)?;
        self.odd |= list.contains(&None) || has_duplicate(list);
        let id = self.sets.len() as u32;
        let state = &self.state;
        let sets = &self.sets;
        let rehash = |&id: &u32| {
            let span: Span = sets[id as usize];
            state.hash_one(&known[span.start as usize..][..span.len as usize])
        };
        self.index.insert_unique(hash, id, rehash);
        self.sets.push(Span { start: start as u32, len: list.len() as u32 });
        Ok(id)
    }

    /// Hands the lists over to the tables.
    pub(super) fn finish(&mut self, tables: &mut Tables) {
        tables.attribute_sets = std::mem::take(&mut self.sets);
        tables.attribute_set_items = std::mem::take(&mut self.items);
        tables.attribute_sets.shrink_to_fit();
        tables.attribute_set_items.shrink_to_fit();
    }
}

/// Whether a list holds an index twice. Long lists are sorted, so that a hostile one costs no more than its length.
fn has_duplicate(list: &[Option<AttributeId>]) -> bool {
    if list.len() <= 16 {
        return list.iter().enumerate().any(|(i, item)| list[..i].contains(item));
    }
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}
