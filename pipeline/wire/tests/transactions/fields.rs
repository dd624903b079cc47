//! Each field of a transaction.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use profbridge_model::spans::ProfilerLink;
use profbridge_model::{ProfilerId, Spans};
use profbridge_wire::sentry::transaction::{NameSource, TransactionResource, root};
use profbridge_wire::sentry::transaction_envelope;
use serde_json::{Value, json};

use crate::transactions::support::{
    START, batch, event, int, list, map, pair, segmented, span, text, texts, value_of, write, written,
};

fn of_resource(attributes: &[(&str, &str)]) -> Value {
    write(&batch(texts(attributes), vec![span(1, 0, "n", SpanKind::Internal, vec![])])).event
}

/// Guarantees: each known language has its platform; all others are `other`.
/// rule: event-schema#event-platform
#[test]
fn platforms() {
    let rows = "python python, nodejs node, webjs javascript, java java, ruby ruby, php php, go go, dotnet csharp, \
        erlang elixir, swift cocoa, cpp native, rust native, cobol other";
    for row in rows.split(", ") {
        let (language, platform) = row.split_once(' ').unwrap();
        assert_eq!(of_resource(&[("telemetry.sdk.language", language)])["platform"], platform, "{language}");
    }
    assert_eq!(of_resource(&[])["platform"], "other");
}

/// Guarantees: the operation of a transaction can be asked for before it is written, whether conventions or the span's
/// own attributes determine it.
#[test]
fn operations_are_known_beforehand() {
    for (attributes, op) in [
        (vec![pair("http.request.method", text("GET")), pair("http.route", text("/"))], Some("http.server")),
        (vec![pair("db.system.name", text("redis"))], Some("db")),
        (vec![pair("db.system.name", text("redis")), pair("sentry.op", text("cache.get"))], Some("cache.get")),
        (vec![], None),
    ] {
        let spans = batch(texts(&[]), vec![span(1, 0, "n", SpanKind::Server, attributes)]);
        let event = write(&spans).event;
        assert_eq!(event["contexts"]["trace"]["op"].as_str(), op);
        let known = profbridge_wire::spans::SpanView::of(&spans, &spans.spans()[0]).op();
        assert_eq!(known.as_deref(), op);
    }
}

/// Guarantees: release, environment and distribution follow the rules of chunks; values that Sentry would refuse are
/// left out and counted.
/// rule: event-schema#event-release
#[test]
fn release_environment_dist() {
    let event = of_resource(&[("service.name", "shop"), ("service.version", "1.2"), ("sentry.dist", "7")]);
    assert_eq!(
        (&event["release"], &event["environment"], &event["dist"]),
        (&json!("shop@1.2"), &json!("production"), &json!("7"))
    );
    let event = of_resource(&[("sentry.release", "4f2a"), ("deployment.environment.name", "lab")]);
    assert_eq!((&event["release"], &event["environment"]), (&json!("4f2a"), &json!("lab")));
    for (key, wrong) in [
        ("service.name", "a/b"),
        ("service.name", "latest"),
        ("sentry.release", "a\\b"),
        ("sentry.release", &"x".repeat(201)),
        ("deployment.environment.name", "a/b"),
        ("deployment.environment", "None"),
        ("deployment.environment.name", &"x".repeat(65)),
        ("sentry.dist", "a b"),
        ("sentry.dist", &"x".repeat(65)),
    ] {
        let written = write(&batch(texts(&[(key, wrong)]), vec![span(1, 0, "n", SpanKind::Internal, vec![])]));
        assert_eq!(written.notes.invalid_values, 1, "{key} {wrong}");
        let gone =
            ["release", "environment", "dist"].iter().filter(|member| written.event.get(**member).is_none()).count();
        // Without a service name there is neither a release nor a distribution.
        assert_eq!(gone, if key.starts_with("deployment") { 3 } else { 2 }, "{key}");
    }
}

/// Guarantees: the contexts of a resource, member by member.
/// rule: event-schema#event-server-name, event-schema#event-contexts, event-schema#otel-resource, event-schema#os
/// rule: event-schema#runtime, event-schema#device, event-schema#app, event-schema#cloud
#[test]
fn contexts() {
    let event = of_resource(&[
        ("os.type", "linux"),
        ("os.version", "6.1"),
        ("os.build_id", "b"),
        ("os.description", "d"),
        ("process.runtime.name", "CPython"),
        ("process.runtime.version", "3.12"),
        ("process.runtime.description", "r"),
        ("host.name", "web-1"),
        ("host.arch", "amd64"),
        ("host.cpu.model.name", "EPYC"),
        ("device.model.name", "m"),
        ("device.model.identifier", "i"),
        ("device.manufacturer", "f"),
        ("device.id", "u"),
        ("service.name", "shop"),
        ("service.version", "1"),
        ("app.build_id", "7"),
        ("process.creation.time", "2026-01-01T00:00:00Z"),
        ("cloud.provider", "aws"),
        ("cloud.account.id", "1"),
        ("cloud.availability_zone", "z"),
        ("cloud.platform", "aws_ec2"),
        ("cloud.region", "r"),
        ("host.id", "h"),
        ("host.type", "t2"),
    ]);
    let contexts = &event["contexts"];
    assert_eq!(event["server_name"], "web-1");
    assert_eq!(contexts["os"], json!({"name": "linux", "version": "6.1", "build": "b", "raw_description": "d"}));
    assert_eq!(contexts["runtime"], json!({"name": "CPython", "version": "3.12", "raw_description": "r"}));
    assert_eq!(
        contexts["device"],
        json!({"arch": "amd64", "model": "m", "model_id": "i", "manufacturer": "f", "device_unique_identifier": "u",
            "cpu_description": "EPYC"})
    );
    assert_eq!(
        contexts["app"],
        json!({"app_name": "shop", "app_version": "1", "app_build": "7", "app_start_time": "2026-01-01T00:00:00Z"})
    );
    assert_eq!(
        contexts["cloud_resource"],
        json!({"cloud.provider": "aws", "cloud.account.id": "1", "cloud.availability_zone": "z",
            "cloud.platform": "aws_ec2", "cloud.region": "r", "host.id": "h", "host.type": "t2"})
    );
    assert_eq!(contexts["otel"]["resource"]["host.cpu.model.name"], "EPYC");
    let bare = of_resource(&[]);
    assert_eq!(bare["contexts"].as_object().unwrap().keys().collect::<Vec<_>>(), ["trace"]);
    assert_eq!((bare.get("server_name"), bare.get("tags"), bare.get("user")), (None, None, None));
}

/// Guarantees: attributes of a resource become tags if they follow the rules of tags; the others are only in the
/// context.
/// rule: event-schema#event-tags, event-schema#otel-resource
#[test]
fn tags() {
    let long = "x".repeat(200);
    let mut resource = texts(&[
        ("k8s.pod.name", "p"),
        ("long", &long),
        ("fits", &long[1..]),
        ("lines", "a\nb"),
        ("empty", ""),
        ("with space", "v"),
        ("a.key.of.more.than.thirty.two.let", "v"),
        ("release", "v"),
        ("k8s.pod.name", "second"),
    ]);
    resource.push(pair("process.pid", int(-7)));
    resource.push(pair("yes", value_of(Any::BoolValue(true))));
    resource.push(pair("list", list(vec![text("a")])));
    let event = write(&batch(resource, vec![span(1, 0, "n", SpanKind::Internal, vec![])])).event;
    assert_eq!(event["tags"], json!({"k8s.pod.name": "p", "fits": &long[1..], "process.pid": "-7", "yes": "true"}));
    assert_eq!(event["contexts"]["otel"]["resource"].as_object().unwrap().len(), 11);
}

/// Guarantees: attributes added to a resource by processors are written like its own, and do not replace them.
#[test]
fn added_to_the_resource() {
    let mut spans = batch(texts(&[("host.name", "own")]), vec![span(1, 0, "n", SpanKind::Internal, vec![])]);
    spans.add_to_resource(0, "host.name".into(), "given".into());
    spans.add_to_resource(0, "service.name".into(), "shop".into());
    let event = write(&spans).event;
    assert_eq!((&event["server_name"], &event["release"]), (&json!("own"), &json!("shop")));
}

/// Guarantees: the request of a server span, its response, user and browser, member by member, also from older
/// attribute names.
/// rule: event-schema#event-request, event-schema#event-user, event-schema#browser, event-schema#response
/// rule: event-schema#request, event-schema#user
#[test]
fn request() {
    let mut attributes = texts(&[
        ("http.request.method", "POST"),
        ("url.full", "https://u:p@shop.example/cart/7?a=b#c"),
        ("http.request.header.x-one", "1"),
        ("client.address", "10.0.0.1"),
        ("user_agent.original", "curl/8"),
        ("user_agent.name", "Firefox"),
        ("user_agent.version", "140"),
        ("enduser.id", "7"),
        ("user.name", "ann"),
        ("user.full_name", "Ann B"),
        ("user.email", "a@b"),
    ]);
    attributes.extend([
        pair("http.request.header.accept", list(vec![text("text/html"), text("*/*")])),
        pair("http.request.body.size", int(12)),
        pair("http.response.status_code", int(503)),
        pair("http.response.body.size", int(-1)),
        pair("http.response.header.content-type", list(vec![text("text/plain")])),
    ]);
    let event = written(span(1, 0, "n", SpanKind::Server, attributes.clone())).event;
    assert_eq!(
        event["request"],
        json!({"method": "POST", "url": "https://shop.example/cart/7", "query_string": "a=b", "body_size": 12,
            "headers": {"x-one": "1", "accept": "text/html, */*", "user-agent": "curl/8"},
            "env": {"REMOTE_ADDR": "10.0.0.1"}})
    );
    assert_eq!(event["contexts"]["response"], json!({"status_code": 503, "headers": {"content-type": "text/plain"}}));
    assert_eq!(event["contexts"]["browser"], json!({"name": "Firefox", "version": "140"}));
    assert_eq!(event["user"], json!({"id": "7", "username": "ann", "name": "Ann B", "email": "a@b"}));
    // A client span names the server it called; that is not a request to this process.
    let event = written(span(1, 0, "n", SpanKind::Client, attributes)).event;
    assert_eq!((event.get("request"), event["contexts"].get("response")), (None, None));

    for (attributes, url, query) in [
        (&[("url.path", "/a"), ("url.query", "q"), ("server.address", "h")][..], "http://h/a", json!("q")),
        (&[("url.path", "/a"), ("server.address", "h"), ("url.scheme", "https")], "https://h/a", json!(null)),
        (&[("http.target", "/a?q=1"), ("http.host", "h:8"), ("http.scheme", "http")], "http://h:8/a", json!("q=1")),
        (&[("http.target", "/a"), ("net.host.name", "h"), ("net.host.port", "8")], "http://h:8/a", json!(null)),
        (&[("url.path", "/a"), ("server.address", "::1"), ("server.port", "80")], "http://[::1]/a", json!(null)),
        (&[("url.path", "/a"), ("server.address", "::1"), ("server.port", "81")], "http://[::1]:81/a", json!(null)),
        (&[("url.path", "/a?b")], "/a", json!(null)),
    ] {
        let mut all = texts(attributes);
        all.push(pair("http.method", text("GET")));
        let request = &written(span(1, 0, "n", SpanKind::Server, all)).event["request"];
        assert_eq!((&request["url"], &request["query_string"]), (&json!(url), &query), "{attributes:?}");
    }
}

/// Guarantees: ids, parent, times, links, events and all attributes of a span are written; attributes for which Sentry
/// has fields are not repeated.
/// rule: sample-format-v2#thread-id, event-schema#event-timestamps, event-schema#trace-ids, event-schema#trace-data
/// rule: event-schema#otel-attributes, event-schema#event-sdk
#[test]
fn data() {
    let mut child =
        span(2, 1, "child", SpanKind::Client, texts(&[("sentry.op", "task"), ("sentry.origin", "auto.mine")]));
    child.attributes.extend([
        pair("int", int(i64::MIN)),
        pair("double", value_of(Any::DoubleValue(0.5))),
        pair("nan", value_of(Any::DoubleValue(f64::NAN))),
        pair("bool", value_of(Any::BoolValue(false))),
        pair("bytes", value_of(Any::BytesValue(vec![0, 255, 16, 1]))),
        pair("list", list(vec![int(1), value_of(Any::DoubleValue(f64::INFINITY)), list(vec![text("\"\u{1}")])])),
        pair("map", map(vec![pair("k", int(1)), pair("k", int(2)), pair("", text("e"))])),
        pair("int", int(2)),
        pair("http.status_code", int(201)),
        pair("thread.id", int(7)),
        pair("thread.name", text("worker")),
    ]);
    child
        .attributes
        .push(opentelemetry_proto::tonic::common::v1::KeyValue { key: "none".into(), ..Default::default() });
    child.events = vec![event("exception", texts(&[("exception.type", "E"), ("exception.message", "m")]))];
    child.links = vec![
        Link { trace_id: vec![1; 16], span_id: vec![2; 8], attributes: texts(&[("a", "b")]), ..Link::default() },
        Link { trace_id: vec![1; 15], span_id: vec![2; 8], ..Link::default() },
        Link { trace_id: vec![1; 16], span_id: vec![0; 8], ..Link::default() },
    ];
    child.status = crate::transactions::support::status(2, "no room");
    let written = write(&batch(vec![], vec![span(1, 9, "root", SpanKind::Consumer, vec![]), child]));
    let trace = &written.event["contexts"]["trace"];
    assert_eq!((&trace["trace_id"], &trace["span_id"]), (&json!("ab".repeat(16)), &json!("01".repeat(8))));
    assert_eq!(trace["parent_span_id"], "09".repeat(8));
    let child = &written.event["spans"][0];
    assert_eq!((&child["span_id"], &child["parent_span_id"]), (&json!("02".repeat(8)), &json!("01".repeat(8))));
    assert_eq!(child["origin"], "auto.mine");
    assert_eq!(
        child["links"],
        json!([{"trace_id": "01".repeat(16), "span_id": "02".repeat(8), "attributes": {"a": "b"}}])
    );
    assert_eq!(
        child["data"],
        json!({
            "int": i64::MIN, "double": 0.5, "bool": false, "bytes": "AP8QAQ==", "list": [1, null, ["\"\u{1}"]],
            "map": {"k": 1, "": "e"}, "none": null, "http.status_code": 201, "http.response.status_code": 201,
            "thread.id": "7", "thread.name": "worker", "otel.kind": "CLIENT", "otel.scope.name": "instrumentation",
            "otel.scope.version": "1.2", "sentry.status.message": "no room", "sentry.origin": "auto.mine",
            "otel.events": [{"name": "exception", "timestamp": 1_790_000_000.124_456,
                "attributes": {"exception.type": "E", "exception.message": "m"}}],
        })
    );
    assert_eq!(written.notes.invalid_values, 4, "two numbers that are none, and two links to nowhere");
    let text = String::from_utf8(written.json).unwrap();
    assert!(text.contains("\"start_timestamp\":1790000000.124456,\"timestamp\":1790000000.125456,"), "{text}");
}

/// Guarantees: profiler and thread are where Sentry looks for them; those that processors found take precedence over
/// those that the span names itself.
/// rule: sample-format-v2#profile-context, sample-format-v2#thread-id, sample-format-v2#linked-thread-name
/// rule: sample-format-v2#span-profiler-id, profiles-sdk#linking-fields, event-schema#profile-context
#[test]
fn profiler() {
    let own = "0123456789ab4def8123456789abcdef";
    let attributes = || texts(&[("sentry.profiler_id", own), ("thread.id", "1"), ("thread.name", "own")]);
    let spans = || {
        vec![span(1, 0, "root", SpanKind::Server, attributes()), span(2, 1, "child", SpanKind::Internal, attributes())]
    };
    let mut batch = batch(vec![], spans());
    let event = write(&batch).event;
    assert_eq!(event["contexts"]["profile"], json!({"profiler_id": own}));
    for data in [&event["contexts"]["trace"]["data"], &event["spans"][0]["data"]] {
        assert_eq!(
            (&data["profiler_id"], &data["thread.id"], &data["thread.name"]),
            (&json!(own), &json!("1"), &json!("own"))
        );
        assert_eq!(data.get("sentry.profiler_id"), None);
    }
    let found = ProfilerId::from_hash(7);
    let link = ProfilerLink { profiler_id: found, thread_id: Some("77".into()), thread_name: None };
    for position in [0, 1] {
        batch.change(position, |changes| changes.profiler = Some(link.clone()));
    }
    let event = write(&batch).event;
    assert_eq!(event["contexts"]["profile"], json!({"profiler_id": found.to_string()}));
    for data in [&event["contexts"]["trace"]["data"], &event["spans"][0]["data"]] {
        assert_eq!((&data["profiler_id"], &data["thread.id"]), (&json!(found.to_string()), &json!("77")));
        assert_eq!(data.get("thread.name"), None);
    }
    let wrong = written(span(1, 0, "n", SpanKind::Server, texts(&[("sentry.profiler_id", "7")])));
    assert_eq!((wrong.event["contexts"].get("profile"), wrong.notes.invalid_values), (None, 1));
    for (id, expected) in [(4711.0, Some("4711")), (4.5, None)] {
        let thread = vec![pair("thread.id", value_of(Any::DoubleValue(id)))];
        let double = written(span(1, 0, "n", SpanKind::Server, thread));
        let data = &double.event["contexts"]["trace"]["data"];
        assert_eq!(
            (data["thread.id"].as_str(), double.notes.invalid_values),
            (expected, u64::from(expected.is_none()))
        );
    }
}

/// Guarantees: a span always has the same event id, whatever its other content, and another span has another one.
/// rule: event-schema#event-id
#[test]
fn event_ids() {
    let of = |spans: Vec<_>| write(&batch(texts(&[("a", "b")]), spans)).summary.event_id;
    let root = || span(1, 0, "n", SpanKind::Server, vec![]);
    assert_eq!(of(vec![root()]), of(vec![root(), span(2, 1, "m", SpanKind::Internal, vec![])]));
    assert_ne!(of(vec![root()]), of(vec![span(2, 0, "n", SpanKind::Server, vec![])]));
    let mut other_trace = root();
    other_trace.trace_id = vec![1; 16];
    assert_ne!(of(vec![root()]), of(vec![other_trace]));
    assert_eq!(
        of(vec![root()]).simple().to_string(),
        "3e8db70a3ddb41da9e83d297e69c0dda",
        "as it was with the first release"
    );
}

/// Guarantees: a segment without a root becomes a transaction of its first span, which keeps its parent.
/// rule: event-schema#trace-ids
#[test]
fn without_a_root() {
    let spans = vec![
        span(3, 9, "later", SpanKind::Internal, vec![]),
        span(2, 9, "first", SpanKind::Internal, vec![]),
        span(4, 3, "child", SpanKind::Internal, vec![]),
    ];
    let batch = segmented(&batch(vec![], spans), |_| false);
    let event = write(&batch).event;
    assert_eq!(
        (&event["transaction"], &event["contexts"]["trace"]["parent_span_id"]),
        (&json!("first"), &json!("09".repeat(8)))
    );
    let children: Vec<_> = event["spans"].as_array().unwrap().iter().map(|span| &span["description"]).collect();
    assert_eq!(children, ["later", "child"], "in the order in which they began");
    assert_eq!(root(batch.spans()).unwrap().start_unix_nano, START + 2_000_000);
    assert_eq!(root(&[]), None);
}

fn trace_header(spans: &Spans) -> Value {
    let written = write(spans);
    let resource = TransactionResource::of(spans, &spans.resources()[0], "production");
    let dsn = "https://0123456789abcdef0123456789abcdef@sentry.example/42".parse().unwrap();
    let head = transaction_envelope::head(&written.summary, &resource, Some(&dsn));
    let lines: Vec<Value> = head.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["event_id"], written.event["event_id"]);
    assert_eq!(lines[1], json!({"type": "transaction", "content_type": "application/json"}));
    lines[0]["trace"].clone()
}

/// Guarantees: the envelope's trace header, member by member: names with identifiers are left out; the rate is that of
/// processors, else the span's own if it is valid.
/// rule: event-schema#trace-client-sample-rate
#[test]
fn trace() {
    let resource = || texts(&[("service.name", "shop")]);
    let of = |attributes| batch(resource(), vec![span(1, 0, "n", SpanKind::Server, attributes)]);
    let spans = of(vec![pair("sentry.sample_rate", value_of(Any::DoubleValue(0.25)))]);
    let expected = json!({
        "trace_id": "ab".repeat(16), "public_key": "0123456789abcdef0123456789abcdef", "sample_rate": "0.25",
        "sampled": "true", "transaction": "n", "release": "shop", "environment": "production",
    });
    assert_eq!(trace_header(&spans), expected);
    let resource_of = TransactionResource::of(&spans, &spans.resources()[0], "production");
    let head = transaction_envelope::head(&write(&spans).summary, &resource_of, None);
    let mut without_key: Value = serde_json::from_str(head.lines().next().unwrap()).unwrap();
    without_key["trace"]["public_key"] = json!("0123456789abcdef0123456789abcdef");
    assert_eq!(without_key["trace"], expected, "where no DSN is known nothing but its key is missing");
    let mut changed = spans;
    changed.change(0, |changes| changes.sample_rate = Some(0.125));
    assert_eq!(trace_header(&changed)["sample_rate"], "0.125");
    assert_eq!(write(&changed).event["contexts"]["trace"].get("client_sample_rate"), None);
    for (rate, expected) in [
        (int(1), json!("1")),
        (text("0.5"), json!("0.5")),
        (int(0), json!(null)),
        (int(2), json!(null)),
        (text("x"), json!(null)),
        (value_of(Any::DoubleValue(f64::NAN)), json!(null)),
        (value_of(Any::BoolValue(true)), json!(null)),
    ] {
        let spans = of(vec![pair("sentry.sample_rate", rate.clone())]);
        assert_eq!(trace_header(&spans)["sample_rate"], expected, "{rate:?}");
        assert_eq!(write(&spans).notes.invalid_values, u64::from(expected.is_null()));
    }
    let url = of(texts(&[("http.request.method", "GET"), ("url.path", "/u/7")]));
    assert_eq!(write(&url).summary.source, NameSource::Url);
    assert_eq!(trace_header(&url).get("transaction"), None);
}
