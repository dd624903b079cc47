//! Uses arbitrary bytes as an OTLP request of spans.
//!
//! Guarantees: no panic, not even when distinguishing it from profiles; memory in proportion to the request; an
//! accepted request can be read, is written in the announced size and read again with as many spans; a batch and its
//! parts have the same spans. The output for Sentry's OTLP endpoint has them too, and a container can be read again.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use profbridge_wire::otlp::traces::{DecodedSpans, OtherSpanFields, decode, encode, encode_within, read, split};
use profbridge_wire::otlp::{Limits, signal};
use profbridge_wire::sentry::otlp_spans::SentrySpans;
use profbridge_wire::sentry::span_v2_reader;
use profbridge_wire::sentry::span_v2_writer::{self, ProcessAttributes};
use profbridge_wire::sentry::trace_header::TraceHeader;
use profbridge_wire::sentry::transaction::TransactionResource;

fuzz_target!(|data: &[u8]| {
    signal(data);
    let Ok(decoded) = decode(Bytes::copy_from_slice(data), &Limits::default()) else { return };
    // Columns whose length is not known in advance grow by doubling.
    assert!(decoded.memory() <= 2 * (8 * data.len() + (1 << 20)));
    let DecodedSpans { mut spans, .. } = decoded;
    let all = spans.spans().len();
    for span in spans.spans() {
        let fields = OtherSpanFields::of(&spans, span);
        fields.attributes().for_each(drop);
        fields.events().for_each(|event| event.attributes().for_each(drop));
        fields.links().for_each(|link| link.attributes.for_each(drop));
        read::resource_attributes(&spans, spans.resource_of(span)).for_each(drop);
    }
    // Changed spans are encoded again; the received bytes are not used.
    for position in 0..all {
        spans.change(position, |changes| changes.sample_rate = Some(0.25));
    }
    (0..spans.resources().len()).for_each(|at| spans.add_to_resource(at, "host.id".into(), "1".into()));
    let bytes = encode(&spans);
    assert_eq!(encode_within(&spans, bytes.len()).as_deref(), Some(&bytes[..]));
    let again = decode(bytes.into(), &Limits::default());
    // With the added attributes, the request may exceed a limit.
    if let Ok(again) = again {
        assert_eq!((again.spans.spans().len(), again.refused_spans), (all, 0));
    }
    assert_eq!(split(&spans, data.len() / 3).map(|(_, spans)| spans).sum::<usize>(), all);
    let for_sentry = SentrySpans::new(&spans, "production").requests();
    assert_eq!(for_sentry.iter().map(|(_, spans)| spans).sum::<usize>(), all);
    for (bytes, count) in for_sentry {
        let again = decode(bytes.into(), &Limits::default());
        assert!(again.is_err() || again.is_ok_and(|again| again.spans.spans().len() == count));
    }
    let Some(first) = spans.resources().first() else { return };
    let process = ProcessAttributes::of(&spans, first, &TransactionResource::of(&spans, first, "production"));
    if let Some((item, _)) = span_v2_writer::item(&spans, spans.spans(), &process) {
        let payload = item.payload.plain().expect("it was written here");
        let again = span_v2_reader::read(payload, Some(all as u64), &TraceHeader::default());
        assert!(again.is_ok_and(|again| again.spans.spans().len() + again.unread as usize == all));
    }
});
