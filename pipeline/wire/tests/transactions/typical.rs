//! Typical transactions, whole.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use crate::support::{batch, event, int, pair, span, status, text, texts, write};

/// Guarantees: a request that a Python service answers, with a query, a call by gRPC, a message and an exception, as a
/// person would expect it in Sentry.
/// rule: event-schema#event-sdk, tracing-sdk#event
#[test]
fn web_service() {
    let resource = texts(&[
        ("service.name", "shop"),
        ("service.version", "1.2.0"),
        ("deployment.environment.name", "staging"),
        ("host.name", "web-1"),
        ("os.type", "linux"),
        ("process.runtime.name", "CPython"),
        ("process.runtime.version", "3.12.1"),
        ("telemetry.sdk.language", "python"),
        ("telemetry.sdk.name", "opentelemetry"),
        ("telemetry.sdk.version", "1.38.0"),
    ]);
    let mut root = span(
        1,
        0,
        "POST /cart/:id",
        SpanKind::Server,
        texts(&[
            ("http.request.method", "POST"),
            ("http.route", "/cart/:id"),
            ("url.path", "/cart/7"),
            ("url.scheme", "https"),
            ("server.address", "shop.example"),
            ("client.address", "10.0.0.1"),
            ("user_agent.original", "curl/8"),
            ("enduser.id", "42"),
        ]),
    );
    root.attributes.push(pair("http.response.status_code", int(500)));
    root.status = status(2, "");
    let query = span(
        2,
        1,
        "SELECT shop.items",
        SpanKind::Client,
        texts(&[
            ("db.system.name", "postgresql"),
            ("db.namespace", "shop"),
            ("db.query.text", "SELECT * FROM items WHERE id = $1"),
        ]),
    );
    let mut call = span(
        3,
        1,
        "shop.Stock/Reserve",
        SpanKind::Client,
        texts(&[("rpc.system", "grpc"), ("rpc.service", "shop.Stock")]),
    );
    call.attributes.push(pair("rpc.grpc.status_code", int(14)));
    call.status = status(2, "connection refused");
    let exception = texts(&[("exception.type", "StockError"), ("exception.message", "no answer")]);
    call.events = vec![event("exception", exception)];
    let message = span(
        4,
        1,
        "orders publish",
        SpanKind::Producer,
        texts(&[("messaging.system", "kafka"), ("messaging.destination.name", "orders")]),
    );
    let mut worker = span(5, 1, "render", SpanKind::Internal, vec![pair("template", text("cart.html"))]);
    worker.attributes.push(pair("thread.id", int(140)));
    let mut event = write(&batch(resource, vec![root, query, call, message, worker])).event;
    event["sdk"]["version"] = "VERSION".into();
    insta::assert_snapshot!(serde_json::to_string_pretty(&event).unwrap());
}
