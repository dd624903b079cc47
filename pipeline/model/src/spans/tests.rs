use super::*;

fn span(id: u8, scope: u32) -> Span {
    Span {
        trace_id: TraceId::new(&[7; 16]).unwrap(),
        span_id: SpanId::new(&[id; 8]).unwrap(),
        parent_span_id: None,
        start_unix_nano: 1,
        end_unix_nano: 2,
        kind: SpanKind::Internal,
        parent_is_remote: None,
        sampled: None,
        scope,
        at: ByteRange { start: u32::from(id), len: 1 },
        is_streamed: false,
        segment: None,
        changes: None,
    }
}

fn batch(spans: Vec<Span>) -> Result<Spans, BadSpans> {
    let bytes = Bytes::from_static(b"0123456789");
    Spans::new(SpanForm::Otlp, bytes, vec![SpanResource::default()], vec![SpanScope::default()], spans, true)
}

/// Guarantees: ranges and positions outside the batch are refused when it is created.
#[test]
fn parts_belong_together() {
    assert!(batch(vec![span(1, 0), span(9, 0)]).is_ok());
    assert!(batch(vec![span(10, 0)]).is_err());
    assert!(batch(vec![span(1, 1)]).is_err());
    let scope = SpanScope { resource: 1, ..SpanScope::default() };
    let made = Spans::new(SpanForm::Otlp, Bytes::new(), vec![SpanResource::default()], vec![scope], vec![], true);
    assert!(made.is_err());
}

/// Guarantees: the bytes count as the received message only until data is removed, changed or added; the same holds for
/// the compressed bytes, which are part of the size.
#[test]
fn received_until_it_is_changed() {
    let mut whole = batch(vec![span(1, 0), span(2, 0)]).unwrap();
    let size = whole.size_bytes();
    whole.keep_packed(Packed { coding: "gzip", bytes: Bytes::from_static(b"packed") });
    assert_eq!(whole.size_bytes(), size + 6);
    assert_eq!((whole.received_packed("gzip").map(Bytes::len), whole.received_packed("zstd")), (Some(6), None));
    let mut kept = whole.clone();
    kept.retain(|_, _| true);
    assert!(kept.received().is_some() && kept.received_packed("gzip").is_some());
    kept.retain(|position, _| position == 1);
    assert!(kept.received().is_none() && kept.received_packed("gzip").is_none());
    kept.keep_packed(Packed { coding: "gzip", bytes: Bytes::from_static(b"packed") });
    assert!(kept.received_packed("gzip").is_none());
    assert_eq!((kept.spans().len(), kept.spans()[0].span_id), (1, SpanId::new(&[2; 8]).unwrap()));
    let mut changed = whole.clone();
    changed.change(5, |_| unreachable!());
    assert!(changed.received().is_some());
    changed.change(1, |changes| changes.sample_rate = Some(0.5));
    assert!(changed.received().is_none() && changed.received_packed("gzip").is_none());
    assert_eq!(changed.spans()[1].changes.as_ref().unwrap().sample_rate, Some(0.5));
    let mut added = whole;
    added.add_to_resource(0, "host.id".into(), "1".into());
    assert!(added.received().is_none() && added.received_packed("gzip").is_none());
}

/// Guarantees: a span is the first of its process if it has no parent or a remote one, or serves another program.
#[test]
fn local_roots() {
    let root = |parent: Option<u8>, remote: Option<bool>, kind: SpanKind| {
        let parent_span_id = parent.and_then(|id| SpanId::new(&[id; 8]));
        Span { parent_span_id, parent_is_remote: remote, kind, ..span(1, 0) }.is_local_root()
    };
    assert!(root(None, None, SpanKind::Client));
    assert!(root(Some(2), Some(true), SpanKind::Internal));
    assert!(root(Some(2), Some(false), SpanKind::Server));
    assert!(root(Some(2), None, SpanKind::Consumer));
    for kind in [SpanKind::Internal, SpanKind::Client, SpanKind::Producer, SpanKind::Unspecified] {
        assert!(!root(Some(2), Some(false), kind) && !root(Some(2), None, kind));
    }
}

/// Guarantees: ids are parsed from hexadecimal digits of any case and printed in lower case; zero and other lengths are
/// refused.
#[test]
fn ids_in_text() {
    let id = TraceId::parse("4BF92F3577B34DA6A3CE929D0E0E4736").unwrap();
    assert_eq!(id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(TraceId::parse("4bf92f35-77b3-4da6-a3ce-929d0e0e4736"), Some(id));
    for wrong in ["", "4bf9", "00000000000000000000000000000000", "4bf92f3577b34da6a3ce929d0e0e473g", "é"] {
        assert_eq!(TraceId::parse(wrong), None, "{wrong}");
    }
    assert_eq!(TraceId::parse("4bf92f3577b34da6a3ce929d0e0e473600"), None);
    assert_eq!((SpanId::new(&[0; 8]), SpanId::new(&[1; 7])), (None, None));
}

/// Guarantees: assembled spans are returned segment by segment.
#[test]
fn segments_are_runs() {
    let of = |id: u8, number: u32| Span { segment: Some(Segment { number, is_root: id == 1 }), ..span(id, 0) };
    let batch = batch(vec![of(1, 1), of(2, 1), of(3, 2), span(4, 0)]).unwrap();
    let lengths: Vec<usize> = batch.segments().map(<[Span]>::len).collect();
    assert_eq!(lengths, [2, 1, 1]);
}
