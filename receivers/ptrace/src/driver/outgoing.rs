//! Sends the samples of a process when they are due.

use std::time::Duration;

use profbridge_model::{Quantities, Reason};
use profbridge_symbolizer::Counters;
use tokio::time::Instant;

use super::Driver;
use crate::assemble::Assembler;

/// How often samples that wait for names are checked again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Driver {
    /// Sends the samples of a process that is due, unless they wait for names that may still come in time.
    pub(super) fn look_at(&mut self, number: u64, now: Instant) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        let waited = now.saturating_duration_since(process.due);
        if waited < self.settings.max_wait && process.waits_for_names() {
            process.look_at = now + LOOK_AGAIN.min(self.settings.max_wait.saturating_sub(waited));
            return;
        }
        self.export(number);
        if let Some(process) = self.processes.get_mut(&number) {
            if process.ended {
                self.processes.remove(&number);
            } else {
                process.due = now + self.settings.export_interval;
                process.look_at = process.due;
            }
        }
    }

    pub(super) fn export(&mut self, number: u64) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        let batches = process.take_pending();
        if batches.iter().all(|batch| batch.samples.is_empty()) {
            return;
        }
        let mut assembler = Assembler::default();
        assembler.process(process.record.subject(&self.settings.thread_attributes), &batches);
        let intake = &self.parts.intake;
        match assembler.finish() {
            Ok(assembled) => {
                for (reason, lost) in
                    [(Reason::Malformed, assembled.malformed), (Reason::LimitExceeded, assembled.excessive)]
                {
                    if lost > 0 {
                        intake.refused(reason, Quantities::observations(lost));
                    }
                }
                self.parts.delivery.send(assembled.profiles);
            }
            Err(invalid) => {
                let lost = batches.iter().map(|batch| batch.samples.len() as u64).sum();
                tracing::error!("{}: a batch of the sampler process is inconsistent: {invalid}", self.parts.id);
                intake.refused(Reason::LimitExceeded, Quantities::observations(lost));
            }
        }
    }

    /// Adds names that came too late, and debug files that could not be downloaded, to the metrics.
    pub(super) fn note_symbols(&mut self) {
        let Some(symbolizer) = &self.parts.symbolizer else { return };
        let Counters { late, debug_files_failed, .. } = symbolizer.counters();
        let counts = [("late_names", late), ("debug_files_failed", debug_files_failed)];
        for ((name, count), noted) in counts.into_iter().zip(&mut self.noted) {
            let more = count.saturating_sub(std::mem::replace(noted, count));
            if more > 0 {
                self.parts.intake.note(name, more);
            }
        }
    }
}
