//! A stretch of time, as batches of profiles.

use std::time::Instant;

use profbridge_model::Profiles;
use profbridge_model::dictionary::Invalid;
use profbridge_receiver_ptrace::assemble::{Assembler, Subject};
use profbridge_sampler::message::{Batch, Mode, Sample};

use super::Tracked;
use crate::sample::runtimes::Runtime;

/// The samples of a stretch of time, as the sampler said them.
#[derive(Debug)]
pub(crate) struct Part {
    pub(super) batches: Vec<Batch>,
    /// When the last of them came: it is about then that their samples end. A part waits for its names, so when it is
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
        let (whole, malformed) = assemble(processes, &self.batches)?;
        let mut each = Vec::new();
        for process in processes {
            let half = |blocked: bool| -> Result<Option<Profiles>, Invalid> {
                let own = self.batches.iter().filter(|batch| batch.process == process.id);
                let batches: Vec<Batch> = own.map(|batch| some(batch, blocked)).collect();
                let (profiles, _) = assemble(std::slice::from_ref(process), &batches)?;
                Ok((profiles.observations() > 0).then_some(profiles))
            };
            let (running, waiting) = (half(false)?, half(true)?);
            if running.is_some() || waiting.is_some() {
                let runtime = Runtime::of(&process.mappings);
                each.push(OfProcess { label: process.label.clone(), runtime, running, waiting });
            }
        }
        Ok(Halves { whole, each, malformed })
    }
}

fn assemble(processes: &[Tracked], batches: &[Batch]) -> Result<(Profiles, u64), Invalid> {
    let mut assembler = Assembler::new();
    for process in processes {
        let own: Vec<Batch> =
            batches.iter().filter(|batch| batch.process == process.id && !batch.samples.is_empty()).cloned().collect();
        if !own.is_empty() {
            let Tracked { resource, mappings, functions, names, .. } = process;
            let subject = Subject { resource, mappings, functions, thread_attributes: &[], names };
            assembler.process(subject, &own);
        }
    }
    let assembled = assembler.finish()?;
    Ok((assembled.profiles, assembled.malformed))
}

/// A batch with the samples of either blocked or running threads. In cpu mode a sample says for how long its thread
/// ran, even if it is found blocked by then.
fn some(batch: &Batch, blocked: bool) -> Batch {
    let is_blocked = |sample: &Sample| sample.blocked && batch.mode == Mode::Wall;
    let samples = batch.samples.iter().filter(|sample| is_blocked(sample) == blocked).copied().collect();
    Batch {
        process: batch.process,
        period_nano: batch.period_nano,
        mode: batch.mode,
        threads: batch.threads.clone(),
        locations: batch.locations.clone(),
        stacks: batch.stacks.clone(),
        contexts: batch.contexts.clone(),
        samples,
    }
}
