//! Writes the metrics page from the counters.
//!
//! Metrics that the Collector has carry exactly its names. Those of profbridge's own counters end in `_total`, as
//! Prometheus advises.

use std::time::Duration;

use profbridge_model::{Quantities, Unit};
use profbridge_net::server::StatsSnapshot;

use super::edge::{ComponentKind, Edge, EdgeTotals};
use super::exporter::{ExporterTelemetry, ExporterTotals};
use super::item_counts::ItemCounts;
use super::page::Page;
use super::process::Usage;
use super::producers::Producer;
use super::receiver::{ReceiverTelemetry, RequestOutcome, TransportTelemetry};
use crate::budget::Budget;

/// The counters that go into one page.
pub(super) struct Collector<'a> {
    pub(super) edges: Vec<Edge>,
    pub(super) receivers: Vec<ReceiverTelemetry>,
    pub(super) exporters: Vec<ExporterTelemetry>,
    pub(super) budget: &'a Budget,
    pub(super) uptime: Duration,
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// The counters of one edge, with its labels.
struct LabelledEdge<'a> {
    kind: ComponentKind,
    labels: Labels<'a>,
    totals: EdgeTotals,
}

/// A metric that exists for each [`Unit`]. `{unit}` in its name stands for the unit, and the unit begins its
/// description.
struct PerUnit {
    name: &'static str,
    help: &'static str,
    is_gauge: bool,
    /// Whether a kind of component has the metric.
    of: fn(ComponentKind) -> bool,
    read: CounterSeries,
}

enum CounterSeries {
    /// One series per component.
    One(fn(&EdgeTotals) -> Quantities),
    /// One series per component and reason of loss.
    Losses,
}

/// The counters of every component, in the order of the page.
const COUNTERS: [PerUnit; 5] = [
    PerUnit {
        name: "profbridge_{unit}_in_total",
        help: "handed to a component",
        is_gauge: false,
        of: |_| true,
        read: CounterSeries::One(|totals| totals.inbound),
    },
    PerUnit {
        name: "profbridge_{unit}_out_total",
        help: "a component handed on",
        is_gauge: false,
        of: |_| true,
        read: CounterSeries::One(|totals| totals.outbound),
    },
    PerUnit {
        name: "profbridge_synthesized_{unit}_total",
        help: "that a rule added",
        is_gauge: false,
        of: holds,
        read: CounterSeries::One(|totals| totals.synthesized),
    },
    PerUnit {
        name: "profbridge_unaccounted_{unit}_total",
        help: "a component lost without counting them",
        is_gauge: false,
        of: holds,
        read: CounterSeries::One(|totals| totals.unaccounted),
    },
    PerUnit {
        name: "profbridge_dropped_{unit}_total",
        help: "lost, by reason",
        is_gauge: false,
        of: |_| true,
        read: CounterSeries::Losses,
    },
];

/// The metric of held data. On the page it follows the notes.
const HELD: PerUnit = PerUnit {
    name: "profbridge_held_{unit}",
    help: "a component holds",
    is_gauge: true,
    of: holds,
    read: CounterSeries::One(|totals| totals.held.quantities),
};

impl PerUnit {
    /// Writes the metric of each unit. The metric of observations always lists all components; those of other units
    /// only list components that have counted any.
    fn put(&self, out: &mut Page, edges: &[LabelledEdge<'_>]) {
        for unit in Unit::ALL {
            let always = unit == Unit::Observations;
            let mut series = Vec::new();
            for LabelledEdge { labels, totals, .. } in edges.iter().filter(|edge| (self.of)(edge.kind)) {
                match self.read {
                    CounterSeries::One(read) if always || has_counted(totals, unit) => {
                        series.push((labels.clone(), read(totals).get(unit)));
                    }
                    CounterSeries::One(_) => {}
                    CounterSeries::Losses => {
                        for loss in totals.dropped.iter().filter(|loss| loss.quantities.get(unit) > 0) {
                            series.push((with(labels, "reason", loss.reason.as_str()), loss.quantities.get(unit)));
                        }
                    }
                }
            }
            if series.is_empty() && !always {
                continue;
            }
            let name = self.name.replace("{unit}", unit.as_str());
            let help = format!("{} {}", unit.title(), self.help);
            let mut family = if self.is_gauge { out.gauge(&name, &help) } else { out.counter(&name, &help) };
            for (labels, value) in series {
                family.put(&labels, value);
            }
        }
    }
}

/// Whether a component has ever counted a unit. A series that has started stays on the page, because its rate could not
/// be computed otherwise.
fn has_counted(totals: &EdgeTotals, unit: Unit) -> bool {
    let EdgeTotals { inbound, outbound, synthesized, dropped, held, unaccounted, .. } = totals;
    let all = [*inbound, *outbound, *synthesized, dropped.total(), held.quantities, *unaccounted];
    all.iter().any(|quantities| quantities.get(unit) > 0)
}

/// A metric of each exporter: its name, description, and formatted value.
type ExporterMetric = (&'static str, &'static str, fn(&ExporterTotals) -> String);

const EXPORTER_METRICS: [ExporterMetric; 9] = [
    ("profbridge_exporter_attempts_total", "Attempts to send that have ended", |of| of.attempts.to_string()),
    ("profbridge_exporter_sent_requests_total", "Requests sent", |of| of.requests.to_string()),
    ("profbridge_exporter_sent_bytes_total", "Bytes of the bodies sent", |of| of.bytes.to_string()),
    ("profbridge_exporter_retries_total", "Attempts beside the first", |of| of.retries.to_string()),
    ("profbridge_exporter_attempt_seconds_total", "Seconds that these attempts took", |of| {
        of.attempt_time.as_secs_f64().to_string()
    }),
    ("profbridge_billed_seconds_total", "Seconds for which the destination will send a bill", |of| {
        of.billed.as_secs_f64().to_string()
    }),
    ("otelcol_exporter_queue_size", "What the queue holds, in the unit of its sizer", |of| of.queue.size.to_string()),
    ("otelcol_exporter_queue_capacity", "What the queue may hold, in the same unit", |of| {
        of.queue.capacity.to_string()
    }),
    ("otelcol_exporter_in_flight_requests", "Requests being sent", |of| of.queue.in_flight.to_string()),
];

fn connections(out: &mut Page, transports: &[(Labels<'_>, TransportTelemetry)]) {
    type StatsReader = fn(StatsSnapshot) -> u64;
    let ends: [(&str, StatsReader); 6] = [
        ("served", |stats| stats.opened),
        ("refused", |stats| stats.refused),
        ("handshake_failed", |stats| stats.handshakes_failed),
        ("wrong_protocol", |stats| stats.wrong_protocol),
        ("timed_out", |stats| stats.timed_out),
        ("accept_failed", |stats| stats.accepts_failed),
    ];
    let help = "Connections, by what became of them; one that was served may also have timed out";
    let mut family = out.counter("profbridge_receiver_connections_total", help);
    for (labels, transport) in transports {
        let stats = transport.connections().snapshot();
        for (outcome, read) in ends {
            family.put(&with(labels, "outcome", outcome), read(stats));
        }
    }
    let mut family = out.gauge("profbridge_receiver_open_connections", "Connections that are open");
    for (labels, transport) in transports {
        family.put(labels, transport.connections().snapshot().open);
    }
}

impl Collector<'_> {
    /// The page with all metrics.
    pub(super) fn page(&self) -> String {
        let mut page = Page::default();
        self.receivers(&mut page);
        self.exporters(&mut page);
        self.edges(&mut page);
        self.process(&mut page);
        page.finish()
    }

    fn receivers(&self, out: &mut Page) {
        let transports = self.receivers.iter().flat_map(|receiver| {
            let labels =
                |transport: &TransportTelemetry| vec![("receiver", receiver.id()), ("transport", transport.name())];
            receiver.transports().into_iter().map(move |transport| (labels(&transport), transport))
        });
        let transports: Vec<(Labels<'_>, TransportTelemetry)> = transports.collect();
        let metrics = [
            ("accepted", "the pipelines took", RequestOutcome::Success),
            ("refused", "the pipelines refused", RequestOutcome::Refused),
            ("failed", "that failed in the receiver", RequestOutcome::Failure),
        ];
        for (signal, noun, read) in ItemCounts::ITEMS {
            for (what, help, outcome) in metrics {
                let name = format!("otelcol_receiver_{what}_{signal}");
                let mut family = out.counter(&name, &format!("{noun} {help}"));
                for (labels, transport) in &transports {
                    family.put(labels, read(transport.counted(outcome).0));
                }
            }
        }
        let mut family = out.counter("otelcol_receiver_requests", "Requests by their outcome");
        for (labels, transport) in &transports {
            for outcome in RequestOutcome::ALL {
                family.put(&with(labels, "outcome", outcome.as_str()), transport.counted(outcome).1);
            }
        }
        let help = "Requests by what sent them: the layout, and the name and version of the scope";
        let mut family = out.counter("profbridge_receiver_producer_requests_total", help);
        for receiver in &self.receivers {
            for (Producer { format, name, version }, count) in receiver.producers() {
                let labels =
                    [("receiver", receiver.id()), ("layout", format), ("producer", &name), ("version", &version)];
                family.put(&labels, count);
            }
        }
        connections(out, &transports);
    }

    fn exporters(&self, out: &mut Page) {
        let exporters: Vec<(Labels<'_>, ExporterTotals)> =
            self.exporters.iter().map(|exporter| (vec![("exporter", exporter.id())], exporter.totals())).collect();
        type Items = fn(&ExporterTotals) -> ItemCounts;
        let items: [(&str, &str, Items); 3] = [
            ("sent", "sent", |totals| totals.sent),
            ("send_failed", "that could not be sent for good", |totals| totals.send_failed),
            ("enqueue_failed", "for which there was no room in the queue", |totals| totals.enqueue_failed),
        ];
        for (signal, noun, of) in ItemCounts::ITEMS {
            for (what, help, read) in items {
                let name = format!("otelcol_exporter_{what}_{signal}");
                let mut family = out.counter(&name, &format!("{noun} {help}"));
                exporters.iter().for_each(|(labels, totals)| family.put(labels, of(read(totals))));
            }
        }
        for (name, help, read) in EXPORTER_METRICS {
            // The Collector's metrics in this table are gauges, profbridge's own are counters.
            let is_gauge = name.starts_with("otelcol_");
            let mut family = if is_gauge { out.gauge(name, help) } else { out.counter(name, help) };
            exporters.iter().for_each(|(labels, totals)| family.put(labels, read(totals)));
        }
    }

    fn edges(&self, out: &mut Page) {
        let edges: Vec<LabelledEdge<'_>> = self
            .edges
            .iter()
            .map(|edge| LabelledEdge { kind: edge.kind(), labels: labels(edge), totals: edge.totals() })
            .collect();
        for family in &COUNTERS {
            family.put(out, &edges);
        }
        let mut notes = out.counter("profbridge_notes_total", "Things worth counting that are no loss");
        for LabelledEdge { labels, totals, .. } in &edges {
            for &(note, count) in &totals.notes {
                notes.put(&with(labels, "note", note), count);
            }
        }
        let mut levels = out.gauge("profbridge_levels", "Things worth knowing that rise and fall");
        for LabelledEdge { labels, totals, .. } in &edges {
            for &(name, level) in &totals.levels {
                levels.put(&with(labels, "level", name), level);
            }
        }
        HELD.put(out, &edges);
        let mut bytes = out.gauge("profbridge_held_bytes", "Bytes a component holds");
        for LabelledEdge { labels, totals, .. } in edges.iter().filter(|edge| holds(edge.kind)) {
            bytes.put(labels, totals.held.bytes);
        }
    }

    fn process(&self, out: &mut Page) {
        let none = Vec::new();
        let budget = self.budget;
        out.gauge("profbridge_memory_used_bytes", "Bytes of data in flight, in windows and queues")
            .put(&none, budget.used());
        out.gauge("profbridge_memory_limit_bytes", "Bytes that data may take").put(&none, budget.limit());
        out.counter("otelcol_process_uptime", "Seconds since the start").put(&none, self.uptime.as_secs_f64());
        if let Some(usage) = Usage::read() {
            out.counter("otelcol_process_cpu_seconds", "User and system time of the process")
                .put(&none, usage.cpu_seconds);
            out.gauge("otelcol_process_memory_rss", "Resident memory of the process in bytes")
                .put(&none, usage.rss_bytes);
        }
    }
}

fn holds(kind: ComponentKind) -> bool {
    matches!(kind, ComponentKind::Processor | ComponentKind::Exporter)
}

fn labels(edge: &Edge) -> Labels<'_> {
    let mut labels = vec![("component", edge.component()), ("kind", edge.kind().as_str())];
    if !edge.pipeline().is_empty() {
        labels.push(("pipeline", edge.pipeline()));
    }
    labels
}

fn with<'a>(labels: &Labels<'a>, key: &'static str, value: &'a str) -> Labels<'a> {
    let mut labels = labels.clone();
    labels.push((key, value));
    labels
}
