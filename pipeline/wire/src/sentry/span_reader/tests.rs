use bytes::Bytes;
use profbridge_model::{SpanForm, Spans};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::sentry::{envelope, span_items, span_v2_reader, transaction_reader};
use crate::spans::SpanView;

const PYTHON: &[u8] = include_bytes!("../../../testdata/sentry/python-2.75-transaction.envelope");
const NODE: &[u8] = include_bytes!("../../../testdata/sentry/node-10.75-transaction.envelope");
const NODE_V1: &[u8] = include_bytes!("../../../testdata/sentry/node-10.75-v1-transaction+profile.envelope");
const NODE_SPANS: &[u8] = include_bytes!("../../../testdata/sentry/node-11.1-span.envelope");
const CHUNK: &[u8] = include_bytes!("../../../testdata/sentry/node-11.1-profile_chunk.envelope");

const TRACE: &str = "745e5a279d06439a81f3ebd9c4fdee8c";
const ID: &str = "9aa541f6c13dbf68";

fn read_all(bytes: &'static [u8]) -> Vec<(usize, ReadSpans)> {
    let envelope = envelope::read(Bytes::from_static(bytes)).unwrap().envelope;
    span_items::read_items(&envelope).map(|(item, read)| (item, read.unwrap())).collect()
}

fn transaction(json: &Value) -> Result<ReadSpans, SpansError> {
    transaction_reader::read(&Bytes::from(json.to_string()), &TraceHeader::default())
}

/// Formats spans as lines: ids, parent, milliseconds, whether the parent is remote, and the sampling decision.
fn lines(spans: &Spans) -> Vec<String> {
    let line = |span: &Span| {
        let parent = span.parent_span_id.map(|id| id.to_string()).unwrap_or_default();
        let micros = (span.end_unix_nano - span.start_unix_nano) / 1000;
        let Span { trace_id, span_id, parent_is_remote, sampled, .. } = span;
        format!("{trace_id} {span_id} in {parent:?} {micros} us, {parent_is_remote:?}, {sampled:?}")
    };
    spans.spans().iter().map(line).collect()
}

/// Guarantees: spans of real SDKs become a batch with the ids and times of every span, the trace header's decision, and
/// the range of each span's object in the payload.
#[test]
fn real_spans() {
    let mut all = Vec::new();
    for (bytes, form, key) in [
        (PYTHON, SpanForm::SentryTransaction, "spans"),
        (NODE, SpanForm::SentryTransaction, "spans"),
        (NODE_V1, SpanForm::SentryTransaction, "spans"),
        (NODE_SPANS, SpanForm::SentrySpans, "items"),
    ] {
        let [(0, ReadSpans { spans, unread: 0, first_unread: None })] = &read_all(bytes)[..] else { panic!() };
        assert_eq!((spans.form(), spans.received()), (form, Some(spans.bytes())));
        let payload: Value = serde_json::from_slice(spans.bytes()).unwrap();
        let elements = payload[key].as_array().unwrap().clone();
        let is_transaction = form == SpanForm::SentryTransaction;
        let places = is_transaction.then_some(payload).into_iter().chain(elements);
        assert_eq!(spans.spans().len(), 2);
        for (span, json) in spans.spans().iter().zip(places) {
            assert_eq!(serde_json::from_slice::<Value>(spans.get(span.at)).unwrap(), json);
        }
        all.extend(lines(spans));
    }
    let no_parent = |at: usize| all[at].contains("in \"\"") && all[at].contains("None, Some(true)");
    assert_eq!([0, 2, 4, 7].map(no_parent), [true; 4], "{all:#?}");
    assert_eq!(all[0], "745e5a279d06439a81f3ebd9c4fdee8c 9aa541f6c13dbf68 in \"\" 1401520 us, None, Some(true)");
    assert_eq!(
        all[1],
        "745e5a279d06439a81f3ebd9c4fdee8c 82461913a4c244a5 in \"9aa541f6c13dbf68\" 800111 us, Some(false), Some(true)"
    );
    assert_eq!(
        all[6],
        "9a643ac8ac254355bcd87590f11d228b ba2d8b8d2c6e0137 in \"b120b7fb81b78ca4\" 700110 us, Some(false), Some(true)"
    );
    assert_eq!(read_all(CHUNK).len(), 0);
}

fn valid() -> Value {
    json!({
        "type": "transaction",
        "contexts": {"trace": {"trace_id": TRACE, "span_id": ID, "parent_span_id": "00000000000000ff"}},
        "start_timestamp": 10, "timestamp": "1970-01-01T00:00:11.5",
        "spans": [child()],
    })
}

fn child() -> Value {
    json!({"trace_id": TRACE.to_uppercase(), "span_id": "00000000000000aa", "parent_span_id": ID,
           "start_timestamp": 10.25, "timestamp": 10.5})
}

/// Guarantees: times are read as numbers and as text, ids in any case; a transaction's own parent is remote, a span's
/// is not; the transaction's own decision wins over the header's.
#[test]
fn what_is_read() {
    let ReadSpans { spans, .. } = transaction(&valid()).unwrap();
    assert_eq!(
        lines(&spans),
        [
            format!("{TRACE} {ID} in \"00000000000000ff\" 1500000 us, Some(true), None"),
            format!("{TRACE} 00000000000000aa in \"{ID}\" 250000 us, Some(false), None"),
        ]
    );
    assert!(spans.spans()[0].is_local_root() && !spans.spans()[1].is_local_root());

    let mut decided = valid();
    decided["contexts"]["trace"]["sampled"] = false.into();
    let header = TraceHeader::read(br#"{"trace":{"sampled":"true"}}"#);
    let read = transaction_reader::read(&Bytes::from(decided.to_string()), &header).unwrap();
    assert!(read.spans.spans().iter().all(|span| span.sampled == Some(false)));

    let padded = Bytes::from(format!(" \n{} ", valid()));
    let read = transaction_reader::read(&padded, &TraceHeader::default()).unwrap();
    assert_eq!(read.spans.get(read.spans.spans()[0].at), padded.trim_ascii());
}

/// Guarantees: an invalid span is left unread and reported, its neighbours are read; if a transaction itself breaks the
/// same rule, nothing is read.
#[test]
fn rules() {
    for (key, value, rule) in [
        ("trace_id", Value::Null, "trace_id: is missing"),
        ("trace_id", json!("4bf9"), "trace_id: is not 32 hexadecimal digits, or all zero"),
        ("trace_id", json!("0".repeat(32)), "trace_id: is not 32 hexadecimal digits, or all zero"),
        ("span_id", Value::Null, "span_id: is missing"),
        ("span_id", json!("é"), "span_id: is not 16 hexadecimal digits, or all zero"),
        ("parent_span_id", json!("x"), "parent_span_id: is not 16 hexadecimal digits, or all zero"),
        ("parent_span_id", json!("00000000000000aa"), "parent_span_id: is the span itself"),
        ("start_timestamp", Value::Null, "start_timestamp: is missing"),
        ("timestamp", Value::Null, "timestamp: is missing"),
        ("timestamp", json!(10.2), "timestamp: is before the start"),
    ] {
        let mut broken = child();
        broken[key] = value.clone();
        let mut whole = valid();
        whole["spans"] = json!([broken, child()]);
        let read = transaction(&whole).unwrap();
        assert_eq!((read.spans.spans().len(), read.unread), (2, 1), "{rule}");
        assert_eq!(read.first_unread.unwrap().to_string(), format!("spans[0].{rule}"));

        let mut whole = valid();
        let is_time = key.contains("timestamp");
        let root = if is_time { &mut whole } else { &mut whole["contexts"]["trace"] };
        root[key] = if key == "parent_span_id" && rule.contains("itself") { json!(ID) } else { value.clone() };
        if rule.contains("before") {
            root[key] = json!(9);
        }
        assert_eq!(transaction(&whole).unwrap_err().to_string(), rule);
    }
    for wrong in [json!(null), json!(7), json!([]), json!({"span_id": 7})] {
        let mut whole = valid();
        whole["spans"] = json!([wrong, child()]);
        assert_eq!(transaction(&whole).unwrap().unread, 1);
    }
    let without = |change: fn(&mut Value)| {
        let mut whole = valid();
        change(&mut whole);
        transaction(&whole).map(|read| read.spans.spans().len()).map_err(|error| error.to_string())
    };
    assert_eq!(without(|whole| whole["spans"] = Value::Null), Ok(1));
    assert_eq!(without(|whole| drop(whole.as_object_mut().unwrap().remove("spans"))), Ok(1));
    assert!(without(|whole| whole["spans"] = json!({})).unwrap_err().contains("wrong type"));
    assert_eq!(without(|whole| whole["contexts"] = json!({})), Err("contexts.trace: is missing".to_owned()));
    assert_eq!(without(|whole| whole["contexts"] = Value::Null), Err("contexts.trace: is missing".to_owned()));
    assert!(without(|whole| whole["timestamp"] = json!("noon")).is_err());
}

/// Guarantees: a container is read if its header has the number of its spans and its version is 2 or missing.
#[test]
fn containers() {
    let element = |change: Value| {
        let mut span = json!({"trace_id": TRACE, "span_id": ID, "start_timestamp": 1, "end_timestamp": 2});
        span.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        span
    };
    let read = |container: Value, count: Option<u64>| {
        let payload = Bytes::from(container.to_string());
        span_v2_reader::read(&payload, count, &TraceHeader::default()).map_err(|error| error.to_string())
    };
    let two = json!([
        element(json!({"parent_span_id": "00000000000000ff", "is_segment": true})),
        element(json!({"parent_span_id": "00000000000000ff", "is_segment": false})),
        element(json!({"parent_span_id": "00000000000000ff"})),
        element(json!({"span_id": "00"})),
    ]);
    let ReadSpans { spans, unread, first_unread } = read(json!({"version": 2, "items": two}), Some(4)).unwrap();
    let remote: Vec<_> = spans.spans().iter().map(|span| span.parent_is_remote).collect();
    assert_eq!((remote, unread), (vec![Some(true), Some(false), Some(false)], 1));
    assert!(first_unread.unwrap().to_string().starts_with("items[3].span_id: "));
    assert_eq!(read(json!({"items": two}), Some(4)).unwrap().unread, 1);
    assert_eq!(read(json!({"items": []}), Some(0)).unwrap().spans.spans().len(), 0);
    assert!(read(json!({"version": 1, "items": two}), Some(4)).unwrap_err().contains("version"));
    for count in [None, Some(3), Some(5)] {
        assert!(read(json!({"version": 2, "items": two}), count).unwrap_err().contains("item_count"));
    }
    assert!(read(json!({"version": 2}), Some(0)).is_err());
}

/// Guarantees: of a container the spans are read that keep the rules, also two with one id, and of several traces;
/// attributes of any type, and missing ones, do not matter.
/// rule: transport#span-invalid, transport#span-attributes
#[test]
fn odd_spans_of_containers() {
    let span = |changes: Value| {
        let mut span = json!({"trace_id": TRACE, "span_id": ID, "name": "x", "start_timestamp": 1, "end_timestamp": 2});
        span.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        span
    };
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let attributes = [
        Value::Null,
        json!(7),
        json!("x"),
        json!([1, "x", null]),
        json!({"a": 7, "b": {"value": [1, "x", {"c": [null]}], "type": "array"}, "d": {"value": u64::MAX}}),
        json!({"thread.id": {"value": {"value": 7}}, "sentry.segment.id": {"value": 7}, "sentry.segment.name": null}),
    ];
    let mut items: Vec<Value> = attributes.iter().map(|of| span(json!({"attributes": of}))).collect();
    items.push(span(json!({"trace_id": "0123456789ABCDEF-0123456789ABCDEF".replace('-', "")})));
    items.push(span(json!({"start_timestamp": 3})));
    items.push(span(json!({"end_timestamp": null})));
    let text =
        json!({"version": 2, "items": items}).to_string().replacen("\"name\":\"x\"", &format!("\"n\":{deep}"), 1);
    let read = span_v2_reader::read(&Bytes::from(text), Some(9), &TraceHeader::default()).unwrap();
    assert_eq!((read.spans.spans().len(), read.unread), (7, 2));
    assert_eq!(read.first_unread.unwrap().to_string(), "items[7].timestamp: is before the start");
    for span in read.spans.spans() {
        let view = SpanView::of(&read.spans, span);
        assert_eq!((view.segment_id(), view.segment_name(), view.profiler_id()), (None, None, None));
        assert_eq!((view.attribute("thread.id"), view.attribute("b"), view.attribute("a")), (None, None, None));
    }
    assert!(SpanView::of(&read.spans, &read.spans.spans()[4]).attribute("d").is_some());
}

/// Attack: malformed JSON, nesting of a hundred thousand levels, millions of invalid elements, duplicate keys, too
/// large payloads.
/// Guarantees: they are not read, or their elements are counted; the errors are short and quote no values.
#[test]
fn attacks() {
    let deep = "[".repeat(100_000);
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let of = |text: String| transaction_reader::read(&Bytes::from(text), &TraceHeader::default());
    let secret = "\"5ec2e7\"";
    for text in [
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        deep.clone(),
        format!("{{\"spans\":{deep}"),
        format!("{{\"contexts\":{nested}}}"),
        format!("{{\"contexts\":{secret}}}"),
        format!("{{\"timestamp\":{secret}}}"),
        "{\"timestamp\":1,\"timestamp\":2}".to_owned(),
        "{\"contexts\":{\"trace\":{\"trace_id\":7}}}".to_owned(),
        "\u{0}".to_owned(),
    ] {
        let error = of(text).unwrap_err().to_string();
        assert!(error.len() < 200 && !error.contains("5ec2e7"), "{error}");
    }
    let bytes = Bytes::from_static(b"{\"timestamp\":\"\xff\"}");
    assert!(transaction_reader::read(&bytes, &TraceHeader::default()).is_err());

    // Unknown keys may nest to any depth.
    let with = |key: &str, value: &str| valid().to_string().replacen('{', &format!("{{\"{key}\":{value},"), 1);
    assert_eq!(of(with("extra", &nested)).unwrap().spans.spans().len(), 2);

    let mut many = valid();
    many["spans"] = Value::Null;
    let many = many.to_string().replace("\"spans\":null", &format!("\"spans\":[{}1]", "1,".repeat(400_000)));
    let read = of(many).unwrap();
    assert_eq!((read.spans.spans().len(), read.unread), (1, 400_001));
    assert!(read.spans.size_bytes() < 2 << 20);

    let large = format!("{}{}", valid(), " ".repeat(transaction_reader::MAX_BYTES));
    assert!(matches!(of(large), Err(SpansError::TooLarge { .. })));
    let container = format!("{{\"items\":[{}1]}}", "1,".repeat(4_000_000));
    let read = span_v2_reader::read(&Bytes::from(container), Some(4_000_001), &TraceHeader::default()).unwrap();
    assert_eq!((read.spans.spans().len(), read.unread), (0, 4_000_001));
}

proptest! {
    /// Guarantees: for any mutation of a payload, the ranges of spans are JSON objects of the payload, and read plus
    /// unread spans equal the number of elements.
    #[test]
    fn mutations(cut in 0..1500usize, len in 0..8usize, put in "[\\[\\]{}\",:0a ]{0,4}", v2 in any::<bool>()) {
        let source = &read_all(if v2 { NODE_SPANS } else { PYTHON })[0].1.spans;
        let mut bytes = source.bytes().to_vec();
        bytes.splice(cut.min(bytes.len())..(cut + len).min(bytes.len()), put.bytes());
        let payload = Bytes::from(bytes);
        let header = TraceHeader::default();
        let read = match v2 {
            true => span_v2_reader::read(&payload, Some(2), &header),
            false => transaction_reader::read(&payload, &header),
        };
        if let Ok(ReadSpans { spans, unread, .. }) = read {
            for span in spans.spans() {
                let object = spans.get(span.at);
                prop_assert_eq!((object.first(), object.last()), (Some(&b'{'), Some(&b'}')));
            }
            if let Ok(json) = serde_json::from_slice::<Value>(&payload) {
                let listed = json[if v2 { "items" } else { "spans" }].as_array().map_or(0, Vec::len);
                prop_assert_eq!(spans.spans().len() + unread as usize, listed + usize::from(!v2));
            }
        }
    }
}
