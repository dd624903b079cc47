//! Entries of dictionaries in Python's memory (CPython `Objects/dictobject.c`, `Include/internal/pycore_dict.h`).

use super::layout::{Dicts, Layout};
use crate::runtime::target::{Target, half_at, word, word_at};

/// The most bytes of entries that are read.
const MAX_BYTES: u64 = 24 << 10;

/// The first entries of a dictionary, as the addresses of key and value; at most `limit` of them. `None` where it
/// cannot be read, or has its values elsewhere, as some that belong to an instance have.
pub(super) fn entries(layout: &Layout, address: u64, limit: usize, target: &mut dyn Target) -> Option<Vec<(u64, u64)>> {
    // How many there are, a version, the table of keys, and the values if they are elsewhere.
    let head = u64::from(layout.object.kind) + 8;
    let mut fields = [0; 32];
    if address == 0 || !target.read(address.wrapping_add(head), &mut fields) || word_at(&fields, 24) != 0 {
        return None;
    }
    let keys = word_at(&fields, 16);
    let mut table = [0; 40];
    if keys == 0 || !target.read(keys, &mut table) {
        return None;
    }
    // The entries are behind a table of indices, whose width depends on how many there may be.
    let (start, size, key, count) = match layout.dicts {
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
            let start = 1u64.checked_shl(bits.into())?.checked_add(32)?;
            // 0 is a table for any keys, 1 one for text.
            let (size, key) = if kind == 0 { (24, 8) } else { (16, 0) };
            (start, size, key, word_at(&table, 24))
        }
    };
    let count = count.min(limit as u64).min(MAX_BYTES / size);
    let mut bytes = vec![0; (count * size) as usize];
    let read = target.read(keys.wrapping_add(start), &mut bytes);
    let entries = bytes.chunks_exact(size as usize).map(|entry| (word_at(entry, key), word_at(entry, key + 8)));
    read.then(|| entries.collect())
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
