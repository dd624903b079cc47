//! The profiles of one time range, grouped by process.

use std::collections::BTreeMap;
use std::time::Instant;

use profbridge_model::Profiles;
use profbridge_model::dictionary::Invalid;
use profbridge_receiver_ptrace::assemble::Assembler;
use profbridge_sampler::message::{Batch, Mode, Sample};

use super::Tracked;
use crate::sample::runtimes::Runtime;

/// The samples of a time range as received from the sampler.
#[derive(Debug)]
pub(crate) struct Part {
    /// The batches by process, as an index into the list of all processes: a build starts thousands, but few are in any
    /// one part.
    pub(super) of: BTreeMap<usize, Vec<Batch>>,
    /// When the last batch arrived, which is about the end of its samples. The part is shown later, after waiting for
    /// its names.
    pub(crate) heard: Instant,
}

/// The profiles of a time range: all together, and for each process those of running and of blocked threads.
#[derive(Debug)]
pub(crate) struct Halves {
    /// All of them in one batch.
    pub(crate) whole: Profiles,
    /// By process; processes without samples are left out.
    pub(crate) each: Vec<OfProcess>,
    /// Malformed observations, which are left out.
    pub(crate) malformed: u64,
}

/// The profiles of one process.
#[derive(Debug)]
pub(crate) struct OfProcess {
    /// Its id.
    pub(crate) pid: u32,
    /// Its label.
    pub(crate) label: String,
    /// Its runtime.
    pub(crate) runtime: Runtime,
    /// Those of running threads; `None` if there are none.
    pub(crate) running: Option<Profiles>,
    /// Those of blocked threads; `None` if there are none.
    pub(crate) waiting: Option<Profiles>,
}

impl Part {
    pub(super) fn halves(&self, processes: &[Tracked]) -> Result<Halves, Invalid> {
        let present = || self.of.iter().filter_map(|(&place, batches)| Some((processes.get(place)?, &batches[..])));
        let (whole, malformed) = assemble(present())?;
        let mut each = Vec::new();
        for (process, batches) in present() {
            let half = |blocked: bool| -> Result<Option<Profiles>, Invalid> {
                let batches: Vec<Batch> = batches.iter().filter_map(|batch| some(batch, blocked)).collect();
                let (profiles, _) = assemble([(process, &batches[..])].into_iter())?;
                Ok((profiles.observations() > 0).then_some(profiles))
            };
            let (running, waiting) = (half(false)?, half(true)?);
            if running.is_some() || waiting.is_some() {
                let runtime = Runtime::of(process.record.mappings());
                each.push(OfProcess { pid: process.pid, label: process.label.clone(), runtime, running, waiting });
            }
        }
        Ok(Halves { whole, each, malformed })
    }
}

fn assemble<'a>(of: impl Iterator<Item = (&'a Tracked, &'a [Batch])>) -> Result<(Profiles, u64), Invalid> {
    let mut assembler = Assembler::default();
    for (process, batches) in of.filter(|(_, batches)| !batches.is_empty()) {
        assembler.process(process.record.subject(&[]), batches);
    }
    let assembled = assembler.finish()?;
    Ok((assembled.profiles, assembled.malformed))
}

/// The samples of either blocked or running threads; `None` if there are none. In cpu mode a sample is CPU time of its
/// thread, even if the thread is found blocked.
fn some(batch: &Batch, blocked: bool) -> Option<Batch> {
    let is_blocked = |sample: &Sample| sample.blocked && batch.mode == Mode::Wall;
    let samples: Vec<_> = batch.samples.iter().filter(|sample| is_blocked(sample) == blocked).copied().collect();
    (!samples.is_empty()).then(|| Batch { samples, ..batch.clone() })
}
