//! Regular log lines: one per pipeline and minute if data passed through it, one per receiver if requests were refused,
//! and, while nothing arrives, a line about what profbridge waits for.

use std::time::Duration;

use profbridge_model::quantities::Number;
use profbridge_model::{Losses, Quantities, Reason};
use profbridge_net::Shutdown;
use tokio::time::{Instant, sleep_until};

use super::running::ListenAddress;
use crate::pipeline::{Chain, PipelineCounters};
use crate::telemetry::{EdgeTotals, ExporterTelemetry, ReceiverTelemetry};

/// The interval between two lines of a pipeline.
const INTERVAL: Duration = Duration::from_secs(60);

/// How long nothing must arrive before this is logged: for the first, the second and all further lines. The first line
/// comes early, for a person who has just started profbridge; later ones are for someone who looks at the log.
const SILENCES: [Duration; 3] = [Duration::from_secs(5), Duration::from_secs(600), Duration::from_secs(3600)];

/// A pipeline and its exporters.
#[derive(Debug)]
pub(super) struct ReportedPipeline {
    pub(super) counters: PipelineCounters,
    pub(super) exporters: Vec<ExporterTelemetry>,
}

/// The figures of a line, with which the next line is compared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct PipelineFigures {
    inbound: Quantities,
    outbound: Quantities,
    dropped: Losses,
    held: Quantities,
    /// For each exporter, the sent and the dropped quantities.
    exporters: Vec<(Quantities, Losses)>,
}

#[derive(Debug)]
pub(super) struct Reporter {
    pipelines: Vec<(ReportedPipeline, PipelineFigures)>,
    /// Each receiver with its request counts at the last line.
    receivers: Vec<(ReceiverTelemetry, [u64; 3])>,
    listening: Vec<ListenAddress>,
}

impl ReportedPipeline {
    fn figures(&self) -> PipelineFigures {
        let EdgeTotals { inbound, outbound, mut dropped, .. } = self.counters.edge.totals();
        let chain = Chain::totals(&self.counters.stages);
        dropped.merge(&chain.dropped);
        let exporters = self.exporters.iter().map(|exporter| exporter.edge().totals());
        let exporters = exporters.map(|totals| (totals.outbound, totals.dropped)).collect();
        PipelineFigures { inbound, outbound, dropped, held: chain.held.quantities, exporters }
    }

    /// Returns the line about changes; `None` if there are none.
    fn line(&self, before: &PipelineFigures, after: &PipelineFigures) -> Option<String> {
        let moved = after.inbound != before.inbound || after.outbound != before.outbound;
        if !moved && after.exporters == before.exporters && after.dropped == before.dropped {
            return None;
        }
        let moved = |before: Quantities, after: Quantities| Number(after.saturating_sub(before));
        let (inbound, outbound) = (moved(before.inbound, after.inbound), moved(before.outbound, after.outbound));
        let mut line = format!("{inbound} in, {outbound} out, {} held", Number(after.held));
        line.push_str(&lost(&before.dropped, &after.dropped));
        let none = (Quantities::NONE, Losses::default());
        for (position, exporter) in self.exporters.iter().enumerate() {
            let (sent_before, dropped_before) = before.exporters.get(position).unwrap_or(&none);
            let (sent, dropped) = after.exporters.get(position).unwrap_or(&none);
            line.push_str(&format!("; {}: {} sent", exporter.id(), moved(*sent_before, *sent)));
            line.push_str(&lost(dropped_before, dropped));
        }
        Some(line)
    }
}

/// Returns the line about requests refused between two times; `None` if there were none.
fn requests(before: [u64; 3], after: [u64; 3]) -> Option<String> {
    let [accepted, refused, failed] = [0, 1, 2].map(|outcome| after[outcome] - before[outcome]);
    (refused + failed > 0).then(|| format!("{accepted} requests taken, {refused} refused, {failed} failed"))
}

/// Losses between two times, by reason: `, dropped 3 resent`, or nothing.
fn lost(before: &Losses, after: &Losses) -> String {
    let mut losses = Losses::default();
    for &reason in Reason::ALL {
        losses.add(reason, after.get(reason).saturating_sub(before.get(reason)));
    }
    if losses.is_none() { String::new() } else { format!(", dropped {losses}") }
}

impl Reporter {
    pub(super) fn new(
        pipelines: Vec<ReportedPipeline>,
        receivers: Vec<ReceiverTelemetry>,
        listening: Vec<ListenAddress>,
    ) -> Self {
        let pipelines = pipelines.into_iter().map(|watched| (watched, PipelineFigures::default())).collect();
        let receivers = receivers.into_iter().map(|receiver| (receiver, [0; 3])).collect();
        Self { pipelines, receivers, listening }
    }

    /// Writes lines until `shutdown`. Wakes once a minute.
    pub(super) async fn run(mut self, mut shutdown: Shutdown) {
        let mut silence = SilenceTimer::new(Instant::now(), self.requests());
        let mut next_line = Instant::now() + INTERVAL;
        loop {
            let wake = next_line.min(silence.next);
            tokio::select! {
                () = shutdown.wait() => return,
                () = sleep_until(wake) => {}
            }
            let now = Instant::now();
            // A receiver that does not listen fetches its data, and itself logs if there is none.
            if silence.is_worth_a_line(now, self.requests()) && !self.listening.is_empty() {
                let addresses: Vec<String> = self.listening.iter().map(ListenAddress::to_string).collect();
                tracing::info!(
                    "nothing arrives; waiting for profiles at {}; to see something, run `profbridge demo`",
                    addresses.join(", ")
                );
            }
            if next_line <= now {
                next_line = now + INTERVAL;
                self.write_lines();
            }
        }
    }

    fn requests(&self) -> u64 {
        self.receivers.iter().flat_map(|(receiver, _)| receiver.requests()).sum()
    }

    fn write_lines(&mut self) {
        for (receiver, before) in &mut self.receivers {
            receiver.write_refusals();
            let after = receiver.requests();
            if let Some(line) = requests(*before, after) {
                tracing::info!(receiver = receiver.id(), "{line}");
            }
            *before = after;
        }
        for (watched, before) in &mut self.pipelines {
            let after = watched.figures();
            if let Some(line) = watched.line(before, &after) {
                tracing::info!(pipeline = %watched.counters.id, "{line}");
            }
            *before = after;
        }
    }
}

/// Decides when to log that nothing arrives.
#[derive(Debug)]
struct SilenceTimer {
    requests: u64,
    level: usize,
    /// When to check again.
    next: Instant,
}

impl SilenceTimer {
    fn new(now: Instant, requests: u64) -> Self {
        Self { requests, level: 0, next: now + SILENCES[0] }
    }

    /// Whether to log now that nothing arrives.
    fn is_worth_a_line(&mut self, now: Instant, requests: u64) -> bool {
        if now < self.next {
            return false;
        }
        let silent = requests == self.requests;
        self.requests = requests;
        self.level = (self.level + 1).min(SILENCES.len() - 1);
        self.next = now + SILENCES[self.level];
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::component::Held;
    use crate::telemetry::{ComponentKind, Metrics};

    /// Guarantees: a line contains the changes since the last one, by reason, and there is no line without changes.
    #[test]
    fn line_per_pipeline() {
        let metrics = Metrics::new(Budget::new(1));
        let stage = metrics.edge(ComponentKind::Processor, "chunk", "profiles");
        let edge = metrics.edge(ComponentKind::Pipeline, "profiles", "");
        let exporter = metrics.exporter("sentry");
        let counters = PipelineCounters::new("profiles".into(), edge.clone(), vec![stage.clone()]);
        let watched = ReportedPipeline { counters, exporters: vec![exporter.clone()] };
        edge.add_in(Quantities::observations(100));
        stage.drop(Reason::Resent, Quantities::observations(7));
        let before = watched.figures();
        assert_eq!(watched.line(&before, &before), None);
        edge.add_in(Quantities::observations(50));
        edge.add_out(Quantities::observations(40));
        stage.drop(Reason::Resent, Quantities::observations(3));
        stage.set_held(Held::observations(9, 1));
        exporter.edge().add_out(Quantities::observations(30));
        exporter.edge().drop(Reason::QueueFull, Quantities::observations(2));
        let line = watched.line(&before, &watched.figures());
        let expected = "50 in, 40 out, 9 held, dropped 3 resent; sentry: 30 sent, dropped 2 queue_full";
        assert_eq!(line.as_deref(), Some(expected));

        let before = watched.figures();
        edge.add_in(Quantities::items(1));
        exporter.edge().drop(Reason::Unroutable, Quantities::items(1));
        let line = watched.line(&before, &watched.figures());
        assert_eq!(line.as_deref(), Some("1 item in, 0 out, 9 held; sentry: 0 sent, dropped 1 item unroutable"));
    }

    /// Guarantees: a minute with refused requests has a line about them, and other minutes have none.
    #[test]
    fn refused_requests_are_logged() {
        assert_eq!(requests([1, 0, 0], [9, 0, 0]), None);
        let line = requests([1, 2, 3], [1, 118, 4]);
        assert_eq!(line.as_deref(), Some("0 requests taken, 116 refused, 1 failed"));
    }

    /// Guarantees: that nothing arrives is logged after 5 s, then after 10 minutes, then hourly, and not while requests
    /// arrive.
    #[test]
    fn silence() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut silence = SilenceTimer::new(start, 0);
        assert!(!silence.is_worth_a_line(at(4), 0));
        assert!(silence.is_worth_a_line(at(5), 0));
        assert!(!silence.is_worth_a_line(at(6), 0));
        assert!(silence.is_worth_a_line(at(605), 0));
        assert!(!silence.is_worth_a_line(at(605 + 3599), 0));
        assert!(!silence.is_worth_a_line(at(605 + 3600), 9), "something arrived");
        assert!(silence.is_worth_a_line(at(605 + 7200), 9));
    }
}
