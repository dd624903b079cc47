//! A cache of unwind rules.
//!
//! Direct-mapped by address: a program has few return addresses, and looking up an entry that was replaced costs a
//! microsecond. An entry belongs to an object and an address in its file, so it is valid for all processes that map the
//! file, and never has to be removed.

use super::row::Lookup;

/// Entries; about 120 bytes each.
const SLOTS: usize = 8192;

#[derive(Debug)]
struct Slot {
    object: u64,
    address: u64,
    lookup: Lookup,
}

/// Remembers lookups.
#[derive(Debug, Default)]
pub(super) struct RowCache {
    slots: Vec<Slot>,
}

impl RowCache {
    /// The cached result for an address, or what `find` returns, which is cached then.
    pub(super) fn get(&mut self, object: u64, address: u64, find: impl FnOnce() -> Lookup) -> &Lookup {
        if self.slots.is_empty() {
            // Objects have numbers from 1, so no lookup finds an empty slot.
            self.slots.resize_with(SLOTS, || Slot { object: 0, address: 0, lookup: Lookup::Nothing });
        }
        let slot = &mut self.slots[place(object, address)];
        if slot.object != object || slot.address != address {
            *slot = Slot { object, address, lookup: find() };
        }
        &slot.lookup
    }
}

/// Fibonacci hashing: the upper bits of the product depend on all bits of the address.
fn place(object: u64, address: u64) -> usize {
    let mixed = (address ^ object.rotate_right(16)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - SLOTS.trailing_zeros())) as usize
}
