//! The memory of a batch.

use crate::dictionary::Attribute;
use crate::profiles::{Profiles, Resource, ResourceProfiles, Samples};

impl Profiles {
    /// Approximate memory use in bytes, including everything that can be large.
    pub fn size_bytes(&self) -> u64 {
        let tables = self.dictionary().tables();
        let rows = tables.locations.len() + tables.lines.len() + tables.mappings.len() + tables.functions.len();
        let spans = tables.strings.len() + tables.stacks.len() + tables.attribute_sets.len();
        let attributes = |resource: &ResourceProfiles| {
            let scopes = resource.scopes.iter().map(|scope| scope.scope.attributes.len()).sum::<usize>();
            resource.resource.attributes.len() + scopes + resource.resource.entity_refs.len()
        };
        let attributes = tables.attributes.len() + self.resources().iter().map(attributes).sum::<usize>();
        let bytes = tables.buffer.len()
            + rows * 40
            + (spans + tables.attribute_set_items.len()) * 8
            + attributes * size_of::<Attribute>()
            + self.resources().len() * size_of::<Resource>()
            + self.columns().len() * Samples::ROW_BYTES;
        bytes as u64
    }
}
