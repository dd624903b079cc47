//! Which elements of the tables are written, and under which number.

use std::collections::HashSet;

use profbridge_model::{Dictionary, LocationId, StackId};

/// The elements of one table: first which are needed, then their numbers, from 1 on in the order of the table.
#[derive(Debug)]
pub(super) struct Table(Vec<u64>);

impl Table {
    /// A table of so many elements, of which none is needed yet, or all but the one that stands for none.
    fn new(len: usize, all: bool) -> Self {
        let mut marks = vec![u64::from(all); len];
        if let Some(none) = marks.first_mut() {
            *none = 0;
        }
        Self(marks)
    }

    /// Whether it was not marked before.
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

    /// The number of an element; 0 where it is not written.
    pub(super) fn get(&self, index: usize) -> u64 {
        self.0[index]
    }

    /// The elements that are written: their numbers and positions.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.0.iter().enumerate().filter(|(_, number)| **number > 0).map(|(index, &number)| (number, index))
    }
}

/// The elements of all tables.
#[derive(Debug)]
pub(super) struct Marks {
    pub(super) mappings: Table,
    pub(super) functions: Table,
    pub(super) locations: Table,
    stacks: HashSet<StackId>,
}

impl Marks {
    /// Nothing is needed yet, or everything.
    pub(super) fn new(dictionary: &Dictionary, all: bool) -> Self {
        let tables = dictionary.tables();
        Self {
            mappings: Table::new(tables.mappings.len(), all),
            functions: Table::new(tables.functions.len(), all),
            locations: Table::new(tables.locations.len(), all),
            stacks: HashSet::new(),
        }
    }

    /// A stack is needed, and all that it refers to.
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

    /// Everything that is needed was marked.
    pub(super) fn number(&mut self) {
        self.mappings.number();
        self.functions.number();
        self.locations.number();
    }
}
