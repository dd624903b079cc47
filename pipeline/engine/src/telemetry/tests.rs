use std::time::Duration;

use profbridge_model::{Quantities, Reason};
use profbridge_net::Shutdown;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::component::Held;
use crate::health::{ComponentState, Health, Thresholds};
use crate::run::server::Server;

/// The lines of a metric, without its description.
fn lines(text: &str, name: &str) -> Vec<String> {
    let starts = [format!("{name}{{"), format!("{name} ")];
    text.lines().filter(|line| starts.iter().any(|start| line.starts_with(start))).map(str::to_owned).collect()
}

/// Guarantees: receivers count samples and requests, separately for each transport, under the Collector's names.
#[test]
fn receivers() {
    let metrics = Metrics::new(Budget::new(1));
    let receiver = metrics.receiver("otlp");
    let grpc = receiver.transport("grpc");
    grpc.accepted(ItemCounts::samples(5));
    receiver.transport("grpc").accepted(ItemCounts::samples(2));
    grpc.refused(ItemCounts::samples(3));
    receiver.transport("http").failed(ItemCounts::samples(0));
    let text = metrics.encode();
    assert_eq!(
        lines(&text, "otelcol_receiver_accepted_profile_samples"),
        [
            "otelcol_receiver_accepted_profile_samples{receiver=\"otlp\",transport=\"grpc\"} 7",
            "otelcol_receiver_accepted_profile_samples{receiver=\"otlp\",transport=\"http\"} 0",
        ]
    );
    assert_eq!(
        lines(&text, "otelcol_receiver_refused_profile_samples")[0],
        "otelcol_receiver_refused_profile_samples{receiver=\"otlp\",transport=\"grpc\"} 3"
    );
    assert_eq!(receiver.requests(), [2, 1, 1]);
    assert_eq!(
        lines(&text, "profbridge_receiver_open_connections")[0],
        "profbridge_receiver_open_connections{receiver=\"otlp\",transport=\"grpc\"} 0"
    );
}

/// Guarantees: losses are counted by reason, notes by name, and only those that occurred are shown.
#[test]
fn edges() {
    let metrics = Metrics::new(Budget::new(1));
    let edge = metrics.edge(ComponentKind::Processor, "chunk", "profiles");
    edge.add_in(Quantities::observations(9));
    edge.drop(Reason::Resent, Quantities::observations(2));
    edge.note_all(&[("weak_identity", 1)]);
    edge.note_all(&[("weak_identity", 2), ("other", 1)]);
    edge.set_held(Held::observations(7, 70));
    let text = metrics.encode();
    let labels = "component=\"chunk\",kind=\"processor\",pipeline=\"profiles\"";
    assert_eq!(
        lines(&text, "profbridge_dropped_observations_total"),
        [format!("profbridge_dropped_observations_total{{{labels},reason=\"resent\"}} 2")]
    );
    assert_eq!(
        lines(&text, "profbridge_notes_total"),
        [
            format!("profbridge_notes_total{{{labels},note=\"weak_identity\"}} 3"),
            format!("profbridge_notes_total{{{labels},note=\"other\"}} 1"),
        ]
    );
    assert_eq!(lines(&text, "profbridge_held_bytes"), [format!("profbridge_held_bytes{{{labels}}} 70")]);
}

/// Guarantees: a level becomes a gauge under its name with its last value, including zero.
#[test]
fn levels() {
    let metrics = Metrics::new(Budget::new(1));
    let edge = metrics.edge(ComponentKind::Receiver, "ptrace", "");
    metrics.edge(ComponentKind::Receiver, "otlp", "");
    for (name, level) in [("processes", 3), ("threads", 9), ("processes", 4), ("threads", 0)] {
        edge.set_level(name, level);
    }
    let text = metrics.encode();
    assert!(text.contains("# TYPE profbridge_levels gauge\n"), "{text}");
    let labels = "component=\"ptrace\",kind=\"receiver\"";
    assert_eq!(
        lines(&text, "profbridge_levels"),
        [
            format!("profbridge_levels{{{labels},level=\"processes\"}} 4"),
            format!("profbridge_levels{{{labels},level=\"threads\"}} 0"),
        ]
    );
}

/// Guarantees: units other than observations have metrics of the same names, which list the components that counted
/// any; without such components, the page does not mention the unit.
#[test]
fn units() {
    let metrics = Metrics::new(Budget::new(1));
    let chunk = metrics.edge(ComponentKind::Processor, "chunk", "all");
    let sentry = metrics.exporter("sentry");
    chunk.add_in(Quantities::observations(1));
    let before = metrics.encode();
    assert!(!before.contains("items") && !before.contains("profbridge_spans"), "{before}");
    sentry.edge().add_in(Quantities::items(3));
    sentry.edge().drop(Reason::Unroutable, Quantities { observations: 4, ..Quantities::items(2) });
    sentry.edge().add_out(Quantities::items(1));
    let text = metrics.encode();
    let labels = "component=\"sentry\",kind=\"exporter\"";
    for (name, labels, value) in [
        ("profbridge_items_in_total", labels.to_owned(), 3),
        ("profbridge_items_out_total", labels.to_owned(), 1),
        ("profbridge_synthesized_items_total", labels.to_owned(), 0),
        ("profbridge_unaccounted_items_total", labels.to_owned(), 0),
        ("profbridge_dropped_items_total", format!("{labels},reason=\"unroutable\""), 2),
        ("profbridge_held_items", labels.to_owned(), 0),
        ("profbridge_dropped_observations_total", format!("{labels},reason=\"unroutable\""), 4),
    ] {
        assert_eq!(lines(&text, name), [format!("{name}{{{labels}}} {value}")]);
    }
    assert!(!text.contains("profbridge_spans"), "{text}");
    assert!(text.contains("# HELP profbridge_items_in_total Items of envelopes handed to a component\n"), "{text}");
    // Metrics that existed before keep their order.
    let described = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("# TYPE ") && !line.contains("items")).map(str::to_owned).collect()
    };
    assert_eq!(described(&text), described(&before));
}

/// Guarantees: metrics that the Collector has carry exactly its names, and no counter among them ends in `_total`; all
/// of profbridge's own counters do.
#[test]
fn names_of_counters() {
    let metrics = Metrics::new(Budget::new(1));
    metrics.receiver("otlp").transport("grpc").accepted(ItemCounts::samples(1));
    metrics.edge(ComponentKind::Processor, "chunk", "profiles").drop(Reason::Resent, Quantities::observations(2));
    metrics.exporter("sentry");
    let text = metrics.encode();
    let types: Vec<(&str, &str)> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let collectors: Vec<&str> =
        types.iter().map(|(name, _)| *name).filter(|name| name.starts_with("otelcol_")).collect();
    // opentelemetry-collector receiver/receiverhelper, exporter/exporterhelper and service: `documentation.md` of each.
    let expected = [
        "otelcol_receiver_accepted_profile_samples",
        "otelcol_receiver_refused_profile_samples",
        "otelcol_receiver_failed_profile_samples",
        "otelcol_receiver_accepted_spans",
        "otelcol_receiver_refused_spans",
        "otelcol_receiver_failed_spans",
        "otelcol_receiver_requests",
        "otelcol_exporter_sent_profile_samples",
        "otelcol_exporter_send_failed_profile_samples",
        "otelcol_exporter_enqueue_failed_profile_samples",
        "otelcol_exporter_sent_spans",
        "otelcol_exporter_send_failed_spans",
        "otelcol_exporter_enqueue_failed_spans",
        "otelcol_exporter_queue_size",
        "otelcol_exporter_queue_capacity",
        "otelcol_exporter_in_flight_requests",
        "otelcol_process_uptime",
        "otelcol_process_cpu_seconds",
        "otelcol_process_memory_rss",
    ];
    assert_eq!(collectors, expected);
    for (name, kind) in types.iter().filter(|(name, _)| name.starts_with("profbridge_")) {
        assert_eq!(name.ends_with("_total"), *kind == "counter", "{name} is a {kind}");
    }
}

/// Guarantees: each metric is described once, however many components there are, and labels are escaped: no component
/// name can break the page.
#[test]
fn page_is_well_formed() {
    let metrics = Metrics::new(Budget::new(1));
    metrics.exporter("sentry");
    metrics.exporter("sentry/\"b\"\n");
    let text = metrics.encode();
    for kind in ["# HELP ", "# TYPE "] {
        let mut described: Vec<&str> = text.lines().filter(|line| line.starts_with(kind)).collect();
        let count = described.len();
        described.sort_unstable();
        described.dedup();
        assert_eq!(described.len(), count);
    }
    assert!(text.contains("exporter=\"sentry/\\\"b\\\"\\n\""), "{text}");
}

/// Guarantees: health and metrics answer even if other clients hold all connections, idle from the start, in the middle
/// of a request head, or after an answer.
#[tokio::test]
async fn idle_connections_starve_nobody() {
    let (_trigger, shutdown) = Shutdown::pair();
    let health = Health::default();
    health.set("receivers", "otlp", ComponentState::Running);
    let metrics = Metrics::new(Budget::new(1));
    let of = (health, metrics.clone(), Thresholds::default());
    let server = Server::health("127.0.0.1:0", of, Arc::default(), shutdown.clone()).await.unwrap();
    let metrics = Server::metrics("127.0.0.1:0", metrics, Arc::default(), shutdown).await.unwrap();
    for (server, path) in [(server, "/"), (metrics, "/metrics")] {
        let mut held = Vec::new();
        for number in 0..40 {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let begins = [&b""[..], b"GET / HT", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"][number % 3];
            stream.write_all(begins).await.unwrap();
            held.push(stream);
        }
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{path}: {answer:?}");
        drop(held);
    }
}

/// Guarantees: billed time is counted in seconds with fractions.
#[test]
fn billed_seconds() {
    let metrics = Metrics::new(Budget::new(1));
    let exporter = metrics.exporter("sentry");
    exporter.sent(ItemCounts::samples(1), 100, Duration::from_millis(1500));
    exporter.sent(ItemCounts::samples(1), 100, Duration::from_millis(1000));
    assert_eq!(
        lines(&metrics.encode(), "profbridge_billed_seconds_total"),
        ["profbridge_billed_seconds_total{exporter=\"sentry\"} 2.5"]
    );
}
