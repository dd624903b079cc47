//! Reads Ruby's objects: strings, arrays, names of symbols and of classes.
//!
//! Every object begins with a word of flags that includes its type (ruby/ruby `include/ruby/internal/value_type.h` and
//! `fl_type.h`), so memory that was freed or moved meanwhile is detected.

use super::layout::RubyLayout;
use crate::runtime::target::{TargetMemory, word, word_at};

const KIND: u64 = 0x1f;
const CLASS: u64 = 0x02;
const MODULE: u64 = 0x03;
const STRING: u64 = 0x05;
const ARRAY: u64 = 0x07;
/// Internal objects, and their kinds (ruby/ruby `internal/imemo.h`).
const INTERNAL: u64 = 0x1a;
const INTERNAL_KIND: (u32, u64) = (12, 0xf);
pub(super) const VARIABLES: u64 = 2;
pub(super) const METHOD: u64 = 6;
pub(super) const SEQUENCE: u64 = 7;
/// A class object that represents an included module; its own class is that module.
const INCLUDED: u64 = 0x1c;

/// In strings: the bytes are stored elsewhere. In arrays: the elements are stored inside.
const USER_1: u64 = 1 << 13;
/// The bits of the length of a string whose bytes are stored inside, up to 3.1: position and mask.
const SHORT_LENGTH: (u32, u64) = (14, 0x1f);

/// The number of symbols in an array of names, and the number of array elements for each (ruby/ruby `symbol.c`).
const NAMES: (u64, u64) = (512, 2);
/// The number of low bits of a symbol's id that are its scope.
const SCOPE_BITS: u32 = 4;

/// Whether these are the flags of an internal object of this kind.
pub(super) fn is_internal(flags: u64, kind: u64) -> bool {
    flags & KIND == INTERNAL && flags >> INTERNAL_KIND.0 & INTERNAL_KIND.1 == kind
}

/// Reads the bytes of a string, at most `limit`.
pub(super) fn string(layout: &RubyLayout, target: &mut dyn TargetMemory, address: u64, limit: usize) -> Option<String> {
    let mut head = [0; 40];
    if address & 7 != 0 || !target.read(address, &mut head) {
        return None;
    }
    let flags = word_at(&head, 0);
    if flags & KIND != STRING {
        return None;
    }
    let is_inside = flags & USER_1 == 0;
    let (length, start) = match (is_inside, layout.string_length) {
        (true, false) => (flags >> SHORT_LENGTH.0 & SHORT_LENGTH.1, address.wrapping_add(16)),
        (true, true) => (word_at(&head, 16), address.wrapping_add(24)),
        (false, _) => (word_at(&head, 16), word_at(&head, 24)),
    };
    // Such a length is implausible.
    if length > 1 << 20 {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?.min(limit)];
    target.read(start, &mut bytes).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads an element of an array.
pub(super) fn element(target: &mut dyn TargetMemory, address: u64, index: u64) -> Option<u64> {
    let mut head = [0; 40];
    if address & 7 != 0 || !target.read(address, &mut head) {
        return None;
    }
    let flags = word_at(&head, 0);
    if flags & KIND != ARRAY {
        return None;
    }
    let start = if flags & USER_1 == 0 {
        if index >= word_at(&head, 16) {
            return None;
        }
        word_at(&head, 32)
    } else {
        // An array has no more elements inside than fit into the largest slot, 640 bytes.
        if index >= 78 {
            return None;
        }
        address.wrapping_add(16)
    };
    word(target, start.wrapping_add(index.wrapping_mul(8)))
}

/// Reads the path of a file, which is a string, or an array of two paths of which the real path is preferred.
pub(super) fn path(layout: &RubyLayout, target: &mut dyn TargetMemory, address: u64, limit: usize) -> Option<String> {
    if let Some(path) = string(layout, target, address, limit) {
        return Some(path);
    }
    let real = element(target, address, 1).and_then(|real| string(layout, target, real, limit));
    real.or_else(|| element(target, address, 0).and_then(|path| string(layout, target, path, limit)))
}

/// The name of the symbol with this id. `names` is the array of arrays of names.
pub(super) fn symbol(
    layout: &RubyLayout,
    target: &mut dyn TargetMemory,
    names: u64,
    number: u64,
    limit: usize,
) -> Option<String> {
    let serial = if number > layout.last_operator { number >> SCOPE_BITS } else { number };
    let some = element(target, names, serial / NAMES.0)?;
    let name = element(target, some, serial % NAMES.0 * NAMES.1)?;
    string(layout, target, name, limit)
}

/// Whether this is the array of arrays of names: the id of an operator is its character, so the name with the id `+`
/// must be `+`.
pub(super) fn is_symbols(layout: &RubyLayout, target: &mut dyn TargetMemory, address: u64) -> bool {
    symbol(layout, target, address, u64::from(b'+'), 8).as_deref() == Some("+")
}

/// The fields of a class that determine its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Class {
    /// The address of the name, and the contents there; 0 if there is none.
    path: u64,
    content: [u8; 24],
    /// Whether this is a singleton class, which has the name of the class object to which it belongs.
    is_singleton: bool,
}

impl Class {
    /// Reads the name, if there is one. It is valid if the class is unchanged afterwards.
    pub(super) fn name(&self, layout: &RubyLayout, target: &mut dyn TargetMemory, limit: usize) -> Option<String> {
        if self.path == 0 { None } else { string(layout, target, self.path, limit) }
    }

    /// The separator between the class name and the method name.
    pub(super) fn join(&self) -> char {
        if self.is_singleton { '.' } else { '#' }
    }
}

/// Reads the fingerprint of a class; `None` if it cannot be read, or class names are not supported.
pub(super) fn class(layout: &RubyLayout, target: &mut dyn TargetMemory, address: u64) -> Option<Class> {
    let of = layout.class?;
    let mut bytes = [0; 192];
    let mut read = |address: u64, target: &mut dyn TargetMemory| {
        let is_read = address & 7 == 0 && address != 0 && target.read(address, &mut bytes[..of.path as usize + 8]);
        is_read.then(|| {
            let field = |at: u32| word_at(&bytes, at as usize);
            (field(0), field(8), field(of.path), field(of.attached))
        })
    };
    let (mut flags, of_kind, mut path, attached) = read(address, target)?;
    let mut is_singleton = false;
    if flags & KIND == INCLUDED {
        (flags, _, path, _) = read(of_kind, target)?;
    } else if flags & KIND == CLASS && flags & of.singleton != 0 {
        is_singleton = true;
        (flags, _, path, _) = read(attached, target)?;
    }
    // Singleton classes of other objects have no name. A value that is not an address means no name.
    let is_class = matches!(flags & KIND, CLASS | MODULE);
    let path = if is_class && path & 7 == 0 { path } else { 0 };
    let content = if path == 0 { [0; 24] } else { content(target, path)? };
    Some(Class { path, content, is_singleton })
}

/// The words of a string or an array after the flags (some of which the garbage collector uses) and the class.
pub(super) fn content(target: &mut dyn TargetMemory, address: u64) -> Option<[u8; 24]> {
    let mut bytes = [0; 24];
    target.read(address.wrapping_add(16), &mut bytes).then_some(bytes)
}
