use profbridge_model::spans::Segment;
use profbridge_model::{Quantities, Span, Spans};
use profbridge_relay_rules::validate_transaction;
use profbridge_testkit as testing;
use profbridge_wire::otlp::{Limits, delimited, json, traces};
use profbridge_wire::sentry::envelope::{self, ItemHeader};

use super::*;
use crate::name;

/// A batch of transactions with these numbers of spans, `second` seconds after a fixed time, as OTLP JSON.
fn text(transactions: &[u64], second: u64) -> String {
    let start = START_UNIX_NANO + second * 1_000_000_000;
    let spans = transactions.iter().zip(1_u64..).flat_map(|(&count, trace)| {
        (1..=count).map(move |span| {
            let parent = if span == 1 { String::new() } else { format!(r#""parentSpanId":"{:016x}","#, 1) };
            let end = start + span;
            format!(
                r#"{{"traceId":"{trace:032x}","spanId":"{span:016x}",{parent}"name":"n","startTimeUnixNano":"{start}","endTimeUnixNano":"{end}"}}"#
            )
        })
    });
    format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.collect::<Vec<_>>().join(","))
}

/// The same batch, parsed as a receiver would.
fn received(transactions: &[u64], second: u64) -> Spans {
    let (message, limits) = (json::Message::TracesRequest, Limits::default());
    let request = json::read(message, text(transactions, second).as_bytes(), &limits, &mut |_| true).unwrap();
    traces::decode(request.into(), &limits).unwrap().spans
}

/// The same batch after the processor `transactions`.
fn grouped(transactions: &[u64], second: u64) -> Spans {
    let came = received(transactions, second);
    let numbers =
        (0_u32..).zip(transactions).flat_map(|(number, &count)| (0..count).map(move |span| (number, span == 0)));
    let spans = came
        .spans()
        .iter()
        .zip(numbers)
        .map(|(span, (number, is_root))| Span { segment: Some(Segment { number, is_root }), ..span.clone() });
    let (resources, scopes) = (came.resources().to_vec(), came.scopes().to_vec());
    Spans::new(came.form(), came.bytes().clone(), resources, scopes, spans.collect(), true).unwrap()
}

/// Guarantees: each transaction is an envelope in a separate file with a descriptive name, with any compression.
/// Writing the same transaction again leaves one file. Ungrouped spans are put together.
/// rule: tracing-sdk#envelope
#[tokio::test]
async fn one_file_per_transaction() {
    for compression in ["none", "gzip", "zstd"] {
        let folder = tempfile::tempdir().unwrap();
        let exporter = exporter(folder.path(), &format!("compression: {compression}"));
        exporter.start(&context()).await.unwrap();
        for _ in 0..2 {
            write(&exporter, grouped(&[3, 1], 61)).await.unwrap();
        }
        let names = names(folder.path());
        assert_eq!(names.len(), 2, "{names:?}");
        for name in &names {
            assert!(name.starts_with("20260101T000101.000Z-00000000-") && name::is_envelope(name), "{name}");
            assert!(compression != "none" || name.ends_with(".envelope"), "{name}");
        }
        if compression == "none" {
            let mut spans = Vec::new();
            for name in names {
                let parsed = envelope::read(std::fs::read(folder.path().join(name)).unwrap().into()).unwrap();
                let [item] = &parsed.envelope.items[..] else { panic!("{:?}", parsed.envelope) };
                assert_eq!(ItemHeader::read(&item.header).unwrap().kind, "transaction");
                let payload = item.payload.plain().unwrap();
                validate_transaction(payload).unwrap();
                spans.push(payload.windows(9).filter(|window| window == b"\"span_id\"").count());
            }
            spans.sort_unstable();
            assert_eq!(spans, [1, 3]);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let prepared = exporter(folder.path(), "").prepare(&received(&[2], 0).into(), ManualClock::default().now());
    let quantities: Vec<_> = prepared.requests.iter().map(|request| request.quantities).collect();
    assert_eq!((quantities, prepared.losses.is_none()), (vec![Quantities::spans(2)], true));
}

/// Guarantees: spans are appended as frames with unchanged bytes, and as JSON lines, together with profiles.
#[tokio::test]
async fn appended() {
    let folder = tempfile::tempdir().unwrap();
    let [frames, lines] = ["traces.otlp", "traces.json"].map(|name| folder.path().join(name));
    let spans = received(&[3, 1], 0);
    for (path, format) in [(&frames, "otlp"), (&lines, "json")] {
        let exporter = exporter(path, &format!("format: {format}"));
        exporter.start(&context()).await.unwrap();
        write(&exporter, spans.clone()).await.unwrap();
        write(&exporter, chunk(1, 0)).await.unwrap();
        write(&exporter, spans.clone()).await.unwrap();
    }
    let messages: Vec<_> = delimited::frames(std::fs::read(&frames).unwrap().into()).map(Result::unwrap).collect();
    assert_eq!((messages.len(), &messages[0], &messages[2]), (3, spans.bytes(), spans.bytes()));
    let written = std::fs::read_to_string(&lines).unwrap();
    let written: Vec<_> = written.lines().collect();
    assert_eq!((written.len(), written[0], written[2]), (3, &*text(&[3, 1], 0), &*text(&[3, 1], 0)));
    assert!(written[1].starts_with("{\"resourceProfiles\":["));
}

/// Guarantees: no span is lost without being counted, in any format.
#[test]
fn conserves() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["sentry", "otlp", "json"] {
        let exporter = exporter(&folder.path().join(format), &format!("format: {format}"));
        testing::check_prepare(&exporter, 5, |random, _| {
            let sizes: Vec<u64> = (0..random.usize(1..5)).map(|_| random.u64(1..6)).collect();
            if random.bool() { grouped(&sizes, 0).into() } else { received(&sizes, 0).into() }
        });
    }
}
