use bytes::Bytes;
use profbridge_engine::component::{Outbox, Processor as _};
use profbridge_model::envelope::EnvelopeBody;
use profbridge_model::spans::{SpanResource, SpanScope};
use profbridge_model::{
    Builder, ByteRange, Envelope, Item, ItemView, Profiles, Quantities, Reason, SampledOut, SampledOutCounts,
    SampledOutOrigin, Span, SpanForm, SpanId, SpanKind, Spans, Telemetry, TraceId,
};
use profbridge_processor_sample::{TRANSACTIONS, WITHOUT_ROOT};
use profbridge_wire::sentry::envelope::ItemHeader;
use profbridge_wire::sentry::{envelope, profile_items, span_items, span_writer};

use crate::support::{T, at, dropped, noted, process, sample, trace_id};

const ROOT: &str =
    r#"{"type":"transaction","transaction":"/cart","contexts":{"trace":{"op":"http.server"}},"spans":[{}]}"#;

/// A view of a transaction with one child span, as the receiver creates it.
fn transaction(trace: u64) -> Spans {
    let place = |text: &str| ByteRange { start: ROOT.find(text).unwrap() as u32, len: text.len() as u32 };
    let span = |id: u8, parent: Option<u8>, at| Span {
        trace_id: TraceId::new(&trace_id(trace)).unwrap(),
        span_id: SpanId::new(&[id; 8]).unwrap(),
        parent_span_id: parent.and_then(|id| SpanId::new(&[id; 8])),
        start_unix_nano: T,
        end_unix_nano: T + 1,
        kind: SpanKind::Unspecified,
        parent_is_remote: parent.map(|_| false),
        sampled: None,
        scope: 0,
        at,
        is_streamed: false,
        segment: None,
        changes: None,
    };
    let spans = vec![span(1, None, place(ROOT)), span(2, Some(1), place("{}"))];
    let (resources, scopes) = (vec![SpanResource::default()], vec![SpanScope::default()]);
    Spans::new(SpanForm::SentryTransaction, Bytes::from_static(ROOT.as_bytes()), resources, scopes, spans, true)
        .unwrap()
}

/// A profile of format V1 that belongs to the transaction.
fn v1() -> Profiles {
    let mut builder = Builder::new();
    builder.on_cpu(101);
    let attributes = builder.attributes(&[("sentry.transaction.id", "1".into())]);
    builder.open_profile().unwrap().attributes = attributes;
    builder.sample(None, None, None, &[T, T + 1], &[]);
    builder.finish().unwrap()
}

/// An envelope with a transaction, its V1 profile and an event that was not parsed. Its header has this `trace`.
fn made(trace: &str) -> Envelope {
    let item = |kind: &str| Item { header: format!(r#"{{"type":"{kind}"}}"#).into(), payload: Bytes::new().into() };
    Envelope {
        header: format!(r#"{{"trace":{trace}}}"#).into(),
        items: vec![item("transaction"), item("profile"), item("event")],
        views: vec![ItemView::spans(0, transaction(1)), ItemView::profiles(1, v1())],
        received: Some(EnvelopeBody { body: Bytes::new(), content_encoding: None, changed: false }),
        ..Envelope::default()
    }
}

fn only(telemetry: &[Telemetry]) -> &Envelope {
    match telemetry {
        [Telemetry::Envelope(envelope)] => envelope,
        other => panic!("{other:?}"),
    }
}

/// Guarantees: a dropped transaction is removed from its envelope with all its spans and its V1 profile, and all of
/// them are counted. Other items stay, and the envelope is no longer sent unchanged.
/// rule: tracing-sdk#sampled-once
#[test]
fn a_dropped_transaction_takes_its_profile_along() {
    let out = process(&mut sample("traces_rules: [{name: /cart, op: http.server, sampled: false}]"), made("{}"), at(0));
    let left = only(&out.telemetry);
    assert_eq!((left.quantities(), left.items.len()), (Quantities::items(1), 1));
    assert!(left.received.as_ref().unwrap().changed);
    let expected = Quantities { spans: 2, ..Quantities::observations(2) };
    assert_eq!((out.losses.get(Reason::SampleRate), noted(&out, TRANSACTIONS)), (expected, 1));
}

fn reported_counts(out: &Outbox) -> Vec<SampledOutCounts> {
    out.sampled_out.iter().map(|said| said.counts).collect()
}

/// Guarantees: a dropped transaction is reported as one transaction, as its spans including the root, and as its
/// profile, for the destination of its envelope.
/// rule: transport#client-reports-sample-rate
#[test]
fn what_is_dropped_is_said() {
    let mut envelope = made("{}");
    envelope.meta.project_id = Some(42);
    let out = process(&mut sample("traces_sample_rate: 0"), envelope, at(0));
    let [SampledOut { whose: SampledOutOrigin::Client { meta, profiles }, counts }] = &out.sampled_out[..] else {
        panic!("{:?}", out.sampled_out)
    };
    let expected = SampledOutCounts { transactions: 1, spans: 2, profiles: 1, attachment_bytes: 0 };
    assert_eq!((meta.project_id, *counts), (Some(42), expected));
    assert_eq!(profiles.as_ref().map(Profiles::observations), Some(2));
}

/// Guarantees: with a dropped transaction, its profile and the attachments of its envelope are dropped, parsed or not,
/// whether the envelope was compressed or not. They are counted as sampled out. Independent items stay: sessions,
/// client reports, logs, metrics, check-ins, replays and profile chunks. If the envelope also has an event, the owner
/// of attachments is unknown, so they stay.
/// rule: transport#attachments
#[test]
fn what_belongs_to_a_transaction_goes_with_it() {
    const OWN: [&str; 8] =
        ["session", "client_report", "log", "trace_metric", "check_in", "replay_event", "profile_chunk", "user_report"];
    for (beside, attachments) in [(None, 2), (Some("event"), 0)] {
        for is_packed in [false, true] {
            let plain = Bytes::from(format!("{ROOT}12345"));
            let item = |kind: &str, payload: Bytes| Item {
                header: format!(r#"{{"type":"{kind}"}}"#).into(),
                payload: payload.into(),
            };
            let mut items = vec![
                item("attachment", plain.slice(ROOT.len()..ROOT.len() + 2)),
                item("transaction", plain.slice(..ROOT.len())),
                item("profile", plain.slice(ROOT.len() + 1..ROOT.len() + 2)),
                item("attachment", plain.slice(ROOT.len() + 2..)),
            ];
            items.extend(OWN.iter().map(|kind| item(kind, plain.slice(..1))));
            items.extend(beside.map(|kind| item(kind, plain.slice(..1))));
            let views = vec![ItemView::spans(1, transaction(1))];
            let mut envelope = Envelope { header: "{}".into(), items, views, ..Envelope::default() };
            if is_packed {
                envelope.pack(&plain);
            }
            let before = envelope.quantities();
            let out = process(&mut sample("traces_sample_rate: 0"), envelope, at(0));
            let left = only(&out.telemetry);
            let kinds = left.items.iter().map(|item| ItemHeader::read(&item.header).unwrap().kind);
            let stay = |kind: &&str| OWN.contains(kind) || Some(*kind) == beside || attachments == 0;
            let expected = ["attachment", "attachment"].iter().chain(&OWN).copied().chain(beside).filter(stay);
            assert_eq!(kinds.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            let gone = Quantities { items: 1 + attachments, ..Quantities::spans(2) };
            assert_eq!((out.losses.get(Reason::SampleRate), left.quantities() + gone), (gone, before));
            let attachment_bytes = if attachments > 0 { 5 } else { 0 };
            assert_eq!(
                reported_counts(&out),
                [SampledOutCounts { transactions: 1, spans: 2, profiles: 1, attachment_bytes }]
            );
        }
    }
}

/// Guarantees: an envelope without any remaining item is not sent.
#[test]
fn nothing_left_is_no_envelope() {
    let mut envelope = made("{}");
    envelope.items.truncate(2);
    let out = process(&mut sample("traces_sample_rate: 0"), envelope, at(0));
    assert!(out.telemetry.is_empty());
    assert_eq!(out.losses.total(), Quantities { spans: 2, ..Quantities::observations(2) });
}

/// Guarantees: an envelope whose items are all kept is sent unchanged, and nothing is reported as sampled out.
#[test]
fn a_kept_envelope_is_not_changed() {
    for yaml in ["", "traces_sample_rate: 1", "traces_rules: [{sampled: true}]", "profile_session_sample_rate: 0"] {
        let out = process(&mut sample(yaml), made("{}"), at(0));
        let left = only(&out.telemetry);
        assert_eq!(left.quantities(), Quantities { spans: 2, items: 1, observations: 2 });
        assert!(!left.received.as_ref().unwrap().changed && out.sampled_out.is_empty(), "{yaml}");
    }
}

/// Guarantees: the decision in the envelope's header takes precedence over rules and rate. Without it, the header's
/// random number decides, relative to the header's rate, and the rates are multiplied.
/// rule: tracing-sdk#precedence
#[test]
fn the_header_decides() {
    let kept = |yaml: &str, trace: &str| {
        let out = process(&mut sample(yaml), made(trace), at(0));
        let left: Vec<Span> = only(&out.telemetry).spans().flat_map(Spans::spans).cloned().collect();
        assert_eq!(left.len() as u64 + dropped(&out), 2);
        let rate = |span: &Span| span.changes.as_ref().and_then(|changes| changes.sample_rate);
        left.first().map(rate)
    };
    let all_no = "traces_sample_rate: 0\ntraces_rules: [{sampled: false}]";
    assert_eq!(kept(all_no, r#"{"sampled":"true"}"#), Some(None));
    assert_eq!(kept("traces_rules: [{sampled: true}]", r#"{"sampled":"false"}"#), None);
    assert_eq!(kept("traces_sample_rate: 0.5", r#"{"sample_rand":"0.49"}"#), Some(Some(0.5)));
    assert_eq!(kept("traces_sample_rate: 0.5", r#"{"sample_rand":"0.51"}"#), None);
    assert_eq!(kept("traces_sample_rate: 0.5", r#"{"sample_rand":"0.09","sample_rate":"0.2"}"#), Some(Some(0.1)));
    assert_eq!(kept("traces_sample_rate: 0.5", r#"{"sample_rand":"0.11","sample_rate":"0.2"}"#), None);
    assert_eq!(kept("traces_rules: [{name: other, sampled: false}]", "{}"), Some(None));
}

/// Guarantees: spans of one trace in a container share a decision, which the first root span among them makes, wherever
/// it is. They are not transactions and are not reported as such.
#[test]
fn containers_are_decided_by_their_first_root() {
    const ITEMS: &str = r#"{"items":[{"name":"child"},{"name":"later"},{"name":"first"}]}"#;
    let decide = |yaml: &str| {
        let place = |name: &str| {
            let text = format!(r#"{{"name":"{name}"}}"#);
            ByteRange { start: ITEMS.find(&text).unwrap() as u32, len: text.len() as u32 }
        };
        let like = transaction(1).spans()[0].clone();
        let span = |id: u8, name, start, is_root: bool| Span {
            span_id: SpanId::new(&[id; 8]).unwrap(),
            parent_span_id: SpanId::new(&[9; 8]),
            parent_is_remote: Some(is_root),
            start_unix_nano: start,
            end_unix_nano: T + 9,
            at: place(name),
            is_streamed: true,
            ..like.clone()
        };
        let spans = vec![span(1, "child", T, false), span(2, "later", T + 2, true), span(3, "first", T + 1, true)];
        let (resources, scopes) = (vec![SpanResource::default()], vec![SpanScope::default()]);
        let json = Bytes::from_static(ITEMS.as_bytes());
        let spans = Spans::new(SpanForm::SentrySpans, json, resources, scopes, spans, true).unwrap();
        let out = process(&mut sample(yaml), spans, at(0));
        (dropped(&out), reported_counts(&out))
    };
    let counts = |transactions, spans| SampledOutCounts { transactions, spans, ..SampledOutCounts::default() };
    assert_eq!(decide("traces_rules: [{name: first, sampled: false}]"), (3, vec![counts(0, 3)]));
    assert_eq!(decide("traces_rules: [{name: later, sampled: false}, {name: child, sampled: false}]"), (0, vec![]));
}

/// Guarantees: a rate keeps transactions of the same traces as OTLP spans, so the formats agree.
#[test]
fn forms_agree() {
    let mut seen = [0, 0];
    for trace in 0..64 {
        let mut one = made("{}");
        one.views[0] = ItemView::spans(0, transaction(trace));
        let of_sentry = dropped(&process(&mut sample("traces_sample_rate: 0.5"), one, at(0))) == 0;
        let of_otlp = crate::support::of_process(vec![crate::support::span(trace, 1, 0)]);
        let of_otlp = dropped(&process(&mut sample("traces_sample_rate: 0.5"), of_otlp, at(0))) == 0;
        assert_eq!(of_sentry, of_otlp, "{trace}");
        seen[usize::from(of_sentry)] += 1;
    }
    assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
}

/// An envelope with the views that the receiver creates.
fn read(bytes: Vec<u8>) -> Envelope {
    let mut envelope = envelope::read(Bytes::from(bytes)).unwrap().envelope;
    let profiles = profile_items::read_items(&envelope).map(|(item, read)| ItemView::profiles(item, read.unwrap()));
    let spans = span_items::read_items(&envelope).map(|(item, read)| ItemView::spans(item, read.unwrap().spans));
    envelope.views = profiles.chain(spans).collect();
    envelope
}

/// A span of a container: the number of its trace, its name, whether it is a segment, and the name of its segment.
type Streamed<'a> = (u64, &'a str, bool, &'a str);

/// A container whose envelope has this `trace` in its header, in JSON.
fn stream(trace: &str, spans: &[Streamed<'_>]) -> Envelope {
    let element = |(at, (trace, name, is_segment, segment)): (usize, &Streamed<'_>)| {
        format!(
            r#"{{"trace_id":"{:032x}","span_id":"{:016x}","parent_span_id":"00000000000000ff","name":"{name}","status":"ok",
            "is_segment":{is_segment},"start_timestamp":1,"end_timestamp":2,"attributes":{{
            "sentry.op":{{"value":"{name}","type":"string"}},
            "sentry.segment.name":{{"value":"{segment}","type":"string"}}}}}}"#,
            trace + 1,
            at + 1
        )
        .replace('\n', "")
    };
    let items: Vec<String> = spans.iter().enumerate().map(element).collect();
    let item = format!(
        r#"{{"type":"span","item_count":{},"content_type":"application/vnd.sentry.items.span.v2+json"}}"#,
        spans.len()
    );
    let body = format!("{{\"trace\":{trace}}}\n{item}\n{{\"version\":2,\"items\":[{}]}}\n", items.join(","));
    read(body.into_bytes())
}

/// The number of spans that left.
fn spans_left(out: &Outbox) -> u64 {
    out.telemetry.iter().map(|telemetry| telemetry.quantities().spans).sum()
}

const CHILD: Streamed<'_> = (0, "db", false, "GET /slow");
const SEGMENT: Streamed<'_> = (0, "GET /slow", true, "GET /slow");

/// Guarantees: all containers of a trace are decided alike, by the first of them: by its root span, or if that comes
/// later by the name that the children tell of it, by the rules that ask for nothing else, and by the rate. Nothing
/// waits, and traces and clients decide for themselves. What is dropped counts as spans, not as transactions.
/// rule: transport#span-segments, transport#client-reports-sample-rate
#[test]
fn containers_of_a_trace_are_decided_alike() {
    let kept = |yaml: &str, containers: &[&[Streamed<'_>]]| -> Vec<u64> {
        let mut processor = sample(yaml);
        let each = containers.iter().map(|spans| {
            let out = process(&mut processor, stream("{}", spans), at(0));
            let counts = |spans| SampledOutCounts { spans, ..SampledOutCounts::default() };
            let gone = dropped(&out);
            assert_eq!(reported_counts(&out), Vec::from_iter((gone > 0).then(|| counts(gone))), "{yaml}");
            assert_eq!(spans_left(&out) + gone, spans.len() as u64);
            spans_left(&out)
        });
        each.collect()
    };
    // The name of the root is known from its children.
    let by_name = "traces_rules: [{name: GET /slow, sampled: false}]";
    assert_eq!(kept(by_name, &[&[CHILD, CHILD], &[CHILD, SEGMENT]]), [0, 0]);
    assert_eq!(kept(by_name, &[&[SEGMENT], &[CHILD]]), [0, 0]);
    // Its operation is not, so the next rule decides, for the later root too.
    let by_op = "traces_rules: [{op: GET *, sampled: false}, {sampled: true}]";
    assert_eq!(kept(by_op, &[&[CHILD], &[SEGMENT, CHILD]]), [1, 2]);
    assert_eq!(kept(by_op, &[&[SEGMENT, CHILD], &[CHILD]]), [0, 0]);
    // Of several segments in a container the first decides; another trace decides for itself.
    let other: Streamed<'_> = (1, "job", true, "job");
    assert_eq!(kept(by_op, &[&[SEGMENT, (0, "job", true, "job"), other], &[CHILD, other]]), [1, 1]);

    let mut processor = sample(by_op);
    let mut of_project = |project, span| {
        let mut envelope = stream("{}", &[span]);
        envelope.meta.project_id = Some(project);
        let out = process(&mut processor, envelope, at(0));
        (spans_left(&out), noted(&out, WITHOUT_ROOT))
    };
    assert_eq!([of_project(1, CHILD), of_project(2, SEGMENT), of_project(1, SEGMENT)], [(1, 1), (0, 0), (1, 0)]);
}

/// Guarantees: the decision and the rate of the header decide about a container as about a transaction; a header counts
/// for its own trace, and a container without one, or of two traces, is decided trace by trace.
/// rule: transport#span-header
#[test]
fn headers_of_containers() {
    let kept =
        |yaml: &str, header: &str| spans_left(&process(&mut sample(yaml), stream(header, &[CHILD, SEGMENT]), at(0)));
    let header = |more: &str| format!(r#"{{"trace_id":"{:032x}"{more}}}"#, 1);
    let all_no = "traces_rules: [{sampled: false}]";
    assert_eq!(kept(all_no, "null"), 0);
    assert_eq!(kept(all_no, &header(r#","sampled":"true""#)), 2);
    assert_eq!(kept("traces_rules: [{sampled: true}]", &header(r#","sampled":"false""#)), 0);
    assert_eq!(kept("traces_sample_rate: 0.5", &header(r#","sample_rand":"0.09","sample_rate":"0.2""#)), 2);
    assert_eq!(kept("traces_sample_rate: 0.5", &header(r#","sample_rand":"0.11","sample_rate":"0.2""#)), 0);
    let two = stream(&header(r#","sampled":"true""#), &[CHILD, (1, "job", true, "job")]);
    assert_eq!(spans_left(&process(&mut sample(all_no), two, at(0))), 1);
}

/// Guarantees: the spans of a container that a rate has kept each say it, times the rate that the trace, or else the
/// span, came with; the header, which may be another program's, stays byte for byte.
/// rule: transport#span-header
#[test]
fn a_rate_is_written_into_spans() {
    let header = format!(r#"{{"trace_id":"{:032x}","sample_rand":"0.01", "sample_rate":"0.50","org":"1"}}"#, 1);
    let mut envelope = stream(&header, &[CHILD, SEGMENT]);
    for (times, rate) in [(1, 0.125), (2, 0.03125)] {
        let before = envelope.header.clone();
        let out = process(&mut sample("traces_sample_rate: 0.25"), envelope, at(0));
        let written = span_writer::write(only(&out.telemetry).clone());
        assert_eq!(written.unwritten, 0);
        envelope = written.envelope.unwrap();
        assert_eq!(envelope.header, before);
        let payload = String::from_utf8(envelope.items[0].payload.plain().unwrap().to_vec()).unwrap();
        let said = format!(r#""sentry.client_sample_rate":{{"value":{rate},"type":"double"}}"#);
        assert_eq!((payload.matches(&said).count(), payload.matches("client_sample_rate").count()), (2, 2), "{times}");
    }
}

/// Attack: a million spans of one trace take the memory of one decision, and many traces that of `max_traces`.
/// rule: transport#span-many
#[test]
fn many_spans_and_traces() {
    let mut processor = sample("{traces_rules: [{sampled: false}], max_traces: 100}");
    let view = stream("{}", &[CHILD]).spans().next().unwrap().clone();
    let of_trace = |trace: u64, count: usize| {
        let mut span = view.spans()[0].clone();
        span.trace_id = TraceId::new(&trace_id(trace)).unwrap();
        let mut envelope = stream("{}", &[CHILD]);
        envelope.views[0] = ItemView::spans(0, view.rearranged(vec![span; count]));
        envelope
    };
    let empty = processor.held().bytes;
    let gone: u64 = (0..1000).map(|_| dropped(&process(&mut processor, of_trace(0, 1000), at(0)))).sum();
    assert_eq!(gone, 1_000_000);
    assert!(processor.held().bytes - empty < 4096, "{}", processor.held().bytes);
    for trace in 0..10_000 {
        process(&mut processor, of_trace(trace, 1), at(0));
        assert!(processor.held().bytes < 128 << 10, "{}", processor.held().bytes);
    }
}

/// Guarantees: if a transaction in an SDK's envelope is dropped, it and its V1 profile are gone after parsing and
/// writing as receiver and exporter do. If the SDK sends a positive decision, the transaction is kept, whatever the
/// rate.
#[test]
fn a_real_envelope() {
    let real = include_bytes!("../../../../pipeline/wire/testdata/sentry/node-10.75-v1-transaction+profile.envelope");
    let undecided = String::from_utf8(real.to_vec()).unwrap().replace(r#""sampled":"true""#, r#""other":"true""#);
    assert!(undecided.as_bytes() != real);
    let with_more = [undecided.as_bytes(), b"\n{\"type\":\"user_report\"}\nok"].concat();
    let out = process(&mut sample("traces_sample_rate: 0"), read(with_more), at(0));
    let left = only(&out.telemetry);
    assert!(!span_writer::is_changed(left));
    assert_eq!((left.items.len(), left.items[0].payload.plain().unwrap().as_ref()), (1, &b"ok"[..]));
    let kept = process(&mut sample("traces_sample_rate: 0"), read(real.to_vec()), at(0));
    assert!(!span_writer::is_changed(only(&kept.telemetry)) && kept.losses.is_none());
}
