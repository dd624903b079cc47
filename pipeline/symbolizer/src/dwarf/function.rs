//! Functions inlined into a function at given addresses.

use gimli::UnitOffset;

use super::budget::{DwarfBudget, Error};
use super::lines::file_index;
use super::unit::{Extent, Opened, Reference};
use super::{DwarfReader, UnresolvedPosition};

/// Maximum depth of inlining. Compilers inline far less deeply.
const MAX_NESTED: usize = 128;

/// The inlined functions at each requested address.
#[derive(Debug)]
pub(super) struct Inlines {
    at: Vec<Vec<Inline>>,
}

/// One inlined function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inline {
    depth: isize,
    /// The entry that has the name.
    pub(super) origin: Option<Reference>,
    pub(super) call: UnresolvedPosition,
}

impl Inlines {
    /// Scans a function once. `addresses` must be inside the function, in ascending order.
    pub(super) fn read(
        dwarf: &gimli::Dwarf<DwarfReader<'_>>,
        opened: &Opened<'_>,
        function: usize,
        addresses: &[u64],
        budget: &mut DwarfBudget<'_>,
    ) -> Result<Self, Error> {
        let mut at = vec![Vec::new(); addresses.len()];
        let mut entries = opened.unit.entries_raw(Some(UnitOffset(function)))?;
        let depth = entries.next_depth();
        let root = entries.read_abbreviation()?.ok_or(Error::Malformed)?;
        entries.skip_attributes(root.attributes())?;
        // The depth of the entry whose whole subtree is skipped.
        let mut skipped = None;
        while !entries.is_empty() && entries.next_depth() > depth {
            let here = entries.next_depth();
            if skipped.is_some_and(|skipped| here <= skipped) {
                skipped = None;
            }
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            budget.spend(1 + abbreviation.attributes().len())?;
            if skipped.is_some() || abbreviation.tag() != gimli::DW_TAG_inlined_subroutine {
                // A nested function has its own entry in the index.
                if skipped.is_none() && abbreviation.tag() == gimli::DW_TAG_subprogram {
                    skipped = Some(here);
                }
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut extent = Extent::default();
            let mut inline = Inline { depth: here, origin: None, call: UnresolvedPosition::default() };
            for &specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(specification)?;
                let number = || attribute.udata_value().unwrap_or(0);
                match attribute.name() {
                    gimli::DW_AT_abstract_origin => inline.origin = Reference::of(attribute.value()),
                    gimli::DW_AT_call_file => inline.call.file = file_index(&attribute),
                    gimli::DW_AT_call_line => inline.call.line = u32::try_from(number()).unwrap_or(0),
                    gimli::DW_AT_call_column => inline.call.column = u32::try_from(number()).unwrap_or(0),
                    name => extent.set_attribute(name, attribute.value()),
                }
            }
            let mut hit = false;
            extent.each(dwarf, &opened.unit, budget, |budget, start, end| {
                let first = addresses.partition_point(|&address| address < start);
                let last = addresses.partition_point(|&address| address < end);
                budget.spend(last - first)?;
                for inlines in &mut at[first..last] {
                    // In a well-formed file, siblings share no address.
                    let nests = inlines.last().is_none_or(|outer: &Inline| outer.depth < here);
                    if nests && inlines.len() < MAX_NESTED {
                        inlines.push(inline);
                        hit = true;
                    }
                }
                Ok(())
            })?;
            if !hit {
                skipped = Some(here);
            }
        }
        Ok(Self { at })
    }

    /// The functions inlined at `addresses[position]`, outermost first.
    pub(super) fn at(&self, position: usize) -> &[Inline] {
        &self.at[position]
    }
}
