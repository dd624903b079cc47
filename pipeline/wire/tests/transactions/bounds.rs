//! Too many spans, too much data, too long texts.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use profbridge_model::{Quantities, Reason};
use profbridge_wire::sentry::transaction::limits::{MAX_SPANS, MAX_TRANSACTION_BYTES};
use serde_json::json;

use crate::transactions::support::{MS, START, batch, event, int, list, pair, span, text, texts, write};

/// The transaction of a root with `count` children in reverse order of time, each with a text of `bytes(number)` bytes.
fn many(count: usize, bytes: impl Fn(usize) -> usize, name: &str) -> crate::transactions::support::WrittenTransaction {
    let mut spans = vec![span(1, 0, "root", SpanKind::Server, vec![])];
    for number in (0..count).rev() {
        let mut child = span(2, 1, name, SpanKind::Internal, vec![pair("number", int(number as i64))]);
        child.span_id = (number as u64 + 1000).to_be_bytes().to_vec();
        child.start_time_unix_nano = START + number as u64;
        child.end_time_unix_nano = START + MS;
        if bytes(number) > 0 {
            child.attributes.push(pair("large", text(&"x".repeat(bytes(number)))));
        }
        spans.push(child);
    }
    write(&batch(vec![], spans))
}

/// Guarantees: of more than a thousand spans, the earliest are kept and the others are counted.
/// rule: event-schema#event-spans, tracing-sdk#max-spans
#[test]
fn too_many_spans() {
    let written = many(MAX_SPANS + 7, |_| 0, "n");
    assert_eq!(written.losses.get(Reason::LimitExceeded), Quantities::spans(7));
    assert_eq!((written.losses.total(), written.summary.spans), (Quantities::spans(7), MAX_SPANS as u64 + 1));
    let numbers: Vec<_> = written.event["spans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|span| span["data"]["number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..MAX_SPANS as u64).collect::<Vec<_>>());
}

/// Guarantees: a transaction that is too large loses its largest data first, no more than necessary, and no span.
/// rule: event-schema#event-spans
#[test]
fn the_largest_data_goes() {
    let written = many(40, |number| if number % 10 == 3 { 60_000 } else { 30_000 }, "n");
    assert!(written.losses.is_none());
    assert_eq!((written.summary.spans, written.notes.shed_data), (41, 6));
    let spans = written.event["spans"].as_array().unwrap();
    let without: Vec<_> = (0..40).filter(|number| spans[*number]["data"].get("number").is_none()).collect();
    assert_eq!(without.len(), 6);
    assert!([3, 13, 23, 33].iter().all(|number| without.contains(number)), "{without:?}");
    assert!(written.json.len() > MAX_TRANSACTION_BYTES - 30_200, "no more than it takes: {}", written.json.len());
    assert_eq!(spans[3]["data"], json!({"sentry.origin": "auto.otlp.spans"}));
}

/// Guarantees: a transaction that is too large even without data loses its latest spans.
/// rule: event-schema#event-spans
#[test]
fn too_large_without_data() {
    let written = many(900, |_| 10, &"n".repeat(2000));
    let lost = written.losses.get(Reason::TooLarge).spans;
    assert_eq!(written.summary.spans + lost, 901);
    assert!((370..450).contains(&lost), "{lost}");
    let spans = written.event["spans"].as_array().unwrap();
    assert!(spans.last().unwrap()["start_timestamp"].as_f64() <= Some((START + 900 - lost) as f64 / 1e9));
    assert!(written.json.len() > MAX_TRANSACTION_BYTES - 200_000);
}

/// Attack: a span of forty megabytes, in one text, many texts or nested lists, loses its data and nothing else.
/// rule: event-schema#event-spans
#[test]
fn one_huge_span() {
    let long = text(&"\u{1}".repeat(10 << 20));
    let small = list((0..100).map(|_| text(&"\u{1}".repeat(1000))).collect());
    for attributes in [
        vec![pair("a", long.clone()), pair("b", long.clone())],
        (0..100_000).map(|number| pair(&format!("key.{number}"), text(&"x".repeat(100)))).collect(),
        vec![pair("a", list(vec![list((0..100).map(|_| small.clone()).collect())]))],
    ] {
        let mut root = span(1, 0, "root", SpanKind::Server, attributes.clone());
        root.events = vec![event("e", attributes.clone())];
        let child = span(2, 1, "child", SpanKind::Internal, attributes);
        let written = write(&batch(vec![], vec![root, child]));
        assert!(written.losses.is_none());
        assert_eq!(written.event["spans"][0]["description"], "child");
        assert_eq!(written.event["contexts"]["trace"]["status"], "ok");
        assert!(written.notes.shed_data + written.notes.truncated_texts > 0);
    }
    let spans = batch(vec![pair("r", list(vec![small; 100]))], vec![span(1, 0, "n", SpanKind::Server, vec![])]);
    assert_eq!(write(&spans).notes.shed_data, 1, "a resource of ten megabytes is left out as well");
}

/// Attack: spans that would become a third of a gigabyte of JSON lose data until they fit, but no span is lost.
#[test]
fn far_too_much_data() {
    // A byte that becomes six bytes in JSON.
    let large = "\u{1}".repeat(60_000);
    let mut spans = vec![span(1, 0, "root", SpanKind::Server, vec![])];
    for number in 0..900_u64 {
        let mut child = span(2, 1, "child", SpanKind::Internal, texts(&[("k", &large)]));
        child.span_id = (number + 1000).to_be_bytes().to_vec();
        spans.push(child);
    }
    let written = write(&batch(vec![], spans));
    assert!(written.losses.is_none());
    assert!(written.notes.shed_data >= 898, "{}", written.notes.shed_data);
}

/// Guarantees: headers, tags, events, names, descriptions and hosts are limited, and what exceeds a limit is counted.
/// rule: event-schema#event-transaction, event-schema#event-tags, event-schema#request
#[test]
fn of_each_field() {
    let mut attributes = vec![pair("http.request.method", text("GET"))];
    attributes.extend((0..200).map(|number| pair(&format!("http.request.header.h{number}"), text("v"))));
    attributes.push(pair("url.full", text(&format!("http://h/{}", "x".repeat(10_000)))));
    let mut root = span(1, 0, "root", SpanKind::Server, attributes);
    root.events = vec![event("e", vec![]); 130];
    let child = span(2, 1, &"n".repeat(10_000), SpanKind::Internal, vec![]);
    let mut resource: Vec<_> = (0..200).map(|number| pair(&format!("tag{number}"), int(1))).collect();
    resource.push(pair("host.name", text(&"h".repeat(2000))));
    let written = write(&batch(resource, vec![root, child]));
    let event = &written.event;
    assert_eq!(event["request"]["headers"].as_object().unwrap().len(), 128);
    assert_eq!(event["tags"].as_object().unwrap().len(), 128);
    assert_eq!(event["contexts"]["trace"]["data"]["otel.events"].as_array().unwrap().len(), 128);
    assert_eq!(event["transaction"].as_str().unwrap().chars().count(), 200);
    for (text, max) in
        [(&event["request"]["url"], 4096), (&event["spans"][0]["description"], 4096), (&event["server_name"], 1024)]
    {
        let text = text.as_str().unwrap();
        assert!(text.len() <= max && text.len() > max - 4 && text.ends_with('…'), "{}", text.len());
    }
    assert_eq!((written.notes.invalid_values, written.notes.truncated_texts), (72 + 2, 4));
}
