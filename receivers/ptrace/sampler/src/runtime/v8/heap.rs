//! V8's objects: their types, and the text of strings.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::layout::{FIRST_NO_STRING, FUNCTION_TYPES, INSTANCE_TYPE, V8Layout};
use crate::runtime::target::{Bounded, TargetMemory, half_at, word, word_at};

/// The maximum number of maps whose types are cached.
const MAX_MAPS: usize = 8192;
/// The maximum number of parts of one string.
const MAX_PARTS: usize = 32;
/// The longest string that is read, in bytes; sources of scripts are the longest.
const MAX_STRING: u64 = 16 << 20;
/// How much of a string is read at once, in bytes.
const PIECE: usize = 64 << 10;

/// The bits of a string type that are its representation (v8/v8 `src/objects/instance-type.h`).
const REPRESENTATION: u16 = 7;
const ONE_BYTE: u16 = 8;
/// An external string that does not store the address of its characters.
const UNCACHED: u16 = 16;

/// The types of objects, by the addresses of their maps.
pub(super) type Maps = HashMap<u64, u16, RandomState>;

/// Reads objects from a V8 heap.
pub(super) struct Heap<'a, 'b> {
    pub(super) layout: &'a V8Layout,
    pub(super) maps: &'a mut Maps,
    pub(super) target: Bounded<'b>,
}

/// Whether this word is a tagged address of an object.
pub(super) fn is_object(tagged: u64) -> bool {
    tagged & 3 == 1 && tagged > 4096 && tagged < 1 << 47
}

/// Decodes a small integer; `None` if the word is not one.
pub(super) fn number(tagged: u64) -> Option<i32> {
    (tagged as u32 == 0).then_some((tagged >> 32) as i32)
}

impl Heap<'_, '_> {
    /// Reads a field of an object.
    pub(super) fn field(&mut self, object: u64, offset: u64) -> Option<u64> {
        word(&mut self.target, object.wrapping_sub(1).wrapping_add(offset))
    }

    pub(super) fn read(&mut self, object: u64, offset: u64, bytes: &mut [u8]) -> bool {
        is_object(object) && self.target.read(object.wrapping_sub(1).wrapping_add(offset), bytes)
    }

    pub(super) fn target_read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.target.read(address, bytes)
    }

    /// Returns the type of an object.
    pub(super) fn kind(&mut self, object: u64) -> Option<u16> {
        let map = is_object(object).then(|| self.field(object, 0))??;
        self.kind_of_map(map)
    }

    /// Returns the type of the objects that have this map.
    pub(super) fn kind_of_map(&mut self, map: u64) -> Option<u16> {
        if let Some(kind) = self.maps.get(&map) {
            return Some(*kind);
        }
        let mut bytes = [0; 2];
        if !self.read(map, INSTANCE_TYPE, &mut bytes) {
            return None;
        }
        let kind = u16::from_le_bytes(bytes);
        if self.maps.len() >= MAX_MAPS {
            self.maps.clear();
        }
        self.maps.insert(map, kind);
        Some(kind)
    }

    /// Whether a map belongs to functions.
    pub(super) fn is_function(&mut self, map: u64) -> bool {
        let first = self.layout.types.function;
        self.kind_of_map(map).is_some_and(|kind| (first..first.saturating_add(FUNCTION_TYPES)).contains(&kind))
    }

    pub(super) fn is_string(&mut self, object: u64) -> bool {
        self.kind(object).is_some_and(|kind| kind < FIRST_NO_STRING)
    }

    /// Reads a short string; `None` if it cannot be read. Characters beyond `limit` are cut.
    pub(super) fn string(&mut self, object: u64, limit: usize) -> Option<String> {
        let mut text = String::new();
        let mut count = 0;
        let mut high = None;
        self.characters(object, limit as u64, &mut |character| {
            count += 1;
            // Two-byte strings are UTF-16.
            match (character, high.take()) {
                (0xd800..=0xdbff, _) => high = Some(character),
                (0xdc00..=0xdfff, Some(first)) => {
                    let both = 0x10000 + ((u32::from(first) - 0xd800) << 10) + (u32::from(character) - 0xdc00);
                    text.push(char::from_u32(both).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                _ => text.push(char::from_u32(u32::from(character)).unwrap_or(char::REPLACEMENT_CHARACTER)),
            }
            count <= limit
        })?;
        Some(text)
    }

    /// Passes the characters of a string to `each` until it returns false, at most `limit` of each part. `None` if the
    /// string cannot be read.
    pub(super) fn characters(&mut self, object: u64, limit: u64, each: &mut dyn FnMut(u16) -> bool) -> Option<()> {
        // The parts still to be read: object, first character, and count.
        let mut rest = vec![(object, 0u64, u64::MAX)];
        for _ in 0..MAX_PARTS {
            let Some((object, first, count)) = rest.pop() else { return Some(()) };
            let kind = self.kind(object).filter(|kind| *kind < FIRST_NO_STRING)?;
            let mut head = [0; 32];
            if !self.read(object, 0, &mut head) && !self.read(object, 0, &mut head[..24]) {
                return None;
            }
            let length = u64::from(half_at(&head, 12));
            let count = count.min(length.checked_sub(first)?);
            let [one, two] = [word_at(&head, 16), word_at(&head, 24)];
            match kind & REPRESENTATION {
                // Sequential strings keep their characters in the object, external strings outside of it.
                0 => self.flat(object.wrapping_add(15), kind, first, count.min(limit), each)?,
                2 if kind & UNCACHED == 0 => self.flat(two, kind, first, count.min(limit), each)?,
                // A concatenation of two strings.
                1 => {
                    let before = self.length(one)?;
                    if first.saturating_add(count) > before {
                        let from = first.saturating_sub(before);
                        rest.push((two, from, count.min(first.saturating_add(count) - before)));
                    }
                    if first < before {
                        rest.push((one, first, count.min(before - first)));
                    }
                }
                // A slice of another string.
                3 => rest.push((one, first.saturating_add(u64::try_from(number(two)?).ok()?), count)),
                5 => rest.push((one, first, count)),
                _ => return None,
            }
        }
        None
    }

    pub(super) fn length(&mut self, object: u64) -> Option<u64> {
        let mut bytes = [0; 4];
        self.read(object, 12, &mut bytes).then(|| u64::from(u32::from_le_bytes(bytes)))
    }

    fn flat(&mut self, at: u64, kind: u16, first: u64, count: u64, each: &mut dyn FnMut(u16) -> bool) -> Option<()> {
        let width = if kind & ONE_BYTE != 0 { 1 } else { 2 };
        let length = count.checked_mul(width).filter(|length| *length <= MAX_STRING)?;
        let mut at = at.wrapping_add(first.wrapping_mul(width));
        let mut left = usize::try_from(length).ok()?;
        let mut bytes = vec![0; left.min(PIECE)];
        while left > 0 {
            let piece = left.min(PIECE);
            let piece = &mut bytes[..piece];
            if !self.target.read(at, piece) {
                return None;
            }
            left -= piece.len();
            at = at.wrapping_add(piece.len() as u64);
            let enough = if width == 1 {
                piece.iter().any(|byte| !each(u16::from(*byte)))
            } else {
                piece.as_chunks::<2>().0.iter().any(|pair| !each(u16::from_le_bytes(*pair)))
            };
            if enough {
                return Some(());
            }
        }
        Some(())
    }

    /// Reads a byte array.
    pub(super) fn bytes(&mut self, object: u64, limit: usize) -> Option<Vec<u8>> {
        let kind = self.kind(object)?;
        let types = &self.layout.types;
        if kind != types.byte_array && (types.trusted_bytes == 0 || kind != types.trusted_bytes) {
            return None;
        }
        let length = usize::try_from(number(self.field(object, 8)?)?).ok().filter(|length| *length <= limit)?;
        let mut bytes = vec![0; length];
        (length == 0 || self.read(object, 16, &mut bytes)).then_some(bytes)
    }

    /// Reads the first elements of an array, at most `most`.
    pub(super) fn elements(&mut self, object: u64, most: usize) -> Option<Vec<u64>> {
        let length = usize::try_from(number(self.field(object, 8)?)?).ok()?.min(most);
        let mut bytes = vec![0; length * 8];
        let read = length == 0 || self.read(object, 16, &mut bytes);
        read.then(|| bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }
}
