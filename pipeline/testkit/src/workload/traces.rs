//! Seeded traces of a web service. Each trace is a served request with queries, calls, a message and sometimes an
//! exception, as OpenTelemetry's Python instrumentation writes them.

use fastrand::Rng;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};

use crate::T0;

/// The number of spans per trace, including its root.
pub const SPANS: usize = 12;

/// The names of the scopes, which are the libraries that create spans.
const SCOPES: [&str; 4] = ["fastapi", "psycopg", "httpx", "kafka"];

fn text(key: &str, value: &str) -> KeyValue {
    pair(key, Value::StringValue(value.to_owned()))
}

fn int(key: &str, value: i64) -> KeyValue {
    pair(key, Value::IntValue(value))
}

fn pair(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// A request of a service with this many traces of [`SPANS`] spans each, grouped by scope as exporters do.
pub fn request(traces: usize, seed: u64) -> ExportTraceServiceRequest {
    let mut random = Rng::with_seed(seed);
    let mut by_scope: [Vec<Span>; 4] = Default::default();
    for number in 0..traces {
        trace(&mut random, number as u64, &mut by_scope);
    }
    let attributes = [
        ("service.name", "shop"),
        ("service.version", "1.24.3"),
        ("service.instance.id", "627cc493-f310-47de-96bd-71410b7dec09"),
        ("deployment.environment.name", "production"),
        ("host.name", "ip-10-0-12-7.eu-central-1.compute.internal"),
        ("host.id", "i-07d3301208fe0a55a"),
        ("host.arch", "amd64"),
        ("os.type", "linux"),
        ("process.runtime.name", "cpython"),
        ("process.runtime.version", "3.12.7"),
        ("cloud.provider", "aws"),
        ("cloud.region", "eu-central-1"),
        ("telemetry.sdk.language", "python"),
        ("telemetry.sdk.name", "opentelemetry"),
        ("telemetry.sdk.version", "1.38.0"),
    ];
    let mut attributes: Vec<KeyValue> = attributes.iter().map(|(key, value)| text(key, value)).collect();
    attributes.push(int("process.pid", 4711));
    let scope_spans = SCOPES.iter().zip(by_scope).map(|(name, spans)| {
        let name = format!("opentelemetry.instrumentation.{name}");
        let scope = InstrumentationScope { name, version: "0.59b0".to_owned(), ..InstrumentationScope::default() };
        ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }
    });
    let resource = Some(Resource { attributes, ..Resource::default() });
    let resource_spans =
        vec![ResourceSpans { resource, scope_spans: scope_spans.collect(), ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }
}

fn trace(random: &mut Rng, number: u64, by_scope: &mut [Vec<Span>; 4]) {
    let trace_id: Vec<u8> = random.u128(1..).to_be_bytes().to_vec();
    let root_id = random.u64(1..).to_be_bytes().to_vec();
    let start = T0 + number * 1_700_000;
    let span = |random: &mut Rng, place: u64, name: &str, kind: SpanKind, attributes: Vec<KeyValue>| {
        let is_root = place == 0;
        let begin = start + place * 3_000_000 + random.u64(0..1_000_000);
        Span {
            trace_id: trace_id.clone(),
            span_id: if is_root { root_id.clone() } else { random.u64(1..).to_be_bytes().to_vec() },
            parent_span_id: if is_root { Vec::new() } else { root_id.clone() },
            name: name.to_owned(),
            kind: kind as i32,
            start_time_unix_nano: begin,
            end_time_unix_nano: begin + if is_root { 60_000_000 } else { random.u64(100_000..2_500_000) },
            attributes,
            flags: 0x101,
            ..Span::default()
        }
    };
    let failed = number % 10 == 7;
    let item = random.u32(1..100_000);
    let code = if failed { 500 } else { 200 };
    let mut root = span(
        random,
        0,
        "GET /cart/{item}",
        SpanKind::Server,
        vec![
            text("http.request.method", "GET"),
            text("url.scheme", "https"),
            text("url.path", &format!("/cart/{item}")),
            text("url.query", "page=2&sort=price"),
            text("http.route", "/cart/{item}"),
            text("server.address", "shop.example.com"),
            int("server.port", 443),
            text("network.protocol.version", "1.1"),
            text("client.address", "10.11.12.13"),
            text("user_agent.original", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
            int("http.response.status_code", code),
            int("thread.id", 139_637_976_327_936),
            text("thread.name", "AnyIO worker thread"),
        ],
    );
    if failed {
        root.status = Some(Status { code: 2, message: String::new() });
    }
    by_scope[0].push(root);
    for place in 1..=6 {
        let table = ["items", "carts", "users", "prices", "stock", "orders"][random.usize(0..6)];
        by_scope[1].push(span(
            random,
            place,
            &format!("SELECT {table}"),
            SpanKind::Client,
            vec![
                text("db.system.name", "postgresql"),
                text("db.namespace", "shop"),
                text("db.operation.name", "SELECT"),
                text("db.collection.name", table),
                text(
                    "db.query.text",
                    &format!("SELECT id, name, price, updated_at FROM {table} WHERE id = %s AND deleted_at IS NULL"),
                ),
                text("server.address", "db-1.internal"),
                int("server.port", 5432),
            ],
        ));
    }
    for place in 7..=9 {
        let mut call = span(
            random,
            place,
            "GET",
            SpanKind::Client,
            vec![
                text("http.request.method", "GET"),
                text("url.full", &format!("https://stock.internal/v1/items/{item}?fields=count")),
                text("server.address", "stock.internal"),
                int("server.port", 443),
                text("network.protocol.version", "1.1"),
                int("http.response.status_code", if failed { 503 } else { 200 }),
            ],
        );
        if failed && place == 9 {
            call.status = Some(Status { code: 2, message: "no answer".to_owned() });
            let attributes = vec![
                text("exception.type", "httpx.HTTPStatusError"),
                text("exception.message", "Server error '503 Service Unavailable'"),
                text(
                    "exception.stacktrace",
                    &"  File \"/app/shop/stock.py\", line 42, in reserve\n    call()\n".repeat(20),
                ),
                text("exception.escaped", "False"),
            ];
            let time_unix_nano = call.end_time_unix_nano;
            call.events = vec![Event { time_unix_nano, name: "exception".to_owned(), attributes, ..Event::default() }];
        }
        by_scope[2].push(call);
    }
    let offset = random.u32(..);
    by_scope[3].push(span(
        random,
        10,
        "views publish",
        SpanKind::Producer,
        vec![
            text("messaging.system", "kafka"),
            text("messaging.destination.name", "views"),
            text("messaging.operation.type", "publish"),
            int("messaging.kafka.offset", i64::from(offset)),
        ],
    ));
    by_scope[0].push(span(random, 11, "render template", SpanKind::Internal, vec![text("template.name", "cart.html")]));
}
