//! Entries of dictionaries in Python's memory (CPython `Objects/dictobject.c`, `Include/internal/pycore_dict.h`).

use super::layout::{Dicts, Layout};
use super::text;
use crate::runtime::target::{Target, half_at, word, word_at};

/// An entry of a dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// The hash of the key, 0 where all keys are text and none is kept here.
    pub(super) hash: u64,
    /// The addresses of key and value; the value is 0 of what was deleted, and where values are elsewhere.
    pub(super) key: u64,
    pub(super) value: u64,
}

/// Where the tables of a dictionary are: its keys, and the values, 0 where these are beside the keys.
pub(super) fn tables(layout: &Layout, address: u64, target: &mut dyn Target) -> Option<(u64, u64)> {
    // Behind the head: how many entries there are, a version, keys and values.
    let head = u64::from(layout.object.kind) + 8;
    let mut fields = [0; 32];
    let is_read = address != 0 && target.read(address.wrapping_add(head), &mut fields);
    is_read.then(|| (word_at(&fields, 16), word_at(&fields, 24)))
}

/// A table of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keys {
    /// Where its first entry is.
    start: u64,
    /// The size of an entry, and where it has its key.
    size: u64,
    key: u64,
    /// How many entries there are, with those of deleted keys.
    count: u64,
}

impl Keys {
    /// Reads what the table at an address says of itself.
    pub(super) fn at(layout: &Layout, address: u64, target: &mut dyn Target) -> Option<Self> {
        let mut table = [0; 40];
        if address == 0 || !target.read(address, &mut table) {
            return None;
        }
        // The entries are behind a table of indices, whose width depends on how many there may be.
        let (behind, size, key, count) = match layout.dicts {
            Dicts::Sized => {
                let slots = word_at(&table, 8);
                let width = match slots {
                    0..=0xff => 1,
                    0x100..=0xffff => 2,
                    0x1_0000..=0xffff_ffff => 4,
                    _ => 8,
                };
                (slots.checked_mul(width)?.checked_add(40)?, 24, 8, word_at(&table, 32))
            }
            Dicts::Logarithmic => {
                let (bits, kind) = (table[9], table[10]);
                let behind = 1u64.checked_shl(bits.into())?.checked_add(32)?;
                // 0 is a table for any keys, 1 and 2 are for text.
                let (size, key) = if kind == 0 { (24, 8) } else { (16, 0) };
                (behind, size, key, word_at(&table, 24))
            }
        };
        Some(Self { start: address.wrapping_add(behind), size, key, count })
    }

    /// The first entries, at most `limit`.
    pub(super) fn entries(&self, limit: usize, target: &mut dyn Target) -> Option<Vec<Entry>> {
        self.part(0, self.count.min(limit as u64), target)
    }

    /// One entry.
    pub(super) fn entry(&self, index: usize, target: &mut dyn Target) -> Option<Entry> {
        self.part(index as u64, 1, target)?.pop()
    }

    fn part(&self, from: u64, count: u64, target: &mut dyn Target) -> Option<Vec<Entry>> {
        let mut bytes = vec![0; usize::try_from(count.checked_mul(self.size)?).ok()?];
        let start = self.start.wrapping_add(from.wrapping_mul(self.size));
        let hash = |entry: &[u8]| if self.key == 0 { 0 } else { word_at(entry, 0) };
        let entries = |entry: &[u8]| {
            let key = self.key as usize;
            Entry { hash: hash(entry), key: word_at(entry, key), value: word_at(entry, key + 8) }
        };
        target.read(start, &mut bytes).then(|| bytes.chunks_exact(self.size as usize).map(entries).collect())
    }
}

/// The first entries of a dictionary, at most `limit` of them. `None` where it cannot be read, or has its values
/// elsewhere, as some that belong to an instance have.
pub(super) fn entries(layout: &Layout, address: u64, limit: usize, target: &mut dyn Target) -> Option<Vec<Entry>> {
    let (keys, _) = tables(layout, address, target).filter(|(_, values)| *values == 0)?;
    Keys::at(layout, keys, target)?.entries(limit, target)
}

/// The value of a key of text among the first entries of a dictionary, at most `limit` of them.
pub(super) fn get(layout: &Layout, address: u64, key: &str, limit: usize, target: &mut dyn Target) -> Option<u64> {
    let entries = entries(layout, address, limit, target)?;
    let found = entries.iter().find(|entry| entry.value != 0 && text::is(&layout.object, target, entry.key, key))?;
    Some(found.value)
}

/// Whether an object's type is called so, by the type's name.
pub(super) fn is_a(layout: &Layout, kind: u64, name: &[u8], target: &mut dyn Target) -> bool {
    let mut said = [0; 16];
    let said = &mut said[..(name.len() + 1).min(16)];
    type_name(layout, kind, target).is_some_and(|at| target.read(at, said))
        && said.split_last().is_some_and(|(end, said)| *end == 0 && said == name)
}

/// Where a type has the pointer to its name, from the end of an object's head on.
const TYPE_NAME: u64 = 8;

/// Where the name of a type is.
pub(super) fn type_name(layout: &Layout, kind: u64, target: &mut dyn Target) -> Option<u64> {
    word(target, kind.wrapping_add(u64::from(layout.object.kind) + 8 + TYPE_NAME))
}

/// The type of an object.
pub(super) fn type_of(layout: &Layout, address: u64, target: &mut dyn Target) -> Option<u64> {
    word(target, address.wrapping_add(layout.object.kind.into())).filter(|_| address != 0)
}

/// Whether the object is a class of the program (`Py_TPFLAGS_TYPE_SUBCLASS` of its type).
pub(super) fn is_class(layout: &Layout, address: u64, target: &mut dyn Target) -> bool {
    const FLAGS: u64 = 168;
    let kind = type_of(layout, address, target);
    let mut bytes = [0; 4];
    kind.is_some_and(|kind| target.read(kind.wrapping_add(FLAGS), &mut bytes)) && half_at(&bytes, 0) >> 31 == 1
}
