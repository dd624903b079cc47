//! A small table of distinct values, found by value.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;

/// Distinct values in order of first appearance.
#[derive(Debug)]
pub(crate) struct Interned<T> {
    values: Vec<T>,
    index: HashTable<u32>,
    state: foldhash::fast::RandomState,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { values: Vec::new(), index: HashTable::new(), state: foldhash::fast::RandomState::default() }
    }
}

impl<T: Hash + Eq> Interned<T> {
    /// The position of a value, which is added where it is not there.
    pub(crate) fn get_or_add(&mut self, value: T) -> u32 {
        let hash = self.state.hash_one(&value);
        if let Some(&found) = self.index.find(hash, |&at| self.values[at as usize] == value) {
            return found;
        }
        // Each value stands for at least one record, and a window is closed long before it has 2^32 of those.
        let at = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.reserve_exact(if self.values.len() == self.values.capacity() {
            1 + self.values.len() / 4
        } else {
            0
        });
        self.values.push(value);
        let (values, state) = (&self.values, &self.state);
        self.index.insert_unique(hash, at, |&at| state.hash_one(&values[at as usize]));
        at
    }

    /// The values.
    pub(crate) fn values(&self) -> &[T] {
        &self.values
    }

    /// The allocated memory, in bytes.
    pub(crate) fn allocated(&self) -> usize {
        self.values.capacity() * size_of::<T>() + self.index.allocation_size()
    }
}
