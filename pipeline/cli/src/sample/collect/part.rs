//! The profiles of one time range.

use std::collections::BTreeMap;
use std::time::Instant;

use profbridge_model::Profiles;
use profbridge_model::dictionary::Invalid;
use profbridge_receiver_ptrace::assemble::Assembler;
use profbridge_sampler::message::Batch;

use super::Tracked;
use crate::sample::runtimes::Runtime;
use crate::views::reading::AWAITED;

/// The samples of a time range as received from the sampler.
#[derive(Debug)]
pub(crate) struct Part {
    /// The batches by process, as an index into the list of all processes: a build starts thousands, but few are in any
    /// one part.
    pub(super) of: BTreeMap<usize, Vec<Batch>>,
    /// When the last batch arrived, which is about the end of its samples. The part is shown later, after waiting for
    /// its names.
    pub(crate) arrived: Instant,
}

/// The profiles of a time range.
#[derive(Debug)]
pub(crate) struct PartProfiles {
    /// All of them.
    pub(crate) profiles: Profiles,
    /// Label and runtime of the process of each resource.
    pub(crate) processes: Vec<(String, Runtime)>,
    /// Malformed observations, which are left out.
    pub(crate) malformed: u64,
}

impl Part {
    pub(super) fn assemble(&self, processes: &[Tracked]) -> Result<PartProfiles, Invalid> {
        let (mut assembler, attributes) = (Assembler::default(), [AWAITED.to_owned()]);
        let mut described = Vec::new();
        let present = self.of.iter().filter_map(|(&place, batches)| Some((processes.get(place)?, &batches[..])));
        for (process, batches) in present.filter(|(_, batches)| !batches.is_empty()) {
            assembler.process(process.record.subject(&attributes), batches);
            described.push((process.label.clone(), Runtime::of(process.record.mappings())));
        }
        let assembled = assembler.finish()?;
        Ok(PartProfiles { profiles: assembled.profiles, processes: described, malformed: assembled.malformed })
    }
}
