//! Puts the counters on the page, one metric after the other.
//!
//! What has the Collector's name has it to the letter. Counters of our own end in `_total`, as Prometheus advises.

use std::sync::{Arc, PoisonError};

use profbridge_net::server::StatsSnapshot;

use super::page::Page;
use super::process::Usage;
use super::receiver::Outcome;
use super::{All, Edge, EdgeTotals, ExporterTelemetry, Kind, ReceiverTelemetry};

/// Reads the counters when somebody asks.
#[derive(Debug)]
pub(super) struct Collector(pub(super) Arc<All>);

type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Collector {
    /// The page with all of them.
    pub(super) fn page(&self) -> String {
        let mut page = Page::default();
        self.receivers(&mut page);
        self.exporters(&mut page);
        self.edges(&mut page);
        self.process(&mut page);
        page.finish()
    }

    fn receivers(&self, out: &mut Page) {
        let receivers = self.0.receivers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let metrics = [
            ("otelcol_receiver_accepted_profile_samples", "Samples the pipelines took", Outcome::Success),
            ("otelcol_receiver_refused_profile_samples", "Samples the pipelines refused", Outcome::Refused),
            ("otelcol_receiver_failed_profile_samples", "Samples that failed in the receiver", Outcome::Failure),
        ];
        for (name, help, outcome) in metrics {
            let mut family = out.counter(name, help);
            for receiver in &receivers {
                for transport in receiver.transports() {
                    let labels = vec![("receiver", receiver.id()), ("transport", transport.name())];
                    family.put(&labels, transport.samples(outcome));
                }
            }
        }
        let mut family = out.counter("otelcol_receiver_requests", "Requests by their outcome");
        for receiver in &receivers {
            for transport in receiver.transports() {
                for outcome in Outcome::ALL {
                    let labels = vec![
                        ("receiver", receiver.id()),
                        ("transport", transport.name()),
                        ("outcome", outcome.as_str()),
                    ];
                    family.put(&labels, transport.requests(outcome));
                }
            }
        }
        self.connections(out, &receivers);
    }

    fn connections(&self, out: &mut Page, receivers: &[ReceiverTelemetry]) {
        type Read = fn(StatsSnapshot) -> u64;
        let ends: [(&str, Read); 5] = [
            ("served", |stats| stats.opened),
            ("refused", |stats| stats.refused),
            ("handshake_failed", |stats| stats.handshakes_failed),
            ("timed_out", |stats| stats.timed_out),
            ("accept_failed", |stats| stats.accepts_failed),
        ];
        let help = "Connections, by what became of them; one that was served may also have timed out";
        let mut family = out.counter("profbridge_receiver_connections_total", help);
        for receiver in receivers {
            for transport in receiver.transports() {
                let stats = transport.connections().snapshot();
                for (outcome, read) in ends {
                    let labels =
                        vec![("receiver", receiver.id()), ("transport", transport.name()), ("outcome", outcome)];
                    family.put(&labels, read(stats));
                }
            }
        }
        let mut family = out.gauge("profbridge_receiver_open_connections", "Connections that are open");
        for receiver in receivers {
            for transport in receiver.transports() {
                let labels = vec![("receiver", receiver.id()), ("transport", transport.name())];
                family.put(&labels, transport.connections().snapshot().open);
            }
        }
    }

    fn exporters(&self, out: &mut Page) {
        type Read = fn(&ExporterTelemetry) -> u64;
        let exporters = self.0.exporters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let counters: [(&str, &str, Read); 6] = [
            ("otelcol_exporter_sent_profile_samples", "Samples sent", ExporterTelemetry::sent_samples),
            (
                "otelcol_exporter_send_failed_profile_samples",
                "Samples that could not be sent for good",
                ExporterTelemetry::send_failed_samples,
            ),
            (
                "otelcol_exporter_enqueue_failed_profile_samples",
                "Samples for which there was no room in the queue",
                ExporterTelemetry::enqueue_failed_samples,
            ),
            ("profbridge_exporter_sent_requests_total", "Requests sent", ExporterTelemetry::sent_requests),
            ("profbridge_exporter_sent_bytes_total", "Bytes of the bodies sent", ExporterTelemetry::sent_bytes),
            ("profbridge_exporter_retries_total", "Attempts beside the first", ExporterTelemetry::retries),
        ];
        for (name, help, read) in counters {
            let mut family = out.counter(name, help);
            for exporter in &exporters {
                family.put(&[("exporter", exporter.id())], read(exporter));
            }
        }
        let mut billed =
            out.counter("profbridge_billed_seconds_total", "Seconds for which the destination will send a bill");
        for exporter in &exporters {
            billed.put(&[("exporter", exporter.id())], exporter.billed().as_secs_f64());
        }
        let gauges: [(&str, &str, Read); 3] = [
            ("otelcol_exporter_queue_size", "What the queue holds, in the unit of its sizer", |e| e.queue().size),
            ("otelcol_exporter_queue_capacity", "What the queue may hold, in the same unit", |e| e.queue().capacity),
            ("otelcol_exporter_in_flight_requests", "Requests being sent", |e| e.queue().in_flight),
        ];
        for (name, help, read) in gauges {
            let mut family = out.gauge(name, help);
            for exporter in &exporters {
                family.put(&[("exporter", exporter.id())], read(exporter));
            }
        }
    }

    fn edges(&self, out: &mut Page) {
        type Read = fn(&EdgeTotals) -> u64;
        let edges = self.0.edges.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let edges: Vec<(Kind, Labels<'_>, EdgeTotals)> =
            edges.iter().map(|edge| (edge.kind(), labels(edge), edge.totals())).collect();
        let passing: [(&str, &str, Read); 2] = [
            ("profbridge_observations_in_total", "Observations handed to a component", |t| t.inbound),
            ("profbridge_observations_out_total", "Observations a component handed on", |t| t.outbound),
        ];
        // Receivers and pipelines as a whole neither add nor hold anything themselves.
        let holding: [(&str, &str, Read); 2] = [
            ("profbridge_synthesized_observations_total", "Observations that a rule added", |t| t.synthesized),
            ("profbridge_unaccounted_observations_total", "Observations a component lost without a word", |t| {
                t.unaccounted
            }),
        ];
        for (name, help, read) in passing {
            let mut family = out.counter(name, help);
            for (_, labels, totals) in &edges {
                family.put(labels, read(totals));
            }
        }
        for (name, help, read) in holding {
            let mut family = out.counter(name, help);
            for (_, labels, totals) in edges.iter().filter(|(kind, ..)| holds(*kind)) {
                family.put(labels, read(totals));
            }
        }
        let mut dropped = out.counter("profbridge_dropped_observations_total", "Observations lost, by reason");
        for (_, labels, totals) in &edges {
            for loss in totals.dropped.iter() {
                dropped.put(&with(labels, "reason", loss.reason.as_str()), loss.observations);
            }
        }
        let mut notes = out.counter("profbridge_notes_total", "Things worth counting that are no loss");
        for (_, labels, totals) in &edges {
            for &(note, count) in &totals.notes {
                notes.put(&with(labels, "note", note), count);
            }
        }
        let mut levels = out.gauge("profbridge_levels", "Things worth knowing that rise and fall");
        for (_, labels, totals) in &edges {
            for &(name, level) in &totals.levels {
                levels.put(&with(labels, "level", name), level);
            }
        }
        let gauges: [(&str, &str, Read); 2] = [
            ("profbridge_held_observations", "Observations a component holds", |t| t.held.observations),
            ("profbridge_held_bytes", "Bytes a component holds", |t| t.held.bytes),
        ];
        for (name, help, read) in gauges {
            let mut family = out.gauge(name, help);
            for (_, labels, totals) in edges.iter().filter(|(kind, ..)| holds(*kind)) {
                family.put(labels, read(totals));
            }
        }
    }

    fn process(&self, out: &mut Page) {
        let none = Vec::new();
        let budget = &self.0.budget;
        out.gauge("profbridge_memory_used_bytes", "Bytes of data in flight, in windows and queues")
            .put(&none, budget.used());
        out.gauge("profbridge_memory_limit_bytes", "Bytes that data may take").put(&none, budget.limit());
        let uptime = self.0.started.elapsed().as_secs_f64();
        out.counter("otelcol_process_uptime", "Seconds since the start").put(&none, uptime);
        if let Some(usage) = Usage::read() {
            out.counter("otelcol_process_cpu_seconds", "User and system time of the process")
                .put(&none, usage.cpu_seconds);
            out.gauge("otelcol_process_memory_rss", "Resident memory of the process in bytes")
                .put(&none, usage.rss_bytes);
        }
    }
}

fn holds(kind: Kind) -> bool {
    matches!(kind, Kind::Processor | Kind::Exporter)
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
