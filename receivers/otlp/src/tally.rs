//! Counts each call once, however it ends.

use profbridge_engine::telemetry::TransportTelemetry;

use crate::call::Taken;
use crate::fault::Fault;

/// A call under way. One that is dropped unfinished, because its sender went away, has failed.
pub(crate) struct Tally<'a> {
    telemetry: Option<&'a TransportTelemetry>,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(telemetry: &'a TransportTelemetry) -> Self {
        Self { telemetry: Some(telemetry) }
    }

    /// Counts the call under its outcome.
    pub(crate) fn finish(mut self, outcome: &Result<Taken, Fault>) {
        let Some(telemetry) = self.telemetry.take() else { return };
        match outcome {
            Ok(taken) => {
                telemetry.accepted(taken.samples);
                telemetry.failed_partly(taken.refused_samples);
            }
            Err(fault) if fault.refused => telemetry.refused(fault.samples),
            Err(fault) => telemetry.failed(fault.samples),
        }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        if let Some(telemetry) = self.telemetry {
            telemetry.failed(0);
        }
    }
}
