//! A map that keeps the written order, so that components start and print in that order.

/// A small map. Lookup is linear, which is fast enough for the dozens of entries in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered<K, V> {
    entries: Vec<(K, V)>,
}

impl<K, V> Default for Ordered<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: PartialEq, V> Ordered<K, V> {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Whether the key exists.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Adds an entry. Returns `false` and changes nothing if the key exists already.
    pub fn insert(&mut self, key: K, value: V) -> bool {
        let new = !self.contains(&key);
        if new {
            self.entries.push((key, value));
        }
        new
    }

    /// The entries in the order of insertion.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + ExactSizeIterator {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// The keys in the order of insertion.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator {
        self.entries.iter().map(|(key, _)| key)
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
