//! Bounds what one call may put out.
//!
//! Each batch stands on its own, so what processes have in common is written for each of them. Among real processes that
//! is a few times what is held. But a hundred thousand processes that share one name of four megabytes would come to
//! 400 gigabytes: what goes beyond the budget is dropped and counted.

use profbridge_model::{Attribute, Profiles, Resource, ResourceProfiles};

/// What leaves may be so many times as large as what it was made of.
const FACTOR: u64 = 32;

/// And so many bytes more.
const BASE: u64 = 64 << 20;

/// What a batch takes however little is in it, in bytes: its tables, lists and counts, each allocated on its own.
/// Measured with one observation each; otherwise a timestamp in eight bytes could become two thousand.
const BATCH: u64 = 2048;

/// What one call may still put out, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Budget(u64);

impl Budget {
    /// A budget for what is made of so many bytes.
    pub(crate) fn of(bytes: u64) -> Self {
        Self(bytes.saturating_mul(FACTOR).saturating_add(BASE))
    }

    /// Whether nothing is left.
    pub(crate) fn is_used_up(self) -> bool {
        self.0 == 0
    }

    /// Charges a batch that has a dictionary of its own. The last one may be larger than what is left.
    pub(crate) fn charge(&mut self, batch: &Profiles) {
        self.0 = self.0.saturating_sub(size(batch).saturating_add(BATCH));
    }
}

/// The size of a batch, in bytes: roughly, with everything that can be large.
pub(crate) fn size(batch: &Profiles) -> u64 {
    let tables = batch.dictionary().tables();
    let lines = tables.locations.len() + tables.lines.len() + tables.mappings.len() + tables.functions.len();
    let spans = tables.strings.len() + tables.stacks.len() + tables.attribute_sets.len();
    let attributes = |resource: &ResourceProfiles| {
        let scopes = resource.scopes.iter().map(|scope| scope.scope.attributes.len()).sum::<usize>();
        resource.resource.attributes.len() + scopes + resource.resource.entity_refs.len()
    };
    let attributes = tables.attributes.len() + batch.resources().iter().map(attributes).sum::<usize>();
    let bytes = tables.buffer.len()
        + lines * 40
        + (spans + tables.attribute_set_items.len()) * 8
        + attributes * size_of::<Attribute>()
        + batch.resources().len() * size_of::<Resource>()
        + batch.columns().len() * 28;
    bytes as u64
}
