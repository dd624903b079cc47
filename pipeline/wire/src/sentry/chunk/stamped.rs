//! A map over the ids of a table that is cleared in constant time.
//!
//! Many windows may use the same dictionary, each only a small part of it. Clearing a map for each window would cost
//! the number of windows times the size of the dictionary.

/// A map from small integers to `u32`.
#[derive(Debug, Default)]
pub(super) struct Stamped {
    /// Each slot has the stamp in the upper half, and the value in the lower half.
    slots: Vec<u64>,
    stamp: u32,
}

impl Stamped {
    /// Heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
    }

    /// Clears the map and makes room for ids below `len`.
    pub(super) fn begin(&mut self, len: usize) {
        if self.slots.len() < len {
            self.slots.resize(len, 0);
        }
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            self.slots.fill(0);
            self.stamp = 1;
        }
    }

    /// The value of an id.
    #[inline]
    pub(super) fn get(&self, id: usize) -> Option<u32> {
        let slot = *self.slots.get(id)?;
        (slot >> 32 == u64::from(self.stamp)).then_some(slot as u32)
    }

    #[inline]
    pub(super) fn set(&mut self, id: usize, value: u32) {
        if let Some(slot) = self.slots.get_mut(id) {
            *slot = u64::from(self.stamp) << 32 | u64::from(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a cleared map has no old values, even when the stamp wraps around.
    #[test]
    fn rounds() {
        let mut map = Stamped { slots: Vec::new(), stamp: u32::MAX - 1 };
        for round in 0..3 {
            map.begin(2 + round);
            assert_eq!((map.get(0), map.get(1)), (None, None));
            map.set(1, 7);
            assert_eq!(map.get(1), Some(7));
            assert_eq!(map.get(99), None);
        }
    }
}
