//! Reads entries of dictionaries in Python's memory (CPython `Objects/dictobject.c`,
//! `Include/internal/pycore_dict.h`).

use super::layout::{Dicts, PythonLayout};
use super::text;
use crate::runtime::target::{TargetMemory, half_at, word, word_at};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DictEntry {
    /// The hash of the key; 0 in tables with string keys only, which do not store hashes.
    pub(super) hash: u64,
    /// The addresses of key and value. The value is 0 if the entry was deleted, or if values are stored elsewhere.
    pub(super) key: u64,
    pub(super) value: u64,
}

/// The addresses of a dictionary's keys and values; 0 for the values if they are stored with the keys.
pub(super) fn tables(layout: &PythonLayout, address: u64, target: &mut dyn TargetMemory) -> Option<(u64, u64)> {
    // After the header: the number of entries, a version, keys and values.
    let head = u64::from(layout.object.kind) + 8;
    let mut fields = [0; 32];
    let is_read = address != 0 && target.read(address.wrapping_add(head), &mut fields);
    is_read.then(|| (word_at(&fields, 16), word_at(&fields, 24)))
}

/// A table of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DictKeys {
    /// The address of the first entry.
    start: u64,
    /// The size of an entry, and the offset of the key in it.
    size: u64,
    key: u64,
    /// The number of entries, including deleted ones.
    count: u64,
}

impl DictKeys {
    /// Reads the header of the table at an address.
    pub(super) fn at(layout: &PythonLayout, address: u64, target: &mut dyn TargetMemory) -> Option<Self> {
        let mut table = [0; 40];
        if address == 0 || !target.read(address, &mut table) {
            return None;
        }
        // The entries follow a table of indices, whose width depends on the number of indices.
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
                // Kind 0 is a table for any keys, 1 and 2 are for strings.
                let (size, key) = if kind == 0 { (24, 8) } else { (16, 0) };
                (behind, size, key, word_at(&table, 24))
            }
        };
        Some(Self { start: address.wrapping_add(behind), size, key, count })
    }

    /// Reads the first entries, at most `limit`.
    pub(super) fn entries(&self, limit: usize, target: &mut dyn TargetMemory) -> Option<Vec<DictEntry>> {
        self.part(0, self.count.min(limit as u64), target)
    }

    /// Reads one entry.
    pub(super) fn entry(&self, index: usize, target: &mut dyn TargetMemory) -> Option<DictEntry> {
        self.part(index as u64, 1, target)?.pop()
    }

    fn part(&self, from: u64, count: u64, target: &mut dyn TargetMemory) -> Option<Vec<DictEntry>> {
        let mut bytes = vec![0; usize::try_from(count.checked_mul(self.size)?).ok()?];
        let start = self.start.wrapping_add(from.wrapping_mul(self.size));
        let hash = |entry: &[u8]| if self.key == 0 { 0 } else { word_at(entry, 0) };
        let entries = |entry: &[u8]| {
            let key = self.key as usize;
            DictEntry { hash: hash(entry), key: word_at(entry, key), value: word_at(entry, key + 8) }
        };
        target.read(start, &mut bytes).then(|| bytes.chunks_exact(self.size as usize).map(entries).collect())
    }
}

/// Reads the first entries of a dictionary, at most `limit`. `None` if it cannot be read, or stores its values apart
/// from the keys, as some dictionaries of instances do.
pub(super) fn entries(
    layout: &PythonLayout,
    address: u64,
    limit: usize,
    target: &mut dyn TargetMemory,
) -> Option<Vec<DictEntry>> {
    let (keys, _) = tables(layout, address, target).filter(|(_, values)| *values == 0)?;
    DictKeys::at(layout, keys, target)?.entries(limit, target)
}

/// The value of a string key among the first `limit` entries of a dictionary.
pub(super) fn get(
    layout: &PythonLayout,
    address: u64,
    key: &str,
    limit: usize,
    target: &mut dyn TargetMemory,
) -> Option<u64> {
    let entries = entries(layout, address, limit, target)?;
    let found = entries.iter().find(|entry| entry.value != 0 && text::is(&layout.object, target, entry.key, key))?;
    Some(found.value)
}

/// Whether a type has this name.
pub(super) fn is_a(layout: &PythonLayout, kind: u64, name: &[u8], target: &mut dyn TargetMemory) -> bool {
    let mut actual = [0; 16];
    let actual = &mut actual[..(name.len() + 1).min(16)];
    type_name(layout, kind, target).is_some_and(|at| target.read(at, actual))
        && actual.split_last().is_some_and(|(end, actual)| *end == 0 && actual == name)
}

/// The offset of the name pointer in a type, from the end of the object header on.
const TYPE_NAME: u64 = 8;

/// The address of a type's name.
pub(super) fn type_name(layout: &PythonLayout, kind: u64, target: &mut dyn TargetMemory) -> Option<u64> {
    word(target, kind.wrapping_add(u64::from(layout.object.kind) + 8 + TYPE_NAME))
}

/// The type of an object.
pub(super) fn type_of(layout: &PythonLayout, address: u64, target: &mut dyn TargetMemory) -> Option<u64> {
    word(target, address.wrapping_add(layout.object.kind.into())).filter(|_| address != 0)
}

/// Whether the object is a class (its type has `Py_TPFLAGS_TYPE_SUBCLASS`).
pub(super) fn is_class(layout: &PythonLayout, address: u64, target: &mut dyn TargetMemory) -> bool {
    const FLAGS: u64 = 168;
    let kind = type_of(layout, address, target);
    let mut bytes = [0; 4];
    kind.is_some_and(|kind| target.read(kind.wrapping_add(FLAGS), &mut bytes)) && half_at(&bytes, 0) >> 31 == 1
}
