//! Summarizes a batch of spans.

use std::collections::HashSet;
use std::fmt::{self, Write as _};

use profbridge_model::{SpanForm, Spans};

use super::{Count, more};
use crate::config::Verbosity;

/// The maximum number of spans of a batch that are described individually.
const MOST_SPANS: usize = 20;

/// Appends the summary of a batch of spans to `text`.
pub(super) fn summary(text: &mut String, batch: &Spans, verbosity: Verbosity) -> fmt::Result {
    let form = match batch.form() {
        SpanForm::Otlp => "spans",
        SpanForm::SentryTransaction => "transaction",
        SpanForm::SentrySpans => "spans of Sentry's",
    };
    let traces: HashSet<_> = batch.spans().iter().map(|span| span.trace_id).collect();
    let (spans, traces) = (batch.spans().len() as u64, traces.len() as u64);
    write!(text, "{form}: {} of {}", Count(spans, "span"), Count(traces, "trace"))?;
    if verbosity == Verbosity::Basic {
        return Ok(());
    }
    for span in batch.spans().iter().take(MOST_SPANS) {
        let millis = span.end_unix_nano.saturating_sub(span.start_unix_nano) as f64 / 1e6;
        write!(text, "; {} of trace {}, {:?}, {millis:.3} ms", span.span_id, span.trace_id, span.kind)?;
        if let Some(parent) = span.parent_span_id {
            write!(text, ", in {parent}")?;
        }
    }
    more(text, batch.spans().len(), MOST_SPANS, "; ", "span")
}
