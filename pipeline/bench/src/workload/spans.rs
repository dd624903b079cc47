//! Seeded requests of spans, as the SDK of a web service sends them.
//!
//! A request is what an SDK's batch processor hands over at once: 512 spans (`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`,
//! OpenTelemetry specification `configuration/sdk-environment-variables.md`) of one resource with 12 attributes, in
//! three scopes. Each trace is a call that the service answers and what it calls for it: other services and a database.
//! Each span has 8 attributes of the semantic conventions of HTTP or of databases, and one in ten an event: an
//! exception with its stack.

use fastrand::Rng;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{
        ResourceSpans, ScopeSpans, Span, Status,
        span::{Event, SpanKind},
    },
};

/// Spans of a request.
pub const SPANS: usize = 512;

/// Spans of a trace: the call that is answered, and those that it makes.
const IN_TRACE: usize = 8;

/// One span in so many has an event.
const EVENT_EVERY: usize = 10;

/// When the first span of the first request begins, in nanoseconds since the Unix epoch.
const START: u64 = 1_760_000_000_000_000_000;

/// Bits 8 and 0 of `Span.flags`: it is known whether the parent is remote, and the trace is sampled.
const FLAGS: u32 = 0x101;

/// Bit 9: the parent is remote.
const REMOTE: u32 = 0x200;

const SCOPES: [&str; 3] = ["http.server", "http.client", "pg"];
const ROUTES: [&str; 6] =
    ["/api/orders/{id}", "/api/orders", "/api/customers/{id}/basket", "/api/search", "/healthz", "/login"];
const PEERS: [&str; 4] = ["inventory.svc.cluster.local", "payment.svc.cluster.local", "search-7", "api.example.com"];
const TABLES: [&str; 5] = ["orders", "order_items", "customers", "stock_movements", "sessions"];

/// The request with this number of one process: no two have a trace or a span in common.
pub fn request(seed: u64, number: u64) -> ExportTraceServiceRequest {
    let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut scopes: [Vec<Span>; 3] = Default::default();
    let (mut trace_id, mut root, mut start) = (Vec::new(), Vec::new(), START + number * 5_000_000_000);
    for at in 0..SPANS {
        let first = at % IN_TRACE == 0;
        if first {
            trace_id = rng.u128(1..).to_be_bytes().to_vec();
            start += rng.u64(1_000_000..20_000_000);
        }
        let scope = if first { 0 } else { rng.usize(1..3) };
        let mut span = [answered, called, queried][scope](&mut rng);
        span.trace_id.clone_from(&trace_id);
        span.span_id = id(&mut rng);
        span.flags = FLAGS;
        if first {
            span.parent_span_id = id(&mut rng);
            span.flags |= REMOTE;
            root.clone_from(&span.span_id);
        } else {
            span.parent_span_id.clone_from(&root);
        }
        span.start_time_unix_nano = start + rng.u64(0..1_000_000);
        span.end_time_unix_nano = span.start_time_unix_nano + rng.u64(200_000..80_000_000);
        if at % EVENT_EVERY == EVENT_EVERY - 1 {
            span.events.push(exception(&mut rng, span.end_time_unix_nano));
            span.status = Some(Status { message: "the peer closed the connection".to_owned(), code: 2 });
        }
        scopes[scope].push(span);
    }
    let scope_spans = SCOPES.iter().zip(scopes).map(|(name, spans)| {
        let name = format!("io.opentelemetry.instrumentation.{name}");
        let scope = InstrumentationScope { name, version: "2.20.1".to_owned(), ..InstrumentationScope::default() };
        ScopeSpans { scope: Some(scope), spans, schema_url: String::new() }
    });
    let resource_spans = ResourceSpans {
        resource: Some(Resource { attributes: resource(), ..Resource::default() }),
        scope_spans: scope_spans.collect(),
        schema_url: "https://opentelemetry.io/schemas/1.37.0".to_owned(),
    };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }
}

fn id(rng: &mut Rng) -> Vec<u8> {
    rng.u64(1..).to_be_bytes().to_vec()
}

fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// A resource that names its host, so that nothing has to be added to it on the way.
fn resource() -> Vec<KeyValue> {
    vec![
        text("service.name", "orders"),
        text("service.namespace", "shop"),
        text("service.version", "2025.10.3"),
        text("service.instance.id", "627cc493-f310-47de-96bd-71410b7dec09"),
        text("deployment.environment.name", "production"),
        text("telemetry.sdk.name", "opentelemetry"),
        text("telemetry.sdk.language", "java"),
        text("telemetry.sdk.version", "1.54.1"),
        text("host.name", "node-17.eu-central"),
        text("process.runtime.name", "OpenJDK Runtime Environment"),
        text("process.runtime.version", "21.0.8+9-LTS"),
        number("process.pid", 4711),
    ]
}

fn pick<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.usize(..of.len())]
}

fn address(rng: &mut Rng) -> String {
    format!("10.4.{}.{}", rng.u8(..), rng.u8(1..255))
}

fn method(rng: &mut Rng) -> &'static str {
    pick(rng, &["GET", "GET", "GET", "POST", "PUT"])
}

fn http_status(rng: &mut Rng) -> i64 {
    [200, 200, 200, 201, 204, 404, 503][rng.usize(..7)]
}

/// A call of another program that is answered (semantic conventions `http/http-spans.md`, "HTTP server").
fn answered(rng: &mut Rng) -> Span {
    let (method, route) = (method(rng), pick(rng, &ROUTES));
    let attributes = vec![
        text("http.request.method", method),
        text("http.route", route),
        text("url.path", route.replace("{id}", &rng.u32(..).to_string())),
        text("url.scheme", "https"),
        text("server.address", "shop.example.com"),
        text("client.address", address(rng)),
        text("user_agent.original", "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0"),
        number("http.response.status_code", http_status(rng)),
    ];
    Span { name: format!("{method} {route}"), kind: SpanKind::Server as i32, attributes, ..Span::default() }
}

/// A call that is made (semantic conventions `http/http-spans.md`, "HTTP client").
fn called(rng: &mut Rng) -> Span {
    let (method, peer) = (method(rng), pick(rng, &PEERS));
    let attributes = vec![
        text("http.request.method", method),
        text("url.full", format!("http://{peer}:8080/v2/items/{}?expand=price", rng.u32(..))),
        text("server.address", peer),
        number("server.port", 8080),
        text("network.peer.address", address(rng)),
        number("network.peer.port", 8080),
        text("network.protocol.version", "1.1"),
        number("http.response.status_code", http_status(rng)),
    ];
    Span { name: method.to_owned(), kind: SpanKind::Client as i32, attributes, ..Span::default() }
}

/// A query of a database (semantic conventions `database/database-spans.md`).
fn queried(rng: &mut Rng) -> Span {
    let table = pick(rng, &TABLES);
    let attributes = vec![
        text("db.system.name", "postgresql"),
        text("db.namespace", "shop|public"),
        text("db.operation.name", "SELECT"),
        text("db.collection.name", table),
        text("db.query.text", format!("SELECT id, state, changed_at FROM {table} WHERE customer_id = $1 ORDER BY id")),
        text("server.address", "pg-main.db.svc.cluster.local"),
        number("server.port", 5432),
        text("network.peer.address", address(rng)),
    ];
    Span { name: format!("SELECT shop.{table}"), kind: SpanKind::Client as i32, attributes, ..Span::default() }
}

/// An exception (semantic conventions `exceptions/exceptions-spans.md`).
fn exception(rng: &mut Rng, time_unix_nano: u64) -> Event {
    let frame =
        |at: usize| format!("\tat com.example.shop.remote.Client{at}.exchange(Client{at}.java:{})\n", 40 + 7 * at);
    let first = rng.usize(..50);
    let stack: String = (first..first + 8).map(frame).collect();
    let attributes = vec![
        text("exception.type", "java.io.IOException"),
        text("exception.message", "Connection reset by peer"),
        text("exception.stacktrace", format!("java.io.IOException: Connection reset by peer\n{stack}")),
    ];
    Event { time_unix_nano, name: "exception".to_owned(), attributes, dropped_attributes_count: 0 }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use prost::Message;

    use super::*;
    use crate::workload::SEED;

    /// Guarantees: a request has the size and the shape that the published figures name, it is the same for the same
    /// seed and number, and no two requests have a span in common.
    #[test]
    fn shape() {
        let one = request(SEED, 0);
        assert_eq!(one, request(SEED, 0));
        let resource = &one.resource_spans[0];
        assert_eq!(one.resource_spans.len(), 1);
        assert_eq!((resource.resource.as_ref().unwrap().attributes.len(), resource.scope_spans.len()), (12, 3));
        let spans: Vec<&Span> = resource.scope_spans.iter().flat_map(|scope| &scope.spans).collect();
        assert_eq!(spans.len(), SPANS);
        assert!(spans.iter().all(|span| span.attributes.len() == 8));
        assert!(spans.iter().all(|span| span.start_time_unix_nano < span.end_time_unix_nano));
        assert_eq!(spans.iter().filter(|span| !span.events.is_empty()).count(), SPANS / 10);
        let traces: HashSet<_> = spans.iter().map(|span| &span.trace_id).collect();
        assert_eq!(traces.len(), SPANS / IN_TRACE);
        let bytes_a_span = one.encoded_len() / SPANS;
        assert!((350..550).contains(&bytes_a_span), "{bytes_a_span}");

        let other = request(SEED, 1);
        let ids = |request: &ExportTraceServiceRequest| -> HashSet<Vec<u8>> {
            let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
            scopes.flat_map(|scope| &scope.spans).map(|span| span.span_id.clone()).collect()
        };
        assert_eq!(ids(&one).len(), SPANS);
        assert!(ids(&one).is_disjoint(&ids(&other)));
    }
}
