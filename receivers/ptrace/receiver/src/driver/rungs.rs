//! What is seen of running threads: how many of the processes that are sampled are on each rung.

use profbridge_engine::intake::Intake;
use profbridge_ptrace::message::Rung;

use super::Driver;

/// What is known of a process's running threads: its rung, or nothing yet.
type Known = Option<Rung>;

/// The gauges, and what each counts.
const GAUGES: [(&str, Known); 5] = [
    ("sampler_processes_undecided", None),
    ("sampler_processes_without_events", Some(Rung::None)),
    ("sampler_processes_user_events", Some(Rung::User)),
    ("sampler_processes_kernel_events", Some(Rung::Kernel)),
    ("sampler_processes_processor_events", Some(Rung::Processors)),
];

/// How many processes are on each rung.
#[derive(Debug, Default)]
pub(super) struct Rungs {
    counts: [u64; GAUGES.len()],
}

impl Rungs {
    /// Tells all gauges, so that none is missing where there was nothing to count.
    pub(super) fn tell(&self, intake: &Intake) {
        for ((name, _), count) in GAUGES.into_iter().zip(self.counts) {
            intake.level(name, count);
        }
    }

    /// A process is counted as another one: under nothing before it is sampled and afterwards.
    fn recount(&mut self, before: Option<Known>, now: Option<Known>, intake: &Intake) {
        if before == now {
            return;
        }
        for ((name, known), count) in GAUGES.into_iter().zip(&mut self.counts) {
            let (was, is) = (before == Some(known), now == Some(known));
            if was != is {
                *count = count.saturating_sub(u64::from(was)) + u64::from(is);
                intake.level(name, *count);
            }
        }
    }
}

impl Driver {
    /// Something about a process has changed: counts it anew.
    pub(super) fn count_rung(&mut self, number: u64) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        let sampled = process.lifecycle().is_running() && !process.ended;
        let now = sampled.then(|| process.rung());
        let before = std::mem::replace(&mut process.counted, now);
        self.rungs.recount(before, now, &self.parts.intake);
    }
}
