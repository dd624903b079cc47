//! Encodes spans as messages.

use bytes::Bytes;
use profbridge_model::{Quantities, Reason, SpanForm, Spans};
use profbridge_net::compression::Compression;
use profbridge_wire::otlp::traces;

use super::{Encoding, FORWARDED, OtlpEncoder, SPLIT, Signal, SignalCount};
use crate::compressor::written;
use crate::message::{Encoded, Message};

impl OtlpEncoder {
    /// Encodes a batch of spans: as the received bytes if unchanged, otherwise re-encoded.
    pub(super) fn spans(&mut self, spans: &Spans, out: &mut Encoded<SignalCount>) {
        // Senders should not send empty requests (opentelemetry-proto `docs/specification.md`).
        if spans.is_empty() {
            return;
        }
        if spans.form() != SpanForm::Otlp {
            return self.spans_of_sentry(spans, out);
        }
        let is_forwarded = self.options.encoding == Encoding::Protobuf && fits(spans, self.options.max_bytes);
        out.report.note(FORWARDED, u64::from(is_forwarded));
        self.otlp_spans(spans, out);
    }

    pub(super) fn otlp_spans(&mut self, spans: &Spans, out: &mut Encoded<SignalCount>) {
        let count = spans.spans().len();
        let received = spans.received().filter(|_| fits(spans, self.options.max_bytes));
        if self.options.encoding == Encoding::Json {
            let protobuf = received.cloned().unwrap_or_else(|| written(traces::encode(spans)));
            return self.spans_json(&protobuf, spans, self.options.part_bytes, out);
        }
        if let Some(received) = received {
            let packed = self.options.compression.content_encoding().and_then(|coding| spans.received_packed(coding));
            return self.packed_span_message(received.clone(), packed, count, out);
        }
        if let Some(message) = traces::encode_within(spans, self.options.part_bytes) {
            return self.span_message(written(message), count, out);
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

    pub(super) fn span_message(&mut self, bytes: Bytes, count: usize, out: &mut Encoded<SignalCount>) {
        self.packed_span_message(bytes, None, count, out);
    }

    /// Adds a message that may already be compressed as required.
    fn packed_span_message(
        &mut self,
        bytes: Bytes,
        packed: Option<&Bytes>,
        count: usize,
        out: &mut Encoded<SignalCount>,
    ) {
        let body = self.body(bytes, compression_of_spans(self.options.compression), packed);
        Self::finish(body, Quantities::spans(count as u64), out, |body| span_message(body, count as u64));
    }
}

/// The compression of spans. Their few keys and values repeat, so that gzip reaches a seventh of their size at level 1,
/// while level 3 reaches an eighth in twice the time.
pub(super) fn compression_of_spans(compression: Compression) -> Compression {
    match compression {
        Compression::Gzip { .. } => compression.with_level(1),
        Compression::None | Compression::Zstd { .. } => compression,
    }
}

/// Whether a batch can be sent as the received bytes.
fn fits(spans: &Spans, max_bytes: usize) -> bool {
    spans.received().is_some_and(|received| received.len() <= max_bytes)
}

/// A message with this many spans.
pub(super) fn span_message(body: Bytes, spans: u64) -> Message<SignalCount> {
    let meta = SignalCount { signal: Signal::Traces, counted: spans };
    Message { body, quantities: Quantities::spans(spans), samples: 0, meta }
}
