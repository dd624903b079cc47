//! Span containers of a Sentry SDK on a route through OTLP, in the binary.

use serde_json::Value;

use crate::backend::sentry::{KEY, Received, Sentry};
use crate::process::Profbridge;
use crate::sentry_envelopes::Sent;

/// The only item of an envelope.
fn item(received: &Received) -> (Value, Value) {
    let [(header, payload)] = &received.items[..] else { panic!("{:?}", received.kinds()) };
    (header.clone(), serde_json::from_slice(payload).unwrap())
}

/// A value with rounded times.
fn rounded(mut container: Value) -> Value {
    for span in container["items"].as_array_mut().unwrap() {
        for key in ["start_timestamp", "end_timestamp"] {
            span[key] = format!("{:.5}", span[key].as_f64().unwrap()).into();
        }
    }
    container
}

/// Guarantees: spans streamed by the Node SDK to one profbridge are exported as OTLP, and a second profbridge, behind
/// the processor `transactions`, exports the original container, immediately and with its trace header; no transaction
/// is made of it.
/// rule: transport#span-containers
#[test]
fn containers_come_back() {
    let sentry = Sentry::start();
    let last = Profbridge::start(&format!(
        "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}}}
processors: {{transactions: {{wait: 10m, orphan_wait: 10m}}}}
exporters: {{sentry: {{dsn: '{}'}}}}
service: {{pipelines: {{traces: {{receivers: [otlp], processors: [transactions], exporters: [sentry]}}}}}}
",
        sentry.dsn(7)
    ));
    let first = Profbridge::start(&format!(
        "receivers: {{sentry: {{endpoint: '127.0.0.1:0'}}}}
exporters: {{otlp: {{endpoint: 'http://{}', tls: {{insecure: true}}}}}}
service: {{pipelines: {{envelopes: {{receivers: [sentry], exporters: [otlp]}}}}}}
",
        last.address("otlp/grpc")
    ));
    let sent = Sent::capture("node-11.1-span");
    assert_eq!(sent.to(first.address("sentry/http")).status(), 200);
    let received = sentry.received.wait(1).remove(0);
    assert_eq!(received.path, "/api/7/envelope/");
    let (header, container) = item(&received);
    assert_eq!((&header["type"], &header["item_count"]), (&"span".into(), &2.into()));
    let came: Value = serde_json::from_slice(sent.body.split(|byte| *byte == b'\n').nth(2).unwrap()).unwrap();
    assert_eq!(rounded(container), rounded(came.clone()));
    let trace = &received.header["trace"];
    assert_eq!((&trace["trace_id"], &trace["public_key"]), (&came["items"][0]["trace_id"], &KEY.into()));
    assert_eq!((&trace["release"], &trace["environment"]), (&"demo-node@1.2.3".into(), &"test".into()));
    for profbridge in [first, last] {
        let (status, log) = profbridge.stop();
        assert!(status.success() && !log.contains("dropped"), "{log}");
    }
    assert_eq!(sentry.received.all().len(), 1);
}
