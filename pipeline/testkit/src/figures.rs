//! Counts the contents of a request, for the table of workloads.

use opentelemetry_proto::tonic::profiles::v1development::Sample;
use prost::Message;

use crate::ExportProfilesServiceRequest;

/// The counts of one request. Tables are counted with their zero element, as on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of the encoded request.
    pub wire_bytes: usize,
    /// Observations: timestamps, or 1 for a sample without any.
    pub observations: usize,
    /// `Sample` messages.
    pub samples: usize,
    /// Entries of the stack table.
    pub stacks: usize,
    /// Location indices over all stacks.
    pub stack_indices: usize,
    /// Entries of the location table.
    pub locations: usize,
    /// Entries of the function table.
    pub functions: usize,
    /// Entries of the string table.
    pub strings: usize,
    /// Entries of the link table.
    pub links: usize,
    /// `ResourceProfiles` messages.
    pub resources: usize,
    /// Observations with a link.
    pub linked: usize,
}

impl Figures {
    /// Counts the contents of `request`.
    pub fn of(request: &ExportProfilesServiceRequest) -> Self {
        let mut figures =
            Self { wire_bytes: request.encoded_len(), resources: request.resource_profiles.len(), ..Self::default() };
        for sample in samples(request) {
            let observations = sample.timestamps_unix_nano.len().max(1);
            figures.samples += 1;
            figures.observations += observations;
            figures.linked += if sample.link_index == 0 { 0 } else { observations };
        }
        if let Some(dictionary) = &request.dictionary {
            figures.stacks = dictionary.stack_table.len();
            figures.stack_indices = dictionary.stack_table.iter().map(|stack| stack.location_indices.len()).sum();
            figures.locations = dictionary.location_table.len();
            figures.functions = dictionary.function_table.len();
            figures.strings = dictionary.string_table.len();
            figures.links = dictionary.link_table.len();
        }
        figures
    }
}

/// All samples of a request, in wire order.
pub fn samples(request: &ExportProfilesServiceRequest) -> impl Iterator<Item = &Sample> {
    request
        .resource_profiles
        .iter()
        .flat_map(|resource| &resource.scope_profiles)
        .flat_map(|scope| &scope.profiles)
        .flat_map(|profile| &profile.samples)
}
