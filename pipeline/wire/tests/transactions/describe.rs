//! Operation, name, source and status, rule by rule.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind::{
    self, Client, Consumer, Internal, Producer, Server, Unspecified,
};
use serde_json::{Value, json};

use crate::transactions::support::{batch, int, list, pair, span, status, text, texts, write, written};

/// Operation, name and source of a transaction with a single span.
fn described(name: &str, kind: SpanKind, attributes: &[(&str, &str)]) -> (Value, String, String) {
    let event = written(span(1, 0, name, kind, texts(attributes))).event;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let op = event["contexts"]["trace"]["op"].clone();
    (op, text(&event["transaction"]), text(&event["transaction_info"]["source"]))
}

/// Guarantees: each row of the table of conventions holds.
/// rule: event-schema#event-transaction, event-schema#event-transaction-info, event-schema#trace-op
/// rule: event-schema#transaction-source, event-schema#sources
#[test]
fn each_row() {
    type SpanRow<'a> = (&'a str, SpanKind, &'a [(&'a str, &'a str)], Option<&'a str>, &'a str, &'a str);
    let get = ("http.request.method", "GET");
    let rows: &[SpanRow<'_>] = &[
        (
            "n",
            Server,
            &[get, ("http.route", "/u/:id"), ("url.path", "/u/7")],
            Some("http.server"),
            "GET /u/:id",
            "route",
        ),
        ("n", Server, &[get, ("url.path", "/u/7")], Some("http.server"), "GET /u/7", "url"),
        ("n", Server, &[get, ("url.path", "/")], Some("http.server"), "GET /", "route"),
        ("n", Server, &[("http.method", "PUT"), ("http.target", "/u?q=1#f")], Some("http.server"), "PUT /u", "url"),
        ("n", Server, &[get, ("http.url", "http://h/u?q")], Some("http.server"), "GET http://h/u", "url"),
        ("n", Server, &[get], Some("http.server"), "n", "custom"),
        ("n", Client, &[get, ("url.full", "https://u:p@h:8/a?b#c")], Some("http.client"), "GET https://h:8/a", "url"),
        ("n", Client, &[get, ("url.template", "/u/{id}")], Some("http.client"), "GET /u/{id}", "route"),
        ("n", Client, &[get, ("http.target", "/u")], Some("http.client"), "GET /u", "url"),
        ("n", Internal, &[get, ("http.route", "/u")], Some("http"), "n", "custom"),
        ("n", Client, &[("db.system.name", "mysql"), ("db.query.text", "SELECT 1")], Some("db"), "SELECT 1", "task"),
        ("n", Client, &[("db.system", "mysql"), ("db.statement", "SELECT 1")], Some("db"), "SELECT 1", "task"),
        ("n", Client, &[("db.system", "redis")], Some("db"), "n", "task"),
        (
            "n",
            Client,
            &[("db.system", "redis"), ("db.statement", "GET k"), ("sentry.op", "cache.get")],
            Some("cache.get"),
            "n",
            "task",
        ),
        ("n", Client, &[("gen_ai.operation.name", "chat")], Some("gen_ai.chat"), "n", "task"),
        ("n", Client, &[("rpc.service", "shop.Cart")], Some("rpc"), "n", "route"),
        ("n", Server, &[("rpc.system", "grpc")], Some("rpc"), "n", "route"),
        ("n", Server, &[("rpc.system.name", "grpc")], Some("rpc"), "n", "route"),
        ("n", Producer, &[("messaging.system", "kafka")], Some("message"), "n", "route"),
        ("n", Consumer, &[("messaging.system", "kafka")], Some("message"), "n", "route"),
        ("n", Server, &[("faas.trigger", "timer")], Some("timer"), "n", "route"),
        ("n", Internal, &[], None, "n", "custom"),
        ("n", Unspecified, &[], None, "n", "custom"),
        ("", Internal, &[], None, "<unlabeled transaction>", "custom"),
        // If several conventions apply, the first one counts.
        (
            "n",
            Client,
            &[("db.system", "http"), get, ("url.full", "http://h/")],
            Some("http.client"),
            "GET http://h/",
            "url",
        ),
        // Sentry's own attributes take precedence.
        ("n", Server, &[("sentry.op", "task"), ("sentry.source", "view")], Some("task"), "n", "view"),
        ("n", Server, &[get, ("http.route", "/u"), ("sentry.source", "custom")], Some("http.server"), "n", "custom"),
        (
            "n",
            Server,
            &[get, ("http.route", "/u"), ("sentry.custom_span_name", "m")],
            Some("http.server"),
            "m",
            "custom",
        ),
        (
            "n",
            Client,
            &[("db.system", "x"), ("db.statement", "q"), ("sentry.source", "custom")],
            Some("db"),
            "n",
            "custom",
        ),
        ("n", Internal, &[("sentry.segment.name.source", "component")], None, "n", "component"),
    ];
    for (name, kind, attributes, op, transaction, source) in rows {
        let expected = (op.map_or(Value::Null, Value::from), (*transaction).to_owned(), (*source).to_owned());
        assert_eq!(described(name, *kind, attributes), expected, "{attributes:?}");
    }
}

/// Guarantees: a child is described in the same way, by its own attributes.
#[test]
fn children() {
    let query = texts(&[("db.system.name", "postgresql"), ("db.query.text", "SELECT 1")]);
    let event =
        write(&batch(Vec::new(), vec![span(1, 0, "root", Server, vec![]), span(2, 1, "child", Client, query)])).event;
    let child = &event["spans"][0];
    assert_eq!(
        (&child["op"], &child["description"], &child["status"]),
        (&json!("db"), &json!("SELECT 1"), &json!("ok"))
    );
}

/// Guarantees: each row of the table of statuses holds.
/// rule: event-schema#trace-status, event-schema#span-status
#[test]
fn statuses() {
    let of = |code: i32, message: &str, attributes| {
        let mut span = span(1, 0, "n", Internal, attributes);
        span.status = status(code, message);
        written(span).event["contexts"]["trace"]["status"].as_str().unwrap().to_owned()
    };
    let http = |code: i64| vec![pair("http.response.status_code", int(code))];
    let grpc = |code: i64| vec![pair("rpc.grpc.status_code", int(code))];
    let codes = "200 ok, 302 ok, 400 invalid_argument, 401 unauthenticated, 403 permission_denied, 404 not_found, \
        409 already_exists, 413 failed_precondition, 429 resource_exhausted, 499 cancelled, 500 internal_error, \
        501 unimplemented, 503 unavailable, 504 deadline_exceeded, 99 internal_error, -5 internal_error";
    for row in codes.split(", ") {
        let (code, status) = row.split_once(' ').unwrap();
        assert_eq!(of(0, "", http(code.parse().unwrap())), status, "{code}");
    }
    let codes = "ok cancelled unknown invalid_argument deadline_exceeded not_found already_exists permission_denied \
        resource_exhausted failed_precondition aborted out_of_range unimplemented internal_error unavailable data_loss \
        unauthenticated unknown";
    for (code, status) in (0..).zip(codes.split(' ')).chain([(-1, "unknown")]) {
        assert_eq!(of(0, "", grpc(code)), status, "{code}");
    }
    assert_eq!(of(0, "", vec![]), "ok", "nothing is said");
    assert_eq!(of(1, "", http(500)), "ok", "somebody says that it went well");
    assert_eq!(of(2, "", vec![]), "internal_error");
    assert_eq!(of(2, "", http(404)), "not_found", "the code says more");
    assert_eq!(of(2, "no such user", http(404)), "not_found");
    assert_eq!(of(2, "aborted", http(404)), "aborted", "the message is a status");
    assert_eq!(of(2, "ok", http(200)), "internal_error", "an error is none that went well");
    assert_eq!(of(0, "", vec![pair("http.status_code", text("404"))]), "not_found", "an older name, as text");
    assert_eq!(of(0, "", vec![pair("rpc.response.status_code", text("DEADLINE_EXCEEDED"))]), "deadline_exceeded");
    assert_eq!(of(0, "", vec![pair("rpc.response.status_code", text("INTERNAL"))]), "internal_error");
    assert_eq!(of(0, "", vec![pair("rpc.response.status_code", text("?"))]), "ok");
}

/// Guarantees: an operation or source that Sentry would refuse, or that is not a string, is left out, and nothing else
/// is; the refused ones are counted.
/// rule: event-schema#trace-op, event-schema#transaction-source
#[test]
fn refused_words() {
    let long = "x".repeat(129);
    let attributes = texts(&[("faas.trigger", "a b"), ("sentry.op", &long), ("sentry.source", "path")]);
    let written_ = written(span(1, 0, "n", Server, attributes));
    assert_eq!(written_.event["contexts"]["trace"].get("op"), None);
    assert_eq!(written_.event["transaction_info"]["source"], "route");
    assert_eq!(written_.notes.invalid_values, 2);
    let attributes = vec![pair("sentry.op", int(1)), pair("http.route", list(vec![]))];
    let written_ = written(span(1, 0, "n", Server, attributes));
    assert_eq!((written_.event["contexts"]["trace"].get("op"), written_.notes.invalid_values), (None, 0));
}
