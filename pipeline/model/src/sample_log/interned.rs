//! A small table of distinct values.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

/// Up to this many values are searched linearly. Few windows have more resources, scopes or series.
const FEW: usize = 8;

/// Distinct values in order of first appearance.
#[derive(Debug)]
pub(crate) struct DistinctValues<T> {
    values: Vec<T>,
    /// The hash table of the values; empty while there are few.
    index: HashTable<u32>,
}

impl<T> Default for DistinctValues<T> {
    fn default() -> Self {
        Self { values: Vec::new(), index: HashTable::new() }
    }
}

impl<T: Hash + Eq> DistinctValues<T> {
    /// The position of a value. Adds the value if it is missing. `state` must be the same in every call.
    pub(crate) fn get_or_add(&mut self, value: T, state: &DefaultHashBuilder) -> u32 {
        let few = self.values.len() <= FEW;
        let hash = if few { 0 } else { state.hash_one(&value) };
        let found = if few {
            self.values.iter().position(|known| *known == value).map(|at| at as u32)
        } else {
            self.index.find(hash, |&at| self.values[at as usize] == value).copied()
        };
        if let Some(found) = found {
            return found;
        }
        // Each value belongs to at least one record, and a window is closed long before it has 2^32 records.
        let at = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.reserve_exact(if self.values.len() == self.values.capacity() {
            1 + self.values.len() / 4
        } else {
            0
        });
        self.values.push(value);
        let hash_at = |at: u32| state.hash_one(&self.values[at as usize]);
        if few && self.values.len() > FEW {
            (0..=at).for_each(|at| _ = self.index.insert_unique(hash_at(at), at, |&at| hash_at(at)));
        } else if !few {
            self.index.insert_unique(hash, at, |&at| hash_at(at));
        }
        at
    }

    pub(crate) fn values(&self) -> &[T] {
        &self.values
    }

    /// The allocated memory, in bytes.
    pub(crate) fn allocated(&self) -> usize {
        self.values.capacity() * size_of::<T>() + self.index.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a value has the position of its first appearance, with few values and with many.
    #[test]
    fn positions_are_those_of_first_appearance() {
        let (mut table, state) = (DistinctValues::default(), DefaultHashBuilder::default());
        for round in 0..3 {
            for value in 0..100u32 {
                assert_eq!(table.get_or_add(value * 7, &state), value, "round {round}");
                assert_eq!(table.get_or_add(value / 2 * 7, &state), value / 2);
            }
        }
        assert_eq!(table.values().len(), 100);
    }
}
