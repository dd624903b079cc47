//! Uses arbitrary bytes as a span, in the form that the first byte selects.
//!
//! Guarantees: no panic; rates and numbers are in their range; reading twice gives the same result.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use profbridge_model::spans::{SpanResource, SpanScope};
use profbridge_model::{ByteRange, Span, SpanForm, SpanId, SpanKind, Spans, TraceId};
use profbridge_wire::sentry::trace_header::TraceHeader;
use profbridge_wire::spans::{SpanView, process};

fuzz_target!(|data: &[u8]| {
    let Some((form, data)) = data.split_first() else { return };
    TraceHeader::read(data);
    let form = [SpanForm::Otlp, SpanForm::SentryTransaction, SpanForm::SentrySpans][usize::from(*form) % 3];
    let at = ByteRange { start: 0, len: data.len() as u32 };
    let span = Span {
        trace_id: TraceId::new(&[1; 16]).expect("it is not zero"),
        span_id: SpanId::new(&[2; 8]).expect("it is not zero"),
        parent_span_id: None,
        start_unix_nano: 1,
        end_unix_nano: 2,
        kind: SpanKind::Internal,
        parent_is_remote: None,
        sampled: None,
        scope: 0,
        at,
        is_streamed: false,
        segment: None,
        changes: None,
    };
    let resource = SpanResource { parts: vec![at], added: Vec::new() };
    let bytes = Bytes::copy_from_slice(data);
    let spans = Spans::new(form, bytes, vec![resource], vec![SpanScope::default()], vec![span], true);
    let spans = spans.expect("all places are inside");
    let view = SpanView::of(&spans, &spans.spans()[0]);
    assert!(view.sample_rate().is_none_or(|rate| rate > 0.0 && rate <= 1.0));
    assert!(view.sample_rand().is_none_or(|number| (0.0..1.0).contains(&number)));
    let said = (view.name(), view.op(), view.service_name(), view.decision(), view.profiler_id(), view.attribute("a"));
    let again = SpanView::of(&spans, &spans.spans()[0]);
    let second =
        (again.name(), again.op(), again.service_name(), again.decision(), again.profiler_id(), again.attribute("a"));
    assert_eq!(format!("{said:?}"), format!("{second:?}"));
    process(&view, None);
});
