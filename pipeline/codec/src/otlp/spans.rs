//! Spans as messages.

use bytes::Bytes;
use profbridge_model::{Quantities, Reason, SpanForm, Spans};
use profbridge_wire::otlp::traces;

use super::{Batch, Encoder, FORWARDED, SPLIT, Signal};
use crate::compressor::written;
use crate::message::{Encoded, Message};

impl Encoder {
    /// Writes a batch of spans: as it came where nothing of it was changed, else anew.
    pub(super) fn spans(&mut self, spans: &Spans, out: &mut Encoded<Batch>) {
        // Senders should not send empty requests (opentelemetry-proto `docs/specification.md`).
        if spans.is_empty() {
            return;
        }
        if spans.form() != SpanForm::Otlp {
            return out.report.losses.add(Reason::Unroutable, spans.quantities());
        }
        let count = spans.spans().len();
        let received = spans.received().filter(|received| received.len() <= self.options.max_bytes);
        if let Some(received) = received {
            out.report.note(FORWARDED, 1);
            return self.span_message(received.clone(), count, out);
        }
        if traces::encoded_len(spans) <= self.options.part_bytes {
            return self.span_message(written(traces::encode(spans)), count, out);
        }
        out.report.note(SPLIT, 1);
        for (message, count) in traces::split(spans, self.options.part_bytes) {
            if message.len() > self.options.max_bytes {
                out.report.losses.add(Reason::TooLarge, Quantities::spans(count as u64));
            } else {
                self.span_message(written(message), count, out);
            }
        }
    }

    fn span_message(&mut self, bytes: Bytes, count: usize, out: &mut Encoded<Batch>) {
        self.finish(bytes, Quantities::spans(count as u64), out, |body| span_message(body, count as u64));
    }
}

/// A message of so many spans.
pub(super) fn span_message(body: Bytes, spans: u64) -> Message<Batch> {
    let meta = Batch { signal: Signal::Traces, counted: spans };
    Message { body, quantities: Quantities::spans(spans), samples: 0, meta }
}
