//! Python's names of its threads. `threading._active`, a dictionary in the main interpreter's `threading` module, maps
//! each ident to a thread object, which has the name (CPython `Lib/threading.py`).

use std::time::{Duration, Instant};

use super::dict::{self, DictEntry, DictKeys};
use super::layout::{AttributeStorage, PythonLayout};
use super::place::PythonPlace;
use super::text;
use crate::runtime::target::{Bounded, half, word};
use crate::runtime::{Allowance, TargetMemory};

/// Limits: modules, variables of `threading`, threads, and attributes of a thread that are examined.
const MAX_MODULES: usize = 4096;
const MAX_VARIABLES: usize = 512;
const MAX_THREADS: usize = 8192;
const MAX_ATTRIBUTES: usize = 64;
/// The longest name, in characters.
const MAX_NAME: usize = 128;
/// The read limit for one name.
const ALLOWED: Allowance = Allowance { reads: 8192, bytes: 1 << 20 };
/// The first and the longest pause before `threading` is looked for again after it was not found.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// The shortest pause between two reads of all idents, and the part of it that is added for each thread.
const PAUSE_OF_IDENTS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_micros(10));

/// The thread names of an interpreter.
#[derive(Debug, Default)]
pub(super) struct ThreadNames {
    /// The address of the dictionary of threads, 0 while unknown, and when it is looked for next.
    active: u64,
    due: Option<Instant>,
    pause: Duration,
    /// The idents in the order of the dictionary's table, and when they were read. The hash of an ident below 2^61 is
    /// the ident.
    idents: Vec<u64>,
    read: Option<Instant>,
}

impl ThreadNames {
    /// The name of the thread with this ident.
    pub(super) fn name(
        &mut self,
        place: &PythonPlace,
        ident: u64,
        now: Instant,
        target: &mut dyn TargetMemory,
    ) -> Option<String> {
        let target = &mut Bounded::new(target, ALLOWED);
        let layout = &place.layout;
        if self.active == 0 && self.due.is_none_or(|due| now >= due) {
            self.active = find_active(place, target).unwrap_or(0);
            self.pause = (self.pause * 2).clamp(PAUSE.0, PAUSE.1);
            self.due = Some(now + self.pause);
        }
        let (keys, _) = dict::tables(layout, self.active, target)?;
        let keys = DictKeys::at(layout, keys, target)?;
        let DictEntry { key, value, .. } = self.entry(&keys, ident, now, target)?;
        // If the thread object's own ident is not its key in the dictionary, the memory has been reused.
        let [name, own] = attributes(layout, value, ["_name", "_ident"], target)?;
        let name = text::string(&layout.object, target, name, MAX_NAME).filter(|_| own == key)?;
        Some(name).filter(|name| !name.is_empty())
    }

    /// Finds the entry of a thread: at the index where it was last, or else by searching.
    fn entry(&mut self, keys: &DictKeys, ident: u64, now: Instant, target: &mut dyn TargetMemory) -> Option<DictEntry> {
        for again in [false, true] {
            if again {
                let pause = PAUSE_OF_IDENTS.0.max(PAUSE_OF_IDENTS.1 * self.idents.len() as u32);
                if self.read.is_some_and(|read| now < read + pause) {
                    return None;
                }
                self.read = Some(now);
                self.idents.clear();
                self.idents.extend(keys.entries(MAX_THREADS, target)?.iter().map(|entry| entry.hash));
            }
            for (index, _) in self.idents.iter().enumerate().filter(|(_, known)| **known == ident) {
                let entry = keys.entry(index, target).filter(|entry| entry.hash == ident && entry.value != 0);
                if entry.is_some() {
                    return entry;
                }
            }
        }
        None
    }
}

/// Finds the dictionary of threads.
fn find_active(place: &PythonPlace, target: &mut dyn TargetMemory) -> Option<u64> {
    let layout = &place.layout;
    // In all versions, the pointer to the main interpreter follows the pointer to the first interpreter of the list.
    let main =
        word(target, place.runtime.wrapping_add(u64::from(layout.interpreters) + 8)).filter(|main| *main != 0)?;
    let modules = word(target, main.wrapping_add(layout.names.modules.into()))?;
    let threading = dict::get(layout, modules, "threading", MAX_MODULES, target)?;
    // In a module object, the variables follow the header.
    let variables = word(target, threading.wrapping_add(u64::from(layout.object.kind) + 8))?;
    dict::get(layout, variables, "_active", MAX_VARIABLES, target)
}

/// The values of attributes of an instance of a Python class; `None` if one is missing.
fn attributes<const COUNT: usize>(
    layout: &PythonLayout,
    object: u64,
    names: [&str; COUNT],
    target: &mut dyn TargetMemory,
) -> Option<[u64; COUNT]> {
    /// `Py_TPFLAGS_INLINE_VALUES` and `Py_TPFLAGS_MANAGED_DICT`.
    const INLINE: u32 = 1 << 2;
    const MANAGED: u32 = 1 << 4;
    let kind = dict::type_of(layout, object, target)?;
    // In a type, relative to the end of the object header: the instance size, the flags, and the offset of the
    // dictionary pointer in instances.
    let of_type = |at: u64| kind.wrapping_add(u64::from(layout.object.kind) + at);
    let before = |distance: u64| object.wrapping_sub(distance);
    let flags = half(target, of_type(160))?;
    let shared = word(target, kind.wrapping_add(layout.names.shared_keys))?;
    let tables = match layout.names.attributes {
        AttributeStorage::Dictionary => {
            let at = word(target, of_type(280)).filter(|at| (1..1 << 16).contains(at))?;
            Err(word(target, object.wrapping_add(at))?)
        }
        _ if flags & MANAGED == 0 => return None,
        AttributeStorage::Before { values, dictionary } => match word(target, before(values))? {
            0 => Err(word(target, before(dictionary))?),
            values => Ok((shared, values)),
        },
        AttributeStorage::Either { pointer } => match word(target, before(pointer))? {
            values if values & 1 == 1 => Ok((shared, values.wrapping_add(1))),
            dictionary => Err(dictionary),
        },
        AttributeStorage::Behind { dictionary } => match word(target, before(dictionary))? {
            0 if flags & INLINE != 0 => Ok((shared, object.wrapping_add(word(target, of_type(24))?))),
            dictionary => Err(dictionary),
        },
    };
    let (keys, values) = match tables {
        Ok(tables) => tables,
        Err(dictionary) => dict::tables(layout, dictionary, target)?,
    };
    // From 3.13 on the array of values has a header.
    let head = if matches!(layout.names.attributes, AttributeStorage::Behind { .. }) { 8 } else { 0 };
    let mut found = [None; COUNT];
    for (index, entry) in DictKeys::at(layout, keys, target)?.entries(MAX_ATTRIBUTES, target)?.into_iter().enumerate() {
        if let Some(at) = names.iter().position(|name| text::is(&layout.object, target, entry.key, name)) {
            let value = match values {
                0 => Some(entry.value),
                values => word(target, values.wrapping_add(head + 8 * index as u64)),
            };
            found[at] = value.filter(|value| *value != 0);
        }
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    let mut values = [0; COUNT];
    for (value, found) in values.iter_mut().zip(found) {
        *value = found?;
    }
    Some(values)
}
