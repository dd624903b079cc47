//! Results of requests with spans.

use profbridge_engine::telemetry::ItemCounts;
use profbridge_model::{Quantities, Reason};
use profbridge_wire::otlp::traces::DecodedSpans;

use super::{AcceptedRequest, DecodedRequest, ExportHandler, complaint};
use crate::fault::CallFault;

/// Counts rejected spans, and returns the spans for the pipelines.
///
/// # Errors
///
/// No span can be accepted.
pub(super) fn decoded_request(handler: &ExportHandler, decoded: DecodedSpans) -> Result<DecodedRequest, CallFault> {
    let DecodedSpans { spans, refused, refused_spans } = decoded;
    let mut taken = AcceptedRequest {
        items: ItemCounts::spans(spans.spans().len() as u64),
        refused_items: ItemCounts::spans(refused_spans),
        refused: refused_spans,
        complaint: None,
    };
    if let Some(first) = refused.first() {
        handler.intake.refused(Reason::Malformed, Quantities::spans(refused_spans));
        if spans.is_empty() {
            return Err(CallFault { items: taken.refused_items, ..CallFault::invalid(&*first.place, &*first.rule) });
        }
        taken.complaint = Some(complaint(first, refused_spans - 1));
    }
    Ok((taken, (!spans.is_empty()).then(|| spans.into())))
}
