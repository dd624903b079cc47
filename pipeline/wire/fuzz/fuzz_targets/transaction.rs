//! Uses arbitrary bytes as an OTLP request of traces, whose spans become one transaction for each resource.
//!
//! Guarantees: no panic; each transaction follows every rule of the event schema, on one line; each span is in it or
//! counted; writing it again gives the same bytes.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use profbridge_model::spans::Segment;
use profbridge_model::{Quantities, Span, Spans};
use profbridge_relay_rules::validate_transaction;
use profbridge_wire::otlp::{Limits, traces};
use profbridge_wire::sentry::transaction::{TransactionResource, TransactionWriter, root};
use profbridge_wire::sentry::transaction_envelope;

fuzz_target!(|data: &[u8]| {
    let Ok(decoded) = traces::decode(Bytes::copy_from_slice(data), &Limits::default()) else { return };
    let came = decoded.spans;
    let mut spans: Vec<Span> = came.spans().to_vec();
    spans.sort_by_key(|span| came.scope_of(span).resource);
    for span in &mut spans {
        let number = came.scope_of(span).resource;
        span.segment = Some(Segment { number, is_root: span.is_local_root() });
    }
    let (resources, scopes) = (came.resources().to_vec(), came.scopes().to_vec());
    let spans = Spans::new(came.form(), came.bytes().clone(), resources, scopes, spans, true).expect("as it was read");
    let to = "https://0123456789abcdef0123456789abcdef@h/1".parse().expect("a DSN");
    let (mut writer, mut again) = (TransactionWriter::default(), TransactionWriter::default());
    for segment in spans.segments() {
        let root = root(segment).expect("a segment has spans");
        let resource = TransactionResource::of(&spans, spans.resource_of(root), "production");
        let transaction = writer.write(&spans, segment, &resource).expect("a segment has spans");
        if let Err(violations) = validate_transaction(transaction.json) {
            panic!("{violations:?}: {}", String::from_utf8_lossy(transaction.json));
        }
        let counted = Quantities::spans(transaction.summary.spans) + transaction.losses.total();
        assert_eq!(counted, Quantities::spans(segment.len() as u64));
        let head = transaction_envelope::head(&transaction.summary, &resource, Some(&to));
        assert_eq!(head.lines().count(), 2);
        let second = again.write(&spans, segment, &resource).expect("a segment has spans");
        assert_eq!(second.json, transaction.json);
    }
});
