//! Maps element ids, which a profile may choose freely, to positions in the tables.

use std::collections::HashMap;

use crate::otlp::error::{Fault, Result};
use crate::otlp::limits::Budget;

/// The positions of a table's elements, from 1 on, by id.
#[derive(Debug)]
pub(super) struct Ids {
    /// The name of the elements, for errors.
    name: &'static str,
    /// The positions of ids up to the number of elements; 0 if no element has the id.
    small: Vec<u32>,
    large: HashMap<u64, u32>,
    /// Whether the id of each element so far equals its position.
    in_order: bool,
    /// The last position.
    last: u32,
}

impl Ids {
    /// Creates a map for this many elements.
    pub(super) fn new(name: &'static str, elements: usize, budget: &mut Budget) -> Result<Self> {
        budget.charge::<u32>(elements)?;
        Ok(Self { name, small: vec![0; elements + 1], large: HashMap::new(), in_order: true, last: 0 })
    }

    /// Adds the next element with its id. The id 0 means none, so an element with this id cannot be looked up.
    pub(super) fn add(&mut self, id: u64, budget: &mut Budget) -> Result<()> {
        // There are fewer elements than bytes, and fewer than 2^31 bytes.
        self.last += 1;
        self.in_order &= id == u64::from(self.last);
        if id == 0 {
            return Ok(());
        }
        let before = match usize::try_from(id).ok().and_then(|id| self.small.get_mut(id)) {
            Some(position) => std::mem::replace(position, self.last),
            None => {
                budget.charge::<[u64; 5]>(1)?;
                self.large.insert(id, self.last).unwrap_or_default()
            }
        };
        match before {
            0 => Ok(()),
            first => Err(Fault::value("id", format!("is {id}, as that of {}[{}]", self.name, first - 1))),
        }
    }

    /// Whether ids equal positions.
    pub(super) fn in_order(&self) -> bool {
        self.in_order
    }

    /// The position of an element; `None` if no element has this id.
    #[inline]
    pub(super) fn get(&self, id: u64) -> Option<u32> {
        if self.in_order {
            // The most frequent case takes a single comparison.
            return (id.wrapping_sub(1) < u64::from(self.last)).then_some(id as u32);
        }
        let small = usize::try_from(id).ok().and_then(|id| self.small.get(id)).copied();
        small.or_else(|| self.large.get(&id).copied()).filter(|&position| position > 0)
    }

    /// The position of an element that must exist.
    #[inline]
    pub(super) fn require(&self, id: u64, field: &str) -> Result<u32> {
        self.get(id).ok_or_else(|| self.missing(id, field))
    }

    #[cold]
    fn missing(&self, id: u64, field: &str) -> Fault {
        Fault::value(field, format!("there is no {} with the id {id}", self.name))
    }
}
