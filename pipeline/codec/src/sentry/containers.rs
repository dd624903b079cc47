//! Spans that came to Sentry in containers and left as OTLP go back into containers.

use std::collections::HashMap;

use profbridge_model::{Item, Losses, Quantities, Reason, Span, Spans, TraceId};
use profbridge_wire::sentry::span_v2_writer;

/// The most spans of a container (getsentry/sentry-javascript `packages/core/src/tracing/spans/spanBuffer.ts`).
const MAX_SPANS: usize = 1000;

/// The streamed spans among some that no processor has put together, by resource and trace, each in their order. The
/// header of an envelope speaks of one trace.
pub(super) fn groups(spans: &Spans, run: &[Span]) -> Vec<Vec<Span>> {
    let mut groups: Vec<Vec<Span>> = Vec::new();
    let mut known: HashMap<(u32, TraceId), usize> = HashMap::new();
    for span in run.iter().filter(|span| span.is_streamed) {
        let key = (spans.scope_of(span).resource, span.trace_id);
        let open = known.get(&key).copied().filter(|at| groups[*at].len() < MAX_SPANS);
        let at = open.unwrap_or_else(|| {
            known.insert(key, groups.len());
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[at].push(span.clone());
    }
    groups
}

/// Containers of spans, as few as they fit into, each with how many are in it. A span that is too large for one by
/// itself is a loss.
pub(super) fn items(spans: &Spans, group: &[Span], losses: &mut Losses) -> Vec<(Item, u64)> {
    match span_v2_writer::item(spans, group) {
        Some(item) => vec![(item, group.len() as u64)],
        None if group.len() > 1 => {
            let (one, other) = group.split_at(group.len() / 2);
            let mut items = self::items(spans, one, losses);
            items.extend(self::items(spans, other, losses));
            items
        }
        None => {
            losses.add(Reason::TooLarge, Quantities::spans(group.len() as u64));
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests;
