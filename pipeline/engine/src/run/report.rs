//! What became of everything that was taken, for the end of a run.

use std::fmt;
use std::time::Duration;

use profbridge_model::quantities::Number;
use profbridge_model::{Losses, Quantities};

use crate::component::Held;
use crate::config;
use crate::pipeline::{Chain, Counters};
use crate::telemetry::{Edge, EdgeTotals, ExporterTelemetry, ReceiverTelemetry};

/// What became of everything that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// From the start to the beginning of the shutdown.
    pub ran: Duration,
    /// How long the shutdown took.
    pub stopped_in: Duration,
    /// The receivers.
    pub receivers: Vec<ReceiverReport>,
    /// The pipelines.
    pub pipelines: Vec<PipelineReport>,
    /// The exporters.
    pub exporters: Vec<ExporterReport>,
    /// Exporters that had nothing to do, and why.
    pub disabled: Vec<(String, String)>,
    /// Components that ended as they should not.
    pub failures: Vec<String>,
}

/// What a receiver took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverReport {
    /// Its id.
    pub id: String,
    /// Requests that the pipelines took.
    pub accepted: u64,
    /// Requests that the pipelines or the memory budget refused.
    pub refused: u64,
    /// Requests that failed in the receiver.
    pub failed: u64,
    /// What the pipelines took.
    pub quantities: Quantities,
}

/// What became of everything in a pipeline, up to its exporters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineReport {
    /// Its id.
    pub id: String,
    /// What was taken.
    pub inbound: Quantities,
    /// What a rule added.
    pub synthesized: Quantities,
    /// What was handed to the exporters.
    pub outbound: Quantities,
    /// What was lost in its processors and between them.
    pub dropped: Losses,
    /// What is held. Nothing, after an orderly end.
    pub held: Held,
    /// Its processors, in order.
    pub processors: Vec<ProcessorReport>,
}

/// What a processor did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorReport {
    /// Its id.
    pub id: String,
    /// Its counters.
    pub totals: EdgeTotals,
}

/// What an exporter did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExporterReport {
    /// Its id.
    pub id: String,
    /// Its counters; `outbound` is what was sent.
    pub totals: EdgeTotals,
    /// Requests sent.
    pub requests: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// The time for which the destination will send a bill.
    pub billed: Duration,
}

impl ReceiverReport {
    pub(super) fn new(telemetry: &ReceiverTelemetry, edge: &Edge) -> Self {
        let [accepted, refused, failed] = telemetry.requests();
        Self { id: telemetry.id().to_owned(), accepted, refused, failed, quantities: edge.totals().outbound }
    }
}

impl PipelineReport {
    pub(super) fn new(counters: &Counters) -> Self {
        let own = counters.edge.totals();
        let chain = Chain::totals(&counters.stages);
        let mut dropped = own.dropped;
        dropped.merge(&chain.dropped);
        let processors = counters.stages.iter();
        let processors =
            processors.map(|stage| ProcessorReport { id: stage.component().to_owned(), totals: stage.totals() });
        Self {
            id: counters.id.to_string(),
            inbound: own.inbound,
            synthesized: chain.synthesized,
            outbound: own.outbound,
            dropped,
            held: chain.held,
            processors: processors.collect(),
        }
    }

    /// By how much the law of conservation is broken: nothing, or there is a defect.
    pub fn unaccounted(&self) -> Quantities {
        let before = self.inbound + self.synthesized;
        before.abs_diff(self.outbound + self.dropped.total() + self.held.quantities)
    }
}

impl ExporterReport {
    pub(super) fn new(telemetry: &ExporterTelemetry) -> Self {
        Self {
            id: telemetry.id().to_owned(),
            totals: telemetry.edge().totals(),
            requests: telemetry.sent_requests(),
            bytes: telemetry.sent_bytes(),
            billed: telemetry.billed(),
        }
    }

    /// By how much the law of conservation is broken: nothing, or there is a defect.
    pub fn unaccounted(&self) -> Quantities {
        let EdgeTotals { inbound, outbound, synthesized, ref dropped, held, .. } = self.totals;
        (inbound + synthesized).abs_diff(outbound + dropped.total() + held.quantities)
    }
}

impl Report {
    /// Whether something was taken and nothing of it was sent.
    pub fn has_lost_everything(&self) -> bool {
        let taken: Quantities = self.receivers.iter().map(|receiver| receiver.quantities).sum();
        let sent: Quantities = self.exporters.iter().map(|exporter| exporter.totals.outbound).sum();
        !taken.is_none() && sent.is_none()
    }

    /// Whether every component ended as it should.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }

    /// What was lost in pipelines and exporters together, by reason. What goes to two exporters and is lost in both
    /// counts twice.
    pub fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        let pipelines = self.pipelines.iter().map(|pipeline| &pipeline.dropped);
        pipelines
            .chain(self.exporters.iter().map(|exporter| &exporter.totals.dropped))
            .for_each(|own| losses.merge(own));
        losses
    }

    /// By how much the law of conservation is broken over all components: nothing, or there is a defect.
    pub fn unaccounted(&self) -> Quantities {
        let pipelines: Quantities = self.pipelines.iter().map(PipelineReport::unaccounted).sum();
        let exporters: Quantities = self.exporters.iter().map(ExporterReport::unaccounted).sum();
        pipelines + exporters
    }
}

/// Whole seconds, or milliseconds below one.
fn rounded(duration: Duration) -> config::Duration {
    if duration < Duration::from_secs(1) {
        return config::Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    }
    config::Duration::from_secs(duration.as_secs())
}

/// `, dropped 12 resent, 3 lone_sample`, or nothing.
struct Dropped<'a>(&'a Losses);

impl fmt::Display for Dropped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_none() { Ok(()) } else { write!(f, ", dropped {}", self.0) }
    }
}

/// `, 12 WHAT`, or nothing.
fn unless_none(f: &mut fmt::Formatter<'_>, count: u64, what: &str) -> fmt::Result {
    if count == 0 { Ok(()) } else { write!(f, ", {count} {what}") }
}

/// `, 12 WHAT`, or nothing.
fn number_unless_none(f: &mut fmt::Formatter<'_>, quantities: Quantities, what: &str) -> fmt::Result {
    if quantities.is_none() { Ok(()) } else { write!(f, ", {} {what}", Number(quantities)) }
}

impl fmt::Display for Report {
    /// One line for each component, counts in observations where no unit is named, and one for each reason of loss that
    /// says what it means.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ran for {}, stopped in {}", rounded(self.ran), rounded(self.stopped_in))?;
        for receiver in &self.receivers {
            let ReceiverReport { id, accepted, refused, failed, quantities } = receiver;
            let unit = if quantities.is_observations_only() { " observations" } else { "" };
            write!(f, "\nreceiver {id}: {}{unit} in {accepted} requests", Number(*quantities))?;
            unless_none(f, *refused, "requests refused")?;
            unless_none(f, *failed, "requests failed")?;
        }
        for pipeline in &self.pipelines {
            let PipelineReport { id, inbound, synthesized, outbound, dropped, held, processors } = pipeline;
            write!(f, "\npipeline {id}: {} in", Number(*inbound))?;
            number_unless_none(f, *synthesized, "synthesized")?;
            write!(f, ", {} out{}", Number(*outbound), Dropped(dropped))?;
            number_unless_none(f, held.quantities, "held")?;
            number_unless_none(f, pipeline.unaccounted(), "unaccounted")?;
            for processor in processors.iter().filter(|processor| !processor.totals.dropped.is_none()) {
                let EdgeTotals { inbound, outbound, dropped, .. } = &processor.totals;
                let (inbound, outbound) = (Number(*inbound), Number(*outbound));
                write!(f, "\n  {}: {inbound} in, {outbound} out{}", processor.id, Dropped(dropped))?;
            }
        }
        for exporter in &self.exporters {
            let ExporterReport { id, totals, requests, bytes, billed } = exporter;
            let EdgeTotals { inbound, outbound, synthesized, dropped, held, .. } = totals;
            write!(f, "\nexporter {id}: {} in", Number(*inbound))?;
            number_unless_none(f, *synthesized, "synthesized")?;
            let outbound = Number(*outbound);
            write!(f, ", {outbound} sent in {requests} requests ({bytes} bytes){}", Dropped(dropped))?;
            number_unless_none(f, held.quantities, "held")?;
            number_unless_none(f, exporter.unaccounted(), "unaccounted")?;
            unless_none(f, billed.as_secs(), "seconds will be billed")?;
        }
        for (id, why) in &self.disabled {
            write!(f, "\nexporter {id}: switched off: {why}")?;
        }
        for failure in &self.failures {
            write!(f, "\nfailed: {failure}")?;
        }
        for explanation in self.losses().explanations() {
            write!(f, "\n{explanation}")?;
        }
        Ok(())
    }
}
