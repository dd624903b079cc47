//! Counts each call once, however it ends.

use std::net::IpAddr;

use profbridge_engine::telemetry::{ItemCounts, TransportTelemetry};

use crate::call::Taken;
use crate::fault::{Fault, Kind};

/// A call under way. One that is dropped unfinished, because its sender went away, has failed.
pub(crate) struct Tally<'a> {
    telemetry: Option<&'a TransportTelemetry>,
    peer: Option<IpAddr>,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(telemetry: &'a TransportTelemetry, peer: Option<IpAddr>) -> Self {
        Self { telemetry: Some(telemetry), peer }
    }

    /// Counts the call under its outcome, and says in the log why it failed.
    pub(crate) fn finish(mut self, outcome: &Result<Taken, Fault>) {
        let Some(telemetry) = self.telemetry.take() else { return };
        let fault = match outcome {
            Ok(taken) => {
                telemetry.accepted(taken.items);
                return telemetry.failed_partly(taken.refused_items);
            }
            Err(fault) => fault,
        };
        match fault.refused {
            Some(_) => telemetry.refused(fault.items),
            None => telemetry.failed(fault.items),
        }
        telemetry.not_taken(fault.refusal(self.peer));
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        if let Some(telemetry) = self.telemetry {
            telemetry.failed(ItemCounts::NONE);
            telemetry.not_taken(Fault::new(Kind::Aborted, "the sender went away").refusal(self.peer));
        }
    }
}
