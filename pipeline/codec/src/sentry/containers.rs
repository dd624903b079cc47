//! Puts spans into Sentry's containers: streamed spans that came as OTLP, or any spans if the exporter streams them.

use std::collections::{HashMap, HashSet};

use profbridge_model::{Item, Losses, Quantities, Reason, Span, SpanId, Spans, TraceId};
use profbridge_wire::sentry::span_v2_writer::{self, ProcessAttributes};
use profbridge_wire::sentry::transaction::Notes;

/// Maximum number of spans in a container (getsentry/sentry-javascript
/// `packages/core/src/tracing/spans/spanBuffer.ts`).
const MAX_SPANS: usize = 1000;

/// Groups the streamed spans of a run by resource and trace, each in order, since an envelope's header can only
/// describe one trace. Relay drops all but one of the spans with the same id in a container, so the second one goes
/// into another container.
pub(super) fn groups(spans: &Spans, run: &[Span]) -> Vec<Vec<Span>> {
    let mut groups: Vec<Vec<Span>> = Vec::new();
    let mut known: HashMap<(u32, TraceId), usize> = HashMap::new();
    let mut ids: HashSet<(usize, SpanId)> = HashSet::new();
    for span in run.iter().filter(|span| span.is_streamed) {
        let key = (spans.scope_of(span).resource, span.trace_id);
        let has_room = |at: &usize| groups[*at].len() < MAX_SPANS && !ids.contains(&(*at, span.span_id));
        let open = known.get(&key).copied().filter(has_room);
        let at = open.unwrap_or_else(|| {
            known.insert(key, groups.len());
            groups.push(Vec::new());
            groups.len() - 1
        });
        ids.insert((at, span.span_id));
        groups[at].push(span.clone());
    }
    groups
}

/// As few containers as possible, each with its number of spans. A span that exceeds the limit on its own is counted as
/// lost, and so are values that Sentry cannot represent.
pub(super) fn items(
    spans: &Spans,
    group: &[Span],
    process: &ProcessAttributes,
    losses: &mut Losses,
    notes: &mut Notes,
) -> Vec<(Item, u64)> {
    match span_v2_writer::item(spans, group, process) {
        Some((item, invalid)) => {
            notes.invalid_values += invalid;
            vec![(item, group.len() as u64)]
        }
        None if group.len() > 1 => {
            let (one, other) = group.split_at(group.len() / 2);
            let mut items = self::items(spans, one, process, losses, notes);
            items.extend(self::items(spans, other, process, losses, notes));
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
