use super::quantities as read;
use super::*;

/// A request with this many spans, in JSON.
pub(super) fn spans_json(count: u64) -> String {
    let spans: Vec<String> = (1..=count)
        .map(|n| format!(r#"{{"traceId":"{n:032x}","spanId":"{n:016x}","name":"GET /","startTimeUnixNano":"{n}","endTimeUnixNano":"{}"}}"#, n + 5))
        .collect();
    format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(","))
}

/// A request with this many spans, in protobuf.
pub(super) fn spans(count: u64) -> Vec<u8> {
    let (message, limits) = (otlp::json::Message::TracesRequest, Limits::default());
    otlp::json::read(message, spans_json(count).as_bytes(), &limits, &mut |_| true).unwrap()
}

fn envelope_of(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../wire/testdata/sentry/{name}.envelope", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Guarantees: transactions and containers of spans of version 2 in envelopes are decoded, with profiles and alone; an
/// invalid span is reported, and so is an envelope without anything valid.
#[test]
fn envelopes() {
    for (name, expected) in [
        ("python-2.75-transaction", Quantities::spans(2)),
        ("node-10.75-transaction", Quantities::spans(2)),
        ("node-11.1-span", Quantities::spans(2)),
        ("node-10.75-v1-transaction+profile", Quantities { observations: 89, ..Quantities::spans(2) }),
    ] {
        let (taken, findings, outcome) = read(envelope_of(name));
        assert_eq!((taken, outcome), (vec![expected], Ok(())), "{name}");
        assert!(findings.refused.is_empty());
    }
    let container = |items: &str| {
        let payload = format!("{{\"version\":2,\"items\":[{items}]}}");
        let kind = "application/vnd.sentry.items.span.v2+json";
        format!("{{}}\n{{\"type\":\"span\",\"item_count\":2,\"content_type\":\"{kind}\"}}\n{payload}\n")
    };
    let good = r#"{"trace_id":"00000000000000000000000000000001","span_id":"0000000000000002","name":"a",
        "start_timestamp":1.0,"end_timestamp":2.0,"status":"ok","is_segment":true}"#
        .replace('\n', " ");
    let (taken, findings, outcome) = read(container(&format!("{good},{{}}")));
    assert_eq!((taken, outcome), (vec![Quantities::spans(1)], Ok(())));
    assert!(findings.refused[0].to_string().starts_with("in: items[0]: 1 span is not read: "), "{findings:?}");
    let (taken, findings, outcome) = read(container("{},{}"));
    assert_eq!((taken.len(), findings.refused.len()), (0, 1));
    assert_eq!(outcome.unwrap_err().why, "not one profile or span in the envelope can be read");
}

/// Guarantees: an invalid span is reported with its place and counted, and the others are decoded.
#[test]
fn spans_are_refused_alone() {
    for bytes in [spans_json(3).replace(r#"spanId":"0000000000000002"#, r#"spanId":"0000000000000000"#).into_bytes(), {
        let mut bytes = spans(3);
        let at = bytes.windows(8).rposition(|window| window == 2_u64.to_be_bytes()).unwrap();
        bytes[at..at + 8].fill(0);
        bytes
    }] {
        let (taken, findings, outcome) = read(bytes);
        assert_eq!((taken, outcome), (vec![Quantities::spans(2)], Ok(())));
        assert_eq!(findings.losses.get(Reason::Malformed), Quantities::spans(1));
        let refused = findings.refused[0].to_string();
        assert!(refused.contains("resource_spans[0].scope_spans[0].spans[1].span_id: is all zero"), "{refused}");
    }
}

/// Guarantees: an ambiguous message is rejected with both names, and a message of another signal with its own; in lines
/// or frames, the other messages are decoded.
#[test]
fn what_cannot_be_told_apart() {
    // A scope with an element that only has a name.
    let unclear = b"\x0a\x08\x12\x06\x12\x04\x2a\x02ab";
    let why = |bytes: &[u8]| read(bytes.to_vec()).2.unwrap_err().to_string();
    assert!(why(unclear).starts_with("in: could be OTLP profiles or OTLP traces: "), "{}", why(unclear));
    let both = b"{\"resourceSpans\":[],\"resourceProfiles\":[]}";
    assert!(why(both).starts_with("in: could be OTLP profiles or OTLP traces: "), "{}", why(both));
    let logs = "{\"resourceLogs\":[]}";
    assert!(why(logs.as_bytes()).starts_with("in: is OTLP logs as JSON, which is not supported\nhint: "));
    let records = b"\x0a\x11\x12\x0f\x12\x0d\x10\x09\x59\x01\0\0\0\0\0\0\0\x2a\0";
    assert!(why(records).starts_with("in: is OTLP logs, which is not supported\nhint: "));
    let (taken, findings, outcome) = read(framed(&[&spans(2), unclear]));
    assert_eq!((taken, outcome, &*findings.refused[0].place), (vec![Quantities::spans(2)], Ok(()), "in: message 2"));
    let (taken, findings, outcome) = read(format!("{logs}\n{}\n", spans_json(1)));
    assert_eq!((taken, outcome, &*findings.refused[0].place), (vec![Quantities::spans(1)], Ok(()), "in: line 1"));
}
