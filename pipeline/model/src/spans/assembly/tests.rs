use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::origins::OriginIntake;
use super::super::{SpanId, SpanKind, TraceId};
use super::*;

/// The contents of one span, with its scope and resource.
type SpanContents = (String, String, String, Vec<(Arc<str>, Arc<str>)>);

/// A batch of spans, each given by the texts of its resource, its scope and itself. Each span has its own copy of its
/// resource and scope, in two parts each.
fn batch(spans: &[(String, String, String)]) -> Spans {
    let (mut bytes, mut resources, mut scopes, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut put = |text: &str| {
        bytes.extend_from_slice(text.as_bytes());
        ByteRange { start: (bytes.len() - text.len()) as u32, len: text.len() as u32 }
    };
    for (number, (resource, scope, span)) in spans.iter().enumerate() {
        let (begin, end) = resource.split_at(resource.len() / 2);
        let parts = vec![put(begin), put(end)];
        let added = if resource.len() > 2 { vec![("key".into(), "value".into())] } else { Vec::new() };
        resources.push(SpanResource { parts, added });
        let (begin, end) = scope.split_at(scope.len() / 2);
        scopes.push(SpanScope { resource: number as u32, parts: vec![put(begin), put(end)] });
        all.push(Span {
            trace_id: TraceId::new(&[7; 16]).unwrap(),
            span_id: SpanId::new(&(number as u64 + 1).to_be_bytes()).unwrap(),
            parent_span_id: None,
            start_unix_nano: 1,
            end_unix_nano: 2,
            kind: SpanKind::Internal,
            parent_is_remote: None,
            sampled: None,
            scope: number as u32,
            at: put(span),
            is_streamed: false,
            segment: None,
            changes: None,
        });
    }
    Spans::new(SpanForm::Otlp, Bytes::from(bytes), resources, scopes, all, true).unwrap()
}

fn span_contents(spans: &Spans) -> Vec<SpanContents> {
    let text = |parts: &[ByteRange]| {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| spans.get(*part)).copied().collect();
        String::from_utf8(bytes).unwrap()
    };
    let all = spans.spans().iter().map(|span| {
        let (scope, resource) = (spans.scope_of(span), spans.resource_of(span));
        (text(&resource.parts), text(&scope.parts), text(&[span.at]), resource.added.clone())
    });
    all.collect()
}

/// Stores all spans of a batch, each with its bytes.
fn hold(origins: &mut Origins, spans: &Spans) -> Vec<(Span, Vec<u8>)> {
    let mut intake = OriginIntake::default();
    let mut held = Vec::new();
    for span in spans.spans() {
        let origin = origins.hold(&mut intake, spans, span.scope);
        held.push((Span { scope: origin.number(), ..span.clone() }, spans.get(span.at).to_vec()));
    }
    origins.end(intake);
    held
}

fn assemble(origins: &Origins, held: &[(Span, Vec<u8>)]) -> Spans {
    let mut assembly = Assembly::default();
    for (span, bytes) in held {
        assembly.push(origins, span.clone(), bytes).unwrap();
    }
    assert_eq!(assembly.len(), held.len());
    assembly.finish()
}

proptest! {
    /// Guarantees: held spans keep their contents, resource and scope, in the order in which they are added to the new
    /// batch; equal resources and scopes are stored and written once; without spans that use them, nothing is stored.
    #[test]
    fn keeps_what_spans_say(
        batches in proptest::collection::vec(
            proptest::collection::vec(("[ab]{0,3}", "[xy]{0,2}", "[a-z]{0,5}"), 0..8), 0..5),
        turn in any::<usize>(),
    ) {
        let mut origins = Origins::default();
        let (mut held, mut expected) = (Vec::new(), Vec::new());
        for spans in &batches {
            let batch = batch(spans);
            held.extend(hold(&mut origins, &batch));
            expected.extend(span_contents(&batch));
        }
        let turn = turn % held.len().max(1);
        held.rotate_left(turn);
        expected.rotate_left(turn);
        let made = assemble(&origins, &held);
        prop_assert_eq!(span_contents(&made), &expected[..]);
        prop_assert!(made.received().is_none());
        let distinct: std::collections::BTreeSet<_> = expected.iter().map(|said| said.0.clone()).collect();
        prop_assert_eq!(made.resources().len(), distinct.len());
        let distinct: std::collections::BTreeSet<_> = expected.iter().map(|said| (said.0.clone(), said.1.clone())).collect();
        prop_assert_eq!(made.scopes().len(), distinct.len());
        for (span, _) in &held {
            prop_assert!(!origins.is_empty());
            origins.release(Origin::of(span.scope));
        }
        prop_assert!(origins.is_empty());
        prop_assert_eq!(origins.bytes(), 0);
    }
}

/// Guarantees: the memory for a resource does not grow with the spans and batches that contain it, and added attributes
/// distinguish a resource from one without them.
#[test]
fn equal_ones_are_held_once() {
    let mut origins = Origins::default();
    let one = batch(&[("a".repeat(1000), "scope".to_owned(), "1".to_owned())]);
    let first = hold(&mut origins, &one);
    let bytes = origins.bytes();
    let second = hold(&mut origins, &one);
    assert_eq!((origins.bytes(), first[0].0.scope), (bytes, second[0].0.scope));
    let mut other = one.clone();
    other.add_to_resource(0, "host.id".into(), "1".into());
    let third = hold(&mut origins, &other);
    let resource = |span: &Span| origins.resource_of(Origin::of(span.scope));
    assert_ne!(resource(&first[0].0), resource(&third[0].0));
    let hash = |span: &Span| origins.hash_of(Origin::of(span.scope));
    assert_ne!(hash(&first[0].0), hash(&third[0].0));
    assert!(origins.resource_len(resource(&first[0].0)) >= 1000);
}

/// Guarantees: a batch of a resource alone, from a batch or from held spans, keeps the resource's contents and has no
/// spans.
#[test]
fn resources_alone() {
    let mut origins = Origins::default();
    let made = batch(&[
        ("one".to_owned(), "scope".to_owned(), "1".to_owned()),
        ("other".to_owned(), "scope".to_owned(), "2".to_owned()),
    ]);
    let held = hold(&mut origins, &made);
    let of = |spans: &Spans| {
        let [resource] = spans.resources() else { panic!("one resource") };
        let said: Vec<u8> = resource.parts.iter().flat_map(|part| spans.get(*part)).copied().collect();
        assert!(spans.is_empty() && spans.received().is_none());
        (String::from_utf8(said).unwrap(), resource.added.len())
    };
    for (at, said) in [(0, ("one".to_owned(), 1)), (1, ("other".to_owned(), 1))] {
        assert_eq!(of(&made.resource_alone(at)), said);
        assert_eq!(of(&Assembly::resource_alone(&origins, Origin::of(held[at].0.scope)).unwrap()), said);
    }
    assert_eq!(of(&made.resource_alone(2)), (String::new(), 0));
}
