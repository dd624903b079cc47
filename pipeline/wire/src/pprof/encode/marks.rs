//! Selects the table elements to write, and assigns their numbers.

use std::collections::HashSet;

use profbridge_model::{Dictionary, LocationId, StackId};

/// The elements of one table: first marks for those to write, then their numbers, from 1 on in the order of the table.
#[derive(Debug)]
pub(super) struct MarkedTable(Vec<u64>);

impl MarkedTable {
    /// A table of `len` elements with no marks, or with all marks except for element 0, which means none.
    fn new(len: usize, all: bool) -> Self {
        let mut marks = vec![u64::from(all); len];
        if let Some(none) = marks.first_mut() {
            *none = 0;
        }
        Self(marks)
    }

    /// Marks an element. Returns whether it was unmarked before.
    fn mark(&mut self, index: usize) -> bool {
        std::mem::replace(&mut self.0[index], 1) == 0
    }

    fn number(&mut self) {
        let mut last = 0;
        for mark in self.0.iter_mut().filter(|mark| **mark > 0) {
            last += 1;
            *mark = last;
        }
    }

    /// The number of an element; 0 if it is not written.
    pub(super) fn get(&self, index: usize) -> u64 {
        self.0[index]
    }

    /// The elements to write: their numbers and positions.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.0.iter().enumerate().filter(|(_, number)| **number > 0).map(|(index, &number)| (number, index))
    }
}

/// The elements of all tables.
#[derive(Debug)]
pub(super) struct Marks {
    pub(super) mappings: MarkedTable,
    pub(super) functions: MarkedTable,
    pub(super) locations: MarkedTable,
    stacks: HashSet<StackId>,
}

impl Marks {
    /// Starts with no marks, or with all elements marked.
    pub(super) fn new(dictionary: &Dictionary, all: bool) -> Self {
        let tables = dictionary.tables();
        Self {
            mappings: MarkedTable::new(tables.mappings.len(), all),
            functions: MarkedTable::new(tables.functions.len(), all),
            locations: MarkedTable::new(tables.locations.len(), all),
            stacks: HashSet::new(),
        }
    }

    /// Marks a stack and all elements to which it refers.
    pub(super) fn stack(&mut self, dictionary: &Dictionary, stack: Option<StackId>) {
        if stack.is_none_or(|stack| !self.stacks.insert(stack)) {
            return;
        }
        for location in dictionary.stack(stack) {
            if !self.locations.mark(LocationId::wire(location) as usize) {
                continue;
            }
            let Some(location) = location.map(|location| dictionary.location(location)) else { continue };
            if let Some(mapping) = location.mapping {
                self.mappings.mark(mapping.index());
            }
            for function in dictionary.lines(location).iter().filter_map(|line| line.function) {
                self.functions.mark(function.index());
            }
        }
    }

    /// Assigns the numbers, after all marks are set.
    pub(super) fn number(&mut self) {
        self.mappings.number();
        self.functions.number();
        self.locations.number();
    }
}
