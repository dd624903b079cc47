//! Decides at once about the spans of a batch: Sentry transactions and spans, which arrive as their program grouped
//! them, and spans that the processor `transactions` has grouped.
//!
//! The spans of a trace may come in several containers, and children before their root span. So the first container
//! decides for the others, which needs no waiting ([`Traces::decided`]).

use std::collections::HashMap;

use profbridge_engine::component::{Now, Outbox};
use profbridge_model::{Quantities, Reason, Span, SpanForm, Spans, TraceId};
use profbridge_wire::sentry::trace_header::TraceHeader;
use profbridge_wire::spans::SpanView;

use crate::decision::Decision;
use crate::sampled_out::BatchCounts;
use crate::sampler::rate_before;
use crate::traces::{Decided, DecisionContext, TraceKey, Traces};

/// Spans that share one decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DecisionGroup {
    /// Spans of one transaction.
    Segment(u32),
    /// Spans of one trace and one resource. The resource is given by its index.
    Trace(u32, TraceId),
    /// Spans of an envelope item that is a transaction.
    Transaction,
}

impl DecisionGroup {
    /// Whether the spans are a transaction or will become one.
    fn is_transaction(self) -> bool {
        matches!(self, Self::Segment(_) | Self::Transaction)
    }
}

/// What a request says of all of its spans.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    /// The trace context in the header of an envelope.
    pub(crate) header: TraceHeader,
    /// A hash that distinguishes the clients of Sentry.
    pub(crate) client: u128,
}

#[derive(Debug)]
struct GroupDecision {
    /// The index of the span that decides: the root span, or else the first span.
    first: usize,
    is_root: bool,
    decision: Decision,
}

/// Drops the spans that are not kept, and counts them. The caller reports the counts.
pub(crate) fn decide(
    spans: &mut Spans,
    Sender { header, client }: &Sender,
    traces: &mut Traces,
    context: &mut DecisionContext<'_>,
    now: Now,
    out: &mut Outbox,
) -> BatchCounts {
    let group = |position: usize| {
        if spans.form() == SpanForm::SentryTransaction {
            return DecisionGroup::Transaction;
        }
        let span = &spans.spans()[position];
        let of_trace = || DecisionGroup::Trace(spans.scope_of(span).resource, span.trace_id);
        span.segment.map_or_else(of_trace, |segment| DecisionGroup::Segment(segment.number))
    };
    let groups: Vec<DecisionGroup> = (0..spans.spans().len()).map(group).collect();
    let is_root = |span: &Span| span.segment.map_or_else(|| span.is_local_root(), |segment| segment.is_root);
    let mut known: HashMap<DecisionGroup, GroupDecision> = HashMap::new();
    for (position, span) in spans.spans().iter().enumerate() {
        let new = || GroupDecision { first: position, is_root: is_root(span), decision: Decision::KEPT };
        let of = known.entry(groups[position]).or_insert_with(new);
        // If a trace has several root spans, the earliest one decides, because the others are below it.
        let is_earlier = || span.start_unix_nano < spans.spans()[of.first].start_unix_nano;
        if is_root(span) && (!of.is_root || is_earlier()) {
            (of.first, of.is_root) = (position, true);
        }
    }
    let mut in_order: Vec<_> = known.iter_mut().collect();
    in_order.sort_unstable_by_key(|(_, of)| of.first);
    for (group, of) in in_order {
        let span = &spans.spans()[of.first];
        let key = match group {
            // A decision in the header comes with each container.
            DecisionGroup::Trace(_, trace) if !context.sampler.keeps_all() && header.of(*trace).sampled.is_none() => {
                let process = context.processes.identify(spans, span).identity ^ client;
                Some(TraceKey { process, trace: span.trace_id })
            }
            _ => None,
        };
        if let Some(decided) = key.and_then(|key| traces.decided(&key)) {
            of.decision = decided.decision;
            continue;
        }
        of.decision = context.sampler.decide(&SpanView::of(spans, span), of.is_root, header, out);
        if let Some(key) = key {
            let rootless = !of.is_root;
            out.note(crate::WITHOUT_ROOT, rootless.into());
            traces.set_decided(key, Decided { decision: of.decision, rootless }, now, out);
            traces.enforce_bounds(now, context.sampler, out);
        }
    }
    // Sentry takes the rate of a transaction from the header of its envelope, and of other spans from each of them.
    let mut rates = Vec::new();
    for (position, span) in spans.spans().iter().enumerate() {
        let of = &known[&groups[position]];
        if let Decision { kept: true, rate: Some(rate), .. } = of.decision
            && (span.is_streamed || position == of.first)
        {
            rates.push((position, rate * rate_before(&SpanView::of(spans, span), header).unwrap_or(1.0)));
        }
    }
    if let Some(lifecycle) = &mut context.lifecycle {
        let kept = |(position, span): &(usize, &Span)| is_root(span) && known[&groups[*position]].decision.kept;
        for (_, span) in spans.spans().iter().enumerate().filter(kept) {
            let names = context.processes.names(&SpanView::of(spans, span), spans);
            lifecycle.add_root(&names, span, now, out);
        }
    }
    rates.into_iter().for_each(|(position, rate)| spans.change(position, |of| of.sample_rate = Some(rate)));
    let is_kept = |position: usize| known[&groups[position]].decision.kept;
    let mut sampled_out = BatchCounts::default();
    let dropped = spans.spans().iter().enumerate().filter(|(position, _)| !is_kept(*position));
    dropped.for_each(|(_, span)| sampled_out.add(spans, span));
    for (_, of) in known.iter().filter(|(group, of)| group.is_transaction() && !of.decision.kept) {
        let first = &spans.spans()[of.first];
        sampled_out.add_transaction(spans.scope_of(first).resource);
    }
    spans.retain(|position, _| is_kept(position));
    out.drop(Reason::SampleRate, Quantities::spans(sampled_out.total().spans));
    sampled_out
}
