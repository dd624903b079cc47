//! A stretch of time, as batches of profiles.

use std::collections::BTreeMap;
use std::time::Instant;

use profbridge_model::Profiles;
use profbridge_model::dictionary::Invalid;
use profbridge_receiver_ptrace::assemble::Assembler;
use profbridge_sampler::message::{Batch, Mode, Sample};

use super::Tracked;
use crate::sample::runtimes::Runtime;

/// The samples of a stretch of time, as the sampler said them.
#[derive(Debug)]
pub(crate) struct Part {
    /// Of each process that has any, by its place among all that were seen: a build starts thousands, of which few are
    /// there in any part.
    pub(super) of: BTreeMap<usize, Vec<Batch>>,
    /// When the last batch came: it is about then that their samples end. A part waits for its names, so when it is
    /// shown says nothing of that.
    pub(crate) heard: Instant,
}

/// The profiles of a stretch of time: all, and those of running and of blocked threads of each process.
#[derive(Debug)]
pub(crate) struct Halves {
    /// All of them.
    pub(crate) whole: Profiles,
    /// By process; none without samples.
    pub(crate) each: Vec<OfProcess>,
    /// Observations that made no sense and are in none of them.
    pub(crate) malformed: u64,
}

/// The profiles of one process.
#[derive(Debug)]
pub(crate) struct OfProcess {
    /// Its id.
    pub(crate) pid: u32,
    /// What it is called.
    pub(crate) label: String,
    /// What runs its code.
    pub(crate) runtime: Runtime,
    /// Of threads that ran; `None` where none did.
    pub(crate) running: Option<Profiles>,
    /// Of threads that were blocked; `None` where none was.
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

/// A batch with the samples of either blocked or running threads; `None` where it has none. In cpu mode a sample says
/// for how long its thread ran, even if it is found blocked by then.
fn some(batch: &Batch, blocked: bool) -> Option<Batch> {
    let is_blocked = |sample: &Sample| sample.blocked && batch.mode == Mode::Wall;
    let samples: Vec<_> = batch.samples.iter().filter(|sample| is_blocked(sample) == blocked).copied().collect();
    (!samples.is_empty()).then(|| Batch { samples, ..batch.clone() })
}
