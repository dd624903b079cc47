//! Adds lines to locations without lines: the results of a symbolizer.
//!
//! Only strings, functions, lines and the named locations of the dictionary change, by appending. Every id stays valid,
//! so samples, stacks and attributes are shared or moved without being read. Additions are checked as they are added;
//! the rest was checked when the dictionary was created.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::buffer::ByteRange;
use crate::dictionary::{Dictionary, Function, Line, Tables};
use crate::id::{FunctionId, LocationId, StringId};
use crate::profiles::Profiles;

#[cfg(test)]
mod tests;

/// One line of a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SymbolName<'a> {
    /// The function, human-readable.
    pub function: &'a str,
    /// The name in the system's form, for instance mangled. Not stored if it equals `function`.
    pub system_name: &'a str,
    /// The source file; empty if unknown.
    pub filename: &'a str,
    /// The line, 1-based; 0 if unknown.
    pub line: i64,
    /// The column, 1-based; 0 if unknown.
    pub column: i64,
}

impl SymbolName<'_> {
    fn bytes(&self) -> usize {
        self.function.len() + self.system_name.len() + self.filename.len()
    }
}

/// A batch whose locations are being named. Equal strings and functions are stored once, including those of the batch.
#[derive(Debug)]
pub struct SymbolOverlay {
    profiles: Profiles,
    tables: Tables,
    /// The appended text, which will follow the buffer.
    text: Vec<u8>,
    hasher: FixedState,
    strings: HashTable<u32>,
    functions: HashTable<u32>,
    named: usize,
}

impl SymbolOverlay {
    /// Starts with a batch. The batch's dictionary is copied only if it is shared.
    pub fn new(mut profiles: Profiles) -> Self {
        let dictionary = std::mem::take(&mut profiles.dictionary);
        let tables = Arc::try_unwrap(dictionary).unwrap_or_else(|shared| (*shared).clone()).into_tables();
        let mut naming = Self {
            profiles,
            tables,
            text: Vec::new(),
            hasher: FixedState::default(),
            strings: HashTable::new(),
            functions: HashTable::new(),
            named: 0,
        };
        naming.index();
        naming
    }

    /// Indexes the strings and functions of the batch. If several are equal, the first one is used.
    fn index(&mut self) {
        let Self { tables, strings, functions, hasher, .. } = self;
        let text = |&id: &u32| tables.buffer.get(tables.strings[id as usize]).unwrap_or_default();
        strings.reserve(tables.strings.len(), |id| hasher.hash_one(text(id)));
        for id in 1..tables.strings.len() as u32 {
            let own = text(&id);
            let hash = hasher.hash_one(own);
            strings.entry(hash, |other| text(other) == own, |id| hasher.hash_one(text(id))).or_insert(id);
        }
        let row = |&id: &u32| &tables.functions[id as usize];
        for id in 1..tables.functions.len() as u32 {
            let own = row(&id);
            functions
                .entry(hasher.hash_one(own), |other| row(other) == own, |id| hasher.hash_one(row(id)))
                .or_insert(id);
        }
    }

    /// The tables of the original batch, for lookups.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Adds lines to a location, the innermost callee first. Returns false and changes nothing if `lines` is empty, if
    /// the location already has lines or is not in this batch, or if the batch would exceed 4 GiB.
    pub fn name(&mut self, location: LocationId, lines: &[SymbolName<'_>]) -> bool {
        let Some(there) = self.tables.locations.get(location.index()) else { return false };
        let bytes = self.tables.buffer.len() + self.text.len() + lines.iter().map(SymbolName::bytes).sum::<usize>();
        let rows = self.tables.lines.len() + lines.len();
        if there.lines_len > 0 || lines.is_empty() || u32::try_from(bytes).is_err() || u32::try_from(rows).is_err() {
            return false;
        }
        let start = self.tables.lines.len() as u32;
        for name in lines {
            let system_name = if name.system_name == name.function { "" } else { name.system_name };
            let function = Function {
                name: self.string(name.function),
                system_name: self.string(system_name),
                filename: self.string(name.filename),
                start_line: 0,
            };
            let function = self.function(function);
            self.tables.lines.push(Line { function, line: name.line, column: name.column });
        }
        let there = &mut self.tables.locations[location.index()];
        (there.lines_start, there.lines_len) = (start, lines.len() as u32);
        self.named += 1;
        true
    }

    fn string(&mut self, new: &str) -> Option<StringId> {
        if new.is_empty() {
            return None;
        }
        let Self { tables, strings, text, hasher, .. } = self;
        let before = tables.buffer.len();
        let hash = hasher.hash_one(new.as_bytes());
        let get = |&id: &u32| {
            let span = tables.strings[id as usize];
            match (span.start as usize).checked_sub(before) {
                // An empty string at the very end of the buffer has no bytes in the text either.
                Some(start) => text.get(start..start + span.len as usize),
                None => tables.buffer.get(span),
            }
            .unwrap_or_default()
        };
        if let Some(&known) = strings.find(hash, |id| get(id) == new.as_bytes()) {
            return StringId::new(known);
        }
        let id = tables.strings.len() as u32;
        strings.insert_unique(hash, id, |id| hasher.hash_one(get(id)));
        tables.strings.push(ByteRange { start: (before + text.len()) as u32, len: new.len() as u32 });
        text.extend_from_slice(new.as_bytes());
        StringId::new(id)
    }

    fn function(&mut self, new: Function) -> Option<FunctionId> {
        let Self { tables, functions, hasher, .. } = self;
        let hash = hasher.hash_one(new);
        if let Some(&known) = functions.find(hash, |&id| tables.functions[id as usize] == new) {
            return FunctionId::new(known);
        }
        let id = tables.functions.len() as u32;
        functions.insert_unique(hash, id, |&id| hasher.hash_one(tables.functions[id as usize]));
        tables.functions.push(new);
        FunctionId::new(id)
    }

    /// The number of bytes added so far.
    pub fn added_bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the resulting batch: the original one if no location was named.
    pub fn finish(self) -> Profiles {
        let Self { mut profiles, mut tables, text, named, .. } = self;
        if named > 0 {
            tables.buffer.append(&text);
            profiles.received = None;
        }
        profiles.dictionary = Arc::new(Dictionary::from_checked(tables));
        profiles
    }
}
