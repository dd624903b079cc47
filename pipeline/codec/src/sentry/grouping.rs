//! Groups the spans of one batch, for transactions without the processor `transactions`: where Sentry's server has no
//! OTLP endpoint, or the configuration asks for transactions.
//!
//! Nothing waits: a root that arrives with a later batch is another transaction than the spans that were sent before.

use std::borrow::Cow;
use std::collections::HashMap;

use profbridge_model::spans::Segment;
use profbridge_model::{Span, SpanId, Spans, TraceId};

/// Groups spans into transactions. A transaction begins with its root: the first span of a process above its other
/// spans in the batch, or else the topmost span. Streamed spans come first, in no transaction. A batch that a processor
/// grouped is returned unchanged.
pub fn grouped(spans: &Spans) -> Cow<'_, Spans> {
    let all = spans.spans();
    if all.iter().all(|span| span.is_streamed || span.segment.is_some()) {
        return Cow::Borrowed(spans);
    }
    let tops = tops(spans);
    let mut order: Vec<usize> = (0..tops.len()).collect();
    // The top comes before the spans below it.
    order.sort_by_key(|at| (!all[*at].is_streamed, tops[*at], *at != tops[*at], *at));
    let of_order = order.into_iter().map(|at| match all[at].is_streamed {
        true => all[at].clone(),
        false => in_segment(spans, at, tops[at]),
    });
    Cow::Owned(spans.rearranged(of_order.collect()))
}

/// The spans with their segments, as if each had been streamed by an SDK of Sentry's. The number of a segment is the
/// position of its first span.
pub(super) fn streamed(spans: &Spans) -> Spans {
    let each = tops(spans).into_iter().enumerate().map(|(at, top)| in_segment(spans, at, top));
    spans.rearranged(each.map(|span| Span { is_streamed: true, ..span }).collect())
}

/// The span at a position, in the segment of the span at another.
fn in_segment(spans: &Spans, at: usize, top: usize) -> Span {
    let span = &spans.spans()[at];
    let segment = Segment { number: top as u32, is_root: top == at && span.is_local_root() };
    Span { segment: Some(segment), ..span.clone() }
}

/// The position of the topmost span above each span, within its process and up to the first span of that process.
fn tops(spans: &Spans) -> Vec<usize> {
    let all = spans.spans();
    let resource = |span: &Span| spans.scope_of(span).resource;
    let mut known: HashMap<(u32, TraceId, SpanId), usize> = HashMap::with_capacity(all.len());
    for (at, span) in all.iter().enumerate() {
        known.entry((resource(span), span.trace_id, span.span_id)).or_insert(at);
    }
    let parent = |span: &Span| {
        let parent = span.parent_span_id.filter(|_| !span.is_local_root())?;
        known.get(&(resource(span), span.trace_id, parent)).copied()
    };
    let mut tops: Vec<Option<usize>> = vec![None; all.len()];
    let mut visited_from: Vec<Option<usize>> = vec![None; all.len()];
    for start in 0..all.len() {
        let (mut at, mut path) = (start, Vec::new());
        let top = loop {
            if let Some(top) = tops[at] {
                break top;
            }
            path.push(at);
            visited_from[at] = Some(start);
            match parent(&all[at]) {
                // A parent that was visited from this span closes a cycle.
                Some(above) if visited_from[above] != Some(start) => at = above,
                _ => break at,
            }
        };
        path.into_iter().for_each(|at| tops[at] = Some(top));
    }
    tops.into_iter().enumerate().map(|(at, top)| top.unwrap_or(at)).collect()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as OtlpSpan};
    use profbridge_wire::otlp::{Limits, traces};
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    /// Spans of two processes: each with its process, its id, its parent's id (0: none) and its kind.
    fn batch(spans: &[(usize, u8, u8, i32)]) -> Spans {
        let mut scopes = [ScopeSpans::default(), ScopeSpans::default()];
        for (process, id, parent, kind) in spans {
            let parent_span_id = if *parent == 0 { Vec::new() } else { vec![*parent; 8] };
            let span = OtlpSpan {
                trace_id: vec![1; 16],
                span_id: vec![*id; 8],
                parent_span_id,
                kind: *kind,
                ..OtlpSpan::default()
            };
            scopes[*process].spans.push(span);
        }
        let resource = |scope| ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
        let request = ExportTraceServiceRequest { resource_spans: scopes.map(resource).into() };
        traces::decode(request.encode_to_vec().into(), &Limits::default()).unwrap().spans
    }

    /// The ids of the spans of each transaction, and whether its first span is a root.
    fn transactions(spans: &[(usize, u8, u8, i32)]) -> Vec<(Vec<u8>, bool)> {
        let before = batch(spans);
        let grouped = grouped(&before);
        let segment = |run: &[Span]| {
            let ids = run.iter().map(|span| span.span_id.bytes()[0]).collect();
            (ids, run[0].segment.is_some_and(|segment| segment.is_root))
        };
        grouped.segments().map(segment).collect()
    }

    /// Guarantees: spans are grouped below the first span of their process. A span that serves a call or has no parent
    /// is the root of a transaction; a span whose parent is missing begins one without being a root. Equal ids of
    /// different processes are distinguished, and a cycle of parents becomes one transaction.
    #[test]
    fn groups() {
        const INTERNAL: i32 = 1;
        const SERVER: i32 = 2;
        let spans =
            [(0, 3, 2, INTERNAL), (0, 2, 1, INTERNAL), (0, 1, 0, INTERNAL), (0, 4, 3, SERVER), (0, 5, 4, INTERNAL)];
        assert_eq!(transactions(&spans), [(vec![1, 3, 2], true), (vec![4, 5], true)]);
        assert_eq!(transactions(&[(0, 2, 9, 1), (0, 3, 2, 1), (1, 4, 2, 1)]), [(vec![2, 3], false), (vec![4], false)]);
        assert_eq!(transactions(&[(0, 1, 2, 1), (0, 2, 3, 1), (0, 3, 1, 1)]).len(), 1);
    }

    proptest! {
        /// Guarantees: for any parents, each span is in exactly one transaction, and is at its top if it is a local
        /// root.
        #[test]
        fn any_parents(spans in prop::collection::vec((0usize..2, 1u8..20, 0u8..20, 0i32..6), 0..40)) {
            let spans: Vec<_> = spans.into_iter().filter(|(_, id, parent, _)| id != parent).collect();
            let before = batch(&spans);
            let grouped = grouped(&before);
            prop_assert_eq!(grouped.spans().len(), before.spans().len());
            let numbers: Vec<_> = grouped.spans().iter().map(|span| span.segment.unwrap().number).collect();
            prop_assert!(numbers.is_sorted());
            for (span, streamed) in before.spans().iter().zip(streamed(&before).spans()) {
                prop_assert_eq!(span.span_id, streamed.span_id);
                let top = &before.spans()[streamed.segment.unwrap().number as usize];
                prop_assert!(!span.is_local_root() || top.at == span.at);
            }
        }
    }
}
