//! Direct-mapped caches: a program has few return addresses, and recomputing a replaced entry costs a microsecond or a
//! system call. An entry is valid for the object or address space in its key, and never has to be removed.

/// Values by keys. The first word of a key is the id of an object or an address space; these ids start at 1.
#[derive(Debug)]
pub(super) struct Cache<const WORDS: usize, V, const SLOTS: usize>(Vec<([u64; WORDS], V)>);

impl<const WORDS: usize, V, const SLOTS: usize> Default for Cache<WORDS, V, SLOTS> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<const WORDS: usize, V: Default, const SLOTS: usize> Cache<WORDS, V, SLOTS> {
    /// Returns the cached value, or the result of `find`, which is then cached.
    pub(super) fn get(&mut self, key: [u64; WORDS], find: impl FnOnce() -> V) -> &V {
        let slot = self.slot(key);
        if slot.0 != key {
            *slot = (key, find());
        }
        &slot.1
    }

    /// The same as [`Self::get`], but `find` may find no value, which is not cached.
    pub(super) fn try_get(&mut self, key: [u64; WORDS], find: impl FnOnce() -> Option<V>) -> Option<&V> {
        let slot = self.slot(key);
        if slot.0 != key {
            *slot = (key, find()?);
        }
        Some(&slot.1)
    }

    /// Uses Fibonacci hashing: the upper bits of the product depend on all bits of the key.
    fn slot(&mut self, key: [u64; WORDS]) -> &mut ([u64; WORDS], V) {
        if self.0.is_empty() {
            self.0.resize_with(SLOTS, || ([0; WORDS], V::default()));
        }
        let mixed = key.iter().fold(0_u64, |mixed, word| mixed.rotate_right(16) ^ word);
        let place = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.trailing_zeros());
        &mut self.0[place as usize]
    }
}
