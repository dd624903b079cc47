//! The final report of a run: what happened to all accepted data.

use std::fmt;
use std::time::Duration;

use profbridge_model::quantities::Number;
use profbridge_model::{Losses, Quantities};

use crate::component::Held;
use crate::config;
use crate::pipeline::{Chain, PipelineCounters};
use crate::telemetry::{Edge, EdgeTotals, ExporterTelemetry, ExporterTotals, ReceiverTelemetry};

/// What happened to all accepted data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunReport {
    /// The time from the start to the beginning of the shutdown.
    pub ran: Duration,
    /// How long the shutdown took.
    pub stopped_in: Duration,
    /// The receivers.
    pub receivers: Vec<ReceiverReport>,
    /// The pipelines.
    pub pipelines: Vec<PipelineReport>,
    /// The exporters.
    pub exporters: Vec<ExporterReport>,
    /// The disabled exporters, each with the reason.
    pub disabled: Vec<(String, String)>,
    /// Components that ended unexpectedly.
    pub failures: Vec<String>,
}

/// The requests of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverReport {
    /// The receiver's id.
    pub id: String,
    /// Requests that the pipelines accepted.
    pub accepted: u64,
    /// Requests that the pipelines or the memory budget refused.
    pub refused: u64,
    /// Requests that failed in the receiver.
    pub failed: u64,
    /// The data that the pipelines accepted.
    pub quantities: Quantities,
}

/// What happened to all data in a pipeline, before its exporters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineReport {
    /// The pipeline's id.
    pub id: String,
    /// Data that was accepted.
    pub inbound: Quantities,
    /// Data that processors added by a rule.
    pub synthesized: Quantities,
    /// Data that was handed to the exporters.
    pub outbound: Quantities,
    /// Data that was lost in the processors and between them.
    pub dropped: Losses,
    /// Data that is still held: none after an orderly shutdown.
    pub held: Held,
    /// The pipeline's processors, in order.
    pub processors: Vec<ProcessorReport>,
}

/// The counters of a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorReport {
    /// The processor's id.
    pub id: String,
    /// The processor's counters.
    pub totals: EdgeTotals,
}

/// The counters of an exporter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExporterReport {
    /// The exporter's id.
    pub id: String,
    /// The exporter's counters; `outbound` is the data sent.
    pub totals: EdgeTotals,
    /// Requests sent.
    pub requests: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// The time that the destination will bill.
    pub billed: Duration,
}

impl ReceiverReport {
    pub(super) fn new(telemetry: &ReceiverTelemetry, edge: &Edge) -> Self {
        let [accepted, refused, failed] = telemetry.requests();
        Self { id: telemetry.id().to_owned(), accepted, refused, failed, quantities: edge.totals().outbound }
    }
}

impl PipelineReport {
    pub(super) fn new(counters: &PipelineCounters) -> Self {
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

    /// The violation of the conservation law; anything but zero is a bug.
    pub fn unaccounted(&self) -> Quantities {
        let before = self.inbound + self.synthesized;
        before.abs_diff(self.outbound + self.dropped.total() + self.held.quantities)
    }
}

impl ExporterReport {
    pub(super) fn new(telemetry: &ExporterTelemetry) -> Self {
        let ExporterTotals { requests, bytes, billed, .. } = telemetry.totals();
        Self { id: telemetry.id().to_owned(), totals: telemetry.edge().totals(), requests, bytes, billed }
    }

    /// The violation of the conservation law; anything but zero is a bug.
    pub fn unaccounted(&self) -> Quantities {
        let EdgeTotals { inbound, outbound, synthesized, ref dropped, held, .. } = self.totals;
        (inbound + synthesized).abs_diff(outbound + dropped.total() + held.quantities)
    }
}

impl RunReport {
    /// Names an exporter that got data and sent none, or "every exporter" if data was received and none was sent. Data
    /// that the configuration excludes on purpose, and data written to disk, does not count as unsent.
    pub fn unserved(&self) -> Option<String> {
        let is_missing = |lost: &Losses| lost.iter().any(|loss| !loss.reason.is_intended());
        let none = self.exporters.iter().find(|exporter| {
            let EdgeTotals { inbound, outbound, dropped, .. } = &exporter.totals;
            !inbound.is_none() && outbound.is_none() && is_missing(dropped)
        });
        if let Some(exporter) = none {
            return Some(format!("exporter {}", exporter.id));
        }
        let taken: Quantities = self.receivers.iter().map(|receiver| receiver.quantities).sum();
        let sent: Quantities = self.exporters.iter().map(|exporter| exporter.totals.outbound).sum();
        (!taken.is_none() && sent.is_none() && is_missing(&self.losses())).then(|| "every exporter".to_owned())
    }

    /// Whether every component ended normally.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }

    /// The losses in pipelines and exporters together, by reason. Data that two exporters lost counts twice.
    pub fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        let pipelines = self.pipelines.iter().map(|pipeline| &pipeline.dropped);
        pipelines
            .chain(self.exporters.iter().map(|exporter| &exporter.totals.dropped))
            .for_each(|own| losses.merge(own));
        losses
    }

    /// The violation of the conservation law over all components; anything but zero is a bug.
    pub fn unaccounted(&self) -> Quantities {
        let pipelines: Quantities = self.pipelines.iter().map(PipelineReport::unaccounted).sum();
        let exporters: Quantities = self.exporters.iter().map(ExporterReport::unaccounted).sum();
        pipelines + exporters
    }
}

/// Whole seconds, or milliseconds if below one second.
fn rounded(duration: Duration) -> config::Duration {
    if duration < Duration::from_secs(1) {
        return config::Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    }
    config::Duration::from_secs(duration.as_secs())
}

/// Formats losses: `, dropped 12 resent, 3 lone_sample`, or nothing.
struct Dropped<'a>(&'a Losses);

impl fmt::Display for Dropped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_none() { Ok(()) } else { write!(f, ", dropped {}", self.0) }
    }
}

/// Formats a count: `, 12 WHAT`, or nothing.
fn unless_none(f: &mut fmt::Formatter<'_>, count: u64, what: &str) -> fmt::Result {
    if count == 0 { Ok(()) } else { write!(f, ", {count} {what}") }
}

/// Formats quantities: `, 12 WHAT`, or nothing.
fn number_unless_none(f: &mut fmt::Formatter<'_>, quantities: Quantities, what: &str) -> fmt::Result {
    if quantities.is_none() { Ok(()) } else { write!(f, ", {} {what}", Number(quantities)) }
}

impl fmt::Display for RunReport {
    /// Writes one line per component, with counts in observations unless a unit is named, and with the losses and notes
    /// of its processors; and one line per reason of loss that explains it.
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
            for ProcessorReport { id, totals } in processors {
                let EdgeTotals { inbound, outbound, dropped, notes, .. } = totals;
                let (inbound, outbound) = (Number(*inbound), Number(*outbound));
                if !dropped.is_none() {
                    write!(f, "\n  {id}: {inbound} in, {outbound} out{}", Dropped(dropped))?;
                }
                for (position, (note, count)) in notes.iter().enumerate() {
                    let before = if position == 0 { format!("\n  {id} noted ") } else { ", ".to_owned() };
                    write!(f, "{before}{count} {note}")?;
                }
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

#[cfg(test)]
mod tests {
    use profbridge_model::Reason;

    use super::*;

    /// Guarantees: a report has a line for each component with everything that happened to its data, and one for each
    /// reason of loss and each failure.
    #[test]
    fn everything() {
        let lost = |reason, observations| {
            let mut losses = Losses::default();
            losses.add_observations(reason, observations);
            losses
        };
        let totals = |inbound: Quantities, outbound: u64, dropped| EdgeTotals {
            inbound,
            outbound: Quantities::observations(outbound),
            dropped,
            ..EdgeTotals::default()
        };
        let observations = Quantities::observations;
        let mixed = observations(90) + Quantities::items(2);
        let processor = |id: &str, totals| ProcessorReport { id: id.to_owned(), totals };
        let exporter = |id: &str, totals, seconds| ExporterReport {
            id: id.to_owned(),
            totals,
            requests: 3,
            bytes: 4567,
            billed: Duration::from_secs(seconds),
        };
        let report = RunReport {
            ran: Duration::from_millis(83_456),
            stopped_in: Duration::from_millis(120),
            receivers: vec![ReceiverReport {
                id: "otlp".into(),
                accepted: 7,
                refused: 2,
                failed: 1,
                quantities: mixed,
            }],
            pipelines: vec![PipelineReport {
                id: "profiles".to_owned(),
                inbound: mixed,
                synthesized: observations(4),
                outbound: observations(80) + Quantities::items(2),
                dropped: lost(Reason::Resent, 10),
                held: Held::observations(3, 100),
                processors: vec![
                    processor("dedup", totals(mixed, 80, lost(Reason::Resent, 10))),
                    processor(
                        "chunk",
                        EdgeTotals {
                            notes: vec![("weak_identity", 2), ("time_skew", 1)],
                            ..totals(observations(80), 84, Losses::default())
                        },
                    ),
                ],
            }],
            exporters: vec![
                exporter("sentry", totals(observations(80), 75, lost(Reason::RateLimited, 5)), 60),
                exporter("debug", totals(observations(80), 80, Losses::default()), 0),
            ],
            disabled: vec![("sentry/off".to_owned(), "no DSN is set".to_owned())],
            failures: vec!["receivers/otlp: it ended unasked".to_owned()],
        };
        insta::assert_snapshot!(report, @"
        ran for 1m23s, stopped in 120ms
        receiver otlp: 90 observations, 2 items in 7 requests, 2 requests refused, 1 requests failed
        pipeline profiles: 90 observations, 2 items in, 4 synthesized, 80 observations, 2 items out, dropped 10 resent, 3 held, 1 unaccounted
          dedup: 90 observations, 2 items in, 80 out, dropped 10 resent
          chunk noted 2 weak_identity, 1 time_skew
        exporter sentry: 80 in, 75 sent in 3 requests (4567 bytes), dropped 5 rate_limited, 60 seconds will be billed
        exporter debug: 80 in, 80 sent in 3 requests (4567 bytes)
        exporter sentry/off: switched off: no DSN is set
        failed: receivers/otlp: it ended unasked
        10 observations dropped as resent: an equal profile with an equal time had come before, as after a retry; nothing is missing. To keep both, set `resends: keep` on the processor `dedup`
        5 observations dropped as rate_limited: the destination said that its quota is used up; see the quota and the spike protection of the project in Sentry
        ");
    }
}
