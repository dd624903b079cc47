use profbridge_model::envelope::EnvelopeBody;
use profbridge_model::{ItemView, ProfilerId};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::sentry::{envelope, profile_items, span_items};

const PYTHON: &[u8] = include_bytes!("../../../testdata/sentry/python-2.75-transaction.envelope");
const NODE: &[u8] = include_bytes!("../../../testdata/sentry/node-10.75-transaction.envelope");
const NODE_V1: &[u8] = include_bytes!("../../../testdata/sentry/node-10.75-v1-transaction+profile.envelope");
const NODE_SPANS: &[u8] = include_bytes!("../../../testdata/sentry/node-11.1-span.envelope");

const PROFILER: &str = "00000000000040008000000000000007";

/// An envelope with the views that a receiver creates.
fn viewed(bytes: impl Into<Bytes>) -> Envelope {
    let bytes = bytes.into();
    let mut envelope = envelope::read(bytes.clone()).unwrap().envelope;
    let mut views: Vec<ItemView> = profile_items::read_items(&envelope)
        .map(|(item, read)| ItemView::profiles(item, read.unwrap()))
        .chain(span_items::read_items(&envelope).map(|(item, read)| ItemView::spans(item, read.unwrap().spans)))
        .collect();
    views.sort_by_key(|view| view.item);
    envelope.views = views;
    envelope.received = Some(EnvelopeBody { body: bytes, content_encoding: None, changed: false });
    envelope
}

fn spans(envelope: &mut Envelope) -> &mut Spans {
    let spans = envelope.views.iter_mut().find_map(|view| match &mut view.what {
        Viewed::Spans(spans) => Some(spans),
        Viewed::Profiles(_) => None,
    });
    spans.unwrap()
}

fn link(thread: Option<&str>) -> SpanChanges {
    let profiler = ProfilerLink {
        profiler_id: ProfilerId::from_hash(7),
        thread_id: thread.map(Into::into),
        thread_name: thread.map(|_| "a \"b\"".into()),
    };
    SpanChanges { profiler: Some(profiler), sample_rate: None }
}

fn text(envelope: &Envelope) -> String {
    String::from_utf8(envelope::write(envelope, envelope::Ending::Bare).unwrap()).unwrap()
}

fn as_text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Replaces a text that must occur exactly `times` times.
fn replaced(text: &str, old: &str, new: &str, times: usize) -> String {
    assert_eq!(text.matches(old).count(), times, "{old}");
    text.replace(old, new)
}

/// Guarantees: profiler and thread are written where Sentry looks for them, in the transaction and in each of its
/// spans; the rate is written into the header's trace; nothing else changes.
#[test]
fn what_was_found_out_is_written() {
    let mut envelope = viewed(PYTHON);
    assert!(!is_changed(&envelope));
    spans(&mut envelope).change(0, |changes| *changes = SpanChanges { sample_rate: Some(0.25), ..link(Some("12")) });
    spans(&mut envelope).change(1, |changes| *changes = link(Some("13")));
    assert!(is_changed(&envelope));
    let ChangedEnvelope { envelope, losses, unwritten } = write(envelope);
    let envelope = envelope.unwrap();
    assert!(losses.is_none() && unwritten == 0 && !is_changed(&envelope) && envelope.received.is_none());

    let before = as_text(PYTHON);
    let expected = replaced(&before, "\"sample_rate\":\"1.0\"", "\"sample_rate\":\"0.25\"", 1);
    let (head, tail) = expected.split_once("\"spans\":[").unwrap();
    let old_data = r#""data":{"thread.id":"140669027109760","thread.name":"MainThread","profiler_id":"b6b5ee129b7a4ed98f28c712e4dcccd7"}"#;
    let head = replaced(
        head,
        old_data,
        r#""data":{"thread.id":"12","thread.name":"a \"b\"","profiler_id":"b6b5ee129b7a4ed98f28c712e4dcccd7"}"#,
        1,
    );
    let old = r#""profile":{"profiler_id":"b6b5ee129b7a4ed98f28c712e4dcccd7"}"#;
    let head = replaced(&head, old, &format!(r#""profile":{{"profiler_id":"{PROFILER}"}}"#), 1);
    let new_data = format!(r#""data":{{"thread.id":"13","thread.name":"a \"b\"","profiler_id":"{PROFILER}"}}"#);
    let tail = replaced(tail, old_data, &new_data, 1);
    let expected = format!("{head}\"spans\":[{tail}");
    let (_, payload) = expected.split_once("\"length\":1476}\n").unwrap();
    let expected = replaced(&expected, "1476", &payload.trim_end().len().to_string(), 1);
    assert_eq!(text(&envelope), expected.trim_end());
}

/// Guarantees: in a container they are typed attributes; missing parents are created, and an unknown thread stays
/// unchanged.
#[test]
fn containers() {
    let mut envelope = viewed(NODE_SPANS);
    spans(&mut envelope).change(0, |changes| *changes = link(Some("0")));
    spans(&mut envelope).change(1, |changes| *changes = link(None));
    let written = write(envelope).envelope.unwrap();
    let expected = replaced(
        &as_text(NODE_SPANS),
        r#""sentry.is_localhost":{"value":false,"type":"boolean"}}},{"name":"demo-node-work""#,
        &format!(
            r#""sentry.is_localhost":{{"value":false,"type":"boolean"}},"sentry.profiler_id":{{"value":"{PROFILER}","type":"string"}},"thread.id":{{"value":"0","type":"string"}},"thread.name":{{"value":"a \"b\"","type":"string"}}}}}},{{"name":"demo-node-work""#
        ),
        1,
    );
    let expected = replaced(&expected, "29a0028e3c8648e8ba8a369c9a501923", PROFILER, 1);
    assert_eq!(text(&written), expected.trim_end());

    let mut envelope =
        viewed(replaced(&as_text(NODE), r#""profile":{"profiler_id":"467e51c4a51447579cdb94ffa211fb53"},"#, "", 1));
    spans(&mut envelope).change(0, |changes| *changes = link(None));
    let written = write(envelope).envelope.unwrap();
    let json: Value = serde_json::from_slice(written.items[0].payload.plain().unwrap()).unwrap();
    assert_eq!(json["contexts"]["profile"]["profiler_id"], PROFILER);
    assert_eq!(json["contexts"]["trace"]["data"]["thread.id"], "0");
}

/// Guarantees: attributes of any type, nested and mixed, stay beside those that are written; a thread of any type is
/// replaced; if a span's attributes are no object, its changes are counted as not written.
/// rule: transport#span-attributes
#[test]
fn odd_attributes() {
    for (attributes, lost) in [
        (json!({"a": [1, "x", {"b": null}], "c": {"value": {"d": [[7.5, "y"]]}, "type": "string"}, "e": 7}), 0),
        (json!({"thread.id": {"value": [7], "type": "array"}, "sentry.profiler_id": null}), 0),
        (Value::Null, 0),
        (json!(7), 4),
        (json!([1]), 4),
    ] {
        let mut span = made(1, true)["items"][0].clone();
        span["attributes"] = attributes.clone();
        let kind = format!("\"span\",\"item_count\":1,\"content_type\":\"{}\"", span_v2_reader::CONTENT_TYPE);
        let container = json!({"version": 2, "items": [span]});
        let mut envelope = viewed(format!("{{}}\n{{\"type\":{kind}}}\n{container}\n"));
        spans(&mut envelope).change(0, |changes| *changes = SpanChanges { sample_rate: Some(0.5), ..link(Some("1")) });
        let ChangedEnvelope { envelope, unwritten, .. } = write(envelope);
        assert_eq!(unwritten, lost, "{attributes}");
        let mut expected = container;
        if lost == 0 {
            let object = &mut expected["items"][0]["attributes"];
            object["sentry.client_sample_rate"] = json!({"value": 0.5, "type": "double"});
            let texts = [("sentry.profiler_id", PROFILER), ("thread.id", "1"), ("thread.name", "a \"b\"")];
            texts.iter().for_each(|(key, text)| object[*key] = json!({"value": text, "type": "string"}));
        }
        let payload = envelope.unwrap().items[0].payload.plain().unwrap().clone();
        assert_eq!(serde_json::from_slice::<Value>(&payload).unwrap(), expected, "{attributes}");
    }
}

/// Guarantees: a removed span is no longer in its item, whose header has the new number; removing a transaction's own
/// span removes the transaction and its V1 profile, which is counted; an item without spans is removed; other items
/// stay.
#[test]
fn what_was_left_out_is_gone() {
    let mut envelope = viewed(NODE_SPANS);
    spans(&mut envelope).retain(|position, _| position == 1);
    let written = write(envelope).envelope.unwrap();
    assert_eq!(written.quantities(), Quantities::spans(1));
    assert_eq!(ItemHeader::read(&written.items[0].header).unwrap().item_count, Some(1));
    let json: Value = serde_json::from_slice(written.items[0].payload.plain().unwrap()).unwrap();
    assert_eq!((json["items"].as_array().unwrap().len(), &json["items"][0]["is_segment"]), (1, &json!(true)));

    let mut envelope = viewed(NODE_SPANS);
    spans(&mut envelope).retain(|_, _| false);
    let ChangedEnvelope { envelope, losses, unwritten } = write(envelope);
    assert!(envelope.is_none() && losses.is_none() && unwritten == 0);

    let mut envelope = viewed(PYTHON);
    spans(&mut envelope).retain(|position, _| position == 0);
    let written = write(envelope).envelope.unwrap();
    assert_eq!(written.quantities(), Quantities::spans(1));
    let json: Value = serde_json::from_slice(written.items[0].payload.plain().unwrap()).unwrap();
    assert_eq!(json["spans"], json!([]));

    for all in [true, false] {
        let mut envelope = viewed([NODE_V1, b"\n{\"type\":\"attachment\"}\nok"].concat());
        spans(&mut envelope).retain(|position, _| !all && position == 1);
        let before = envelope.quantities();
        let ChangedEnvelope { envelope, losses, .. } = write(envelope);
        let (envelope, lost) = (envelope.unwrap(), losses.get(Reason::NoTransaction));
        assert_eq!(lost, Quantities { observations: 89, ..Quantities::spans(u64::from(!all)) });
        assert_eq!((envelope.quantities() + lost, envelope.quantities()), (before, Quantities::items(1)));
        assert_eq!(&envelope.items[0].payload.plain().unwrap()[..], b"ok");
    }
}

/// Guarantees: a profile without observations is removed from its envelope, and all other items stay byte for byte.
#[test]
fn left_out_profiles_are_gone() {
    let mut envelope = viewed([NODE_V1, b"\n{\"type\":\"attachment\"}\nok"].concat());
    let before: Vec<Item> = envelope.items.clone();
    assert!(!is_changed(&envelope));
    for view in &mut envelope.views {
        if let Viewed::Profiles(profiles) = &mut view.what {
            *profiles = profiles.with_resources(Vec::new()).unwrap();
        }
    }
    assert!(is_changed(&envelope));
    let ChangedEnvelope { envelope, losses, unwritten } = write(envelope);
    let envelope = envelope.unwrap();
    assert!(losses.is_none() && unwritten == 0);
    assert_eq!(envelope.items, [before[0].clone(), before[2].clone()]);
    assert!(!is_changed(&envelope), "what was written is not written again");
}

/// Guarantees: impossible changes are counted, and all others are written: something else is in the place, the item
/// would exceed Sentry's limit, or the header has no trace.
#[test]
fn what_cannot_be_written() {
    let (_, rest) = std::str::from_utf8(PYTHON).unwrap().split_once('\n').unwrap();
    let mut envelope = viewed(format!("{{}}\n{rest}"));
    spans(&mut envelope).change(0, |changes| changes.sample_rate = Some(0.5));
    let ChangedEnvelope { envelope, unwritten, .. } = write(envelope);
    assert_eq!((text(&envelope.unwrap()), unwritten), (format!("{{}}\n{}", rest.trim_end()), 1));

    let odd = json!({"contexts": {"trace": {"trace_id": "745e5a279d06439a81f3ebd9c4fdee8c",
        "span_id": "9aa541f6c13dbf68", "data": [1]}}, "start_timestamp": 1, "timestamp": 2});
    let of = |payload: String| format!("{{}}\n{{\"type\":\"transaction\"}}\n{payload}");
    let mut envelope = viewed(of(odd.to_string()));
    spans(&mut envelope).change(0, |changes| *changes = link(Some("1")));
    let ChangedEnvelope { envelope, unwritten, .. } = write(envelope);
    let json: Value = serde_json::from_slice(envelope.unwrap().items[0].payload.plain().unwrap()).unwrap();
    assert_eq!((unwritten, &json["contexts"]["profile"]["profiler_id"]), (2, &json!(PROFILER)));
    assert_eq!(json["contexts"]["trace"]["data"], json!([1]));

    let mut large = odd;
    large["extra"] = "x".repeat(transaction_reader::MAX_BYTES - 200).into();
    let came = of(large.to_string());
    let mut envelope = viewed(came.clone());
    spans(&mut envelope).change(0, |changes| *changes = link(Some("1")));
    let ChangedEnvelope { envelope, unwritten, .. } = write(envelope);
    assert_eq!((text(&envelope.unwrap()) == came, unwritten), (true, 1));
}

/// A transaction or a container with some spans; every fourth span is invalid.
fn made(spans: usize, v2: bool) -> Value {
    let (end, data) = if v2 { ("end_timestamp", "attributes") } else { ("timestamp", "data") };
    let span = |number: usize| {
        let id = if number % 4 == 3 { "no id".to_owned() } else { format!("{:016x}", number + 1) };
        let mut span =
            json!({"trace_id": "745e5a279d06439a81f3ebd9c4fdee8c", "span_id": id, "start_timestamp": 1, "n": number});
        span[end] = json!(2);
        match number % 3 {
            0 => span[data] = json!({"x": number}),
            1 => span[data] = Value::Null,
            _ => {}
        }
        span
    };
    let list: Vec<Value> = (0..spans).map(span).collect();
    if v2 {
        return json!({"version": 2, "items": list});
    }
    json!({"contexts": {"trace": {"trace_id": "745e5a279d06439a81f3ebd9c4fdee8c", "span_id": "00000000000000ff"}},
           "start_timestamp": 1, "timestamp": 2, "spans": list})
}

proptest! {
    /// Guarantees: for any removals and changes, the remaining spans are in the item in order, with their changes and
    /// otherwise unmodified; unread ones stay; the counts match the envelope.
    #[test]
    fn any_changes(
        kept in prop::collection::vec(any::<bool>(), 0..12),
        changed in prop::collection::vec(any::<bool>(), 12),
        v2 in any::<bool>(),
        is_pretty in any::<bool>(),
    ) {
        let json = made(kept.len(), v2);
        let payload = if is_pretty { serde_json::to_string_pretty(&json) } else { serde_json::to_string(&json) }.unwrap();
        let kind = if v2 { format!("\"span\",\"item_count\":{},\"content_type\":\"{}\"", kept.len(), span_v2_reader::CONTENT_TYPE) } else { "\"transaction\"".to_owned() };
        let mut envelope = viewed(format!("{{}}\n{{\"type\":{kind},\"length\":{}}}\n{payload}\n", payload.len()));
        let number = |span: &Span| (u64::from_be_bytes(*span.span_id.bytes()) - 1) as usize;
        let is_root = |span: &Span| *span.span_id.bytes() == [0, 0, 0, 0, 0, 0, 0, 0xff];
        let view = spans(&mut envelope);
        view.retain(|_, span| is_root(span) || kept[number(span)]);
        let positions: Vec<usize> = view.spans().iter().enumerate()
            .filter(|(_, span)| !is_root(span) && changed[number(span)]).map(|(position, _)| position).collect();
        for position in positions {
            view.change(position, |changes| *changes = link(Some("1")));
        }
        let left = view.spans().len() as u64;
        let ChangedEnvelope { envelope, losses, unwritten } = write(envelope);
        prop_assert!(losses.is_none() && unwritten == 0);

        let list = if v2 { "items" } else { "spans" };
        let mut expected = json;
        let all = expected[list].as_array().unwrap().clone();
        let all = all.into_iter().enumerate().filter(|(at, _)| at % 4 == 3 || kept[*at]).map(|(at, mut span)| {
            if at % 4 != 3 && changed[at] {
                match v2 {
                    false => {
                        span["data"]["profiler_id"] = PROFILER.into();
                        span["data"]["thread.id"] = "1".into();
                        span["data"]["thread.name"] = "a \"b\"".into();
                    }
                    true => {
                        span["attributes"]["sentry.profiler_id"] = json!({"value": PROFILER, "type": "string"});
                        span["attributes"]["thread.id"] = json!({"value": "1", "type": "string"});
                        span["attributes"]["thread.name"] = json!({"value": "a \"b\"", "type": "string"});
                    }
                }
            }
            span
        });
        let all: Vec<Value> = all.collect();
        let Some(envelope) = envelope else {
            prop_assert!(v2 && all.is_empty());
            return Ok(());
        };
        let count = all.len() as u64;
        expected[list] = all.into();
        let payload = envelope.items[0].payload.plain().unwrap();
        prop_assert_eq!(serde_json::from_slice::<Value>(payload).unwrap(), expected);
        let header = ItemHeader::read(&envelope.items[0].header).unwrap();
        prop_assert_eq!((header.length, header.item_count), (Some(payload.len() as u64), v2.then_some(count)));
        prop_assert_eq!(envelope.quantities().spans, left);
    }
}
