//! Encodes Sentry spans that were read from an envelope as OTLP messages.

use std::borrow::Cow;

use profbridge_model::{Losses, Quantities, Reason, SpanForm, Spans};
use profbridge_wire::otlp::{Limits, traces};
use profbridge_wire::sentry::spans_to_otlp;

use super::{OtlpEncoder, SignalCount};
use crate::message::Encoded;

impl OtlpEncoder {
    /// Encodes a transaction with its spans, or the spans of a container.
    pub(super) fn spans_of_sentry(&mut self, spans: &Spans, out: &mut Encoded<SignalCount>) {
        if let Some(spans) = as_otlp(spans, &mut out.report.losses) {
            self.otlp_spans(&spans, out);
        }
    }
}

/// Spans as OTLP: those that came as OTLP unchanged, others converted. Counts those beyond a limit; `None` if all are.
pub fn as_otlp<'a>(spans: &'a Spans, losses: &mut Losses) -> Option<Cow<'a, Spans>> {
    if spans.form() == SpanForm::Otlp {
        return Some(Cow::Borrowed(spans));
    }
    let request = spans_to_otlp::request(spans);
    // We built this request ourselves, so its size is acceptable.
    let limits = Limits { max_request: request.len(), ..Limits::default() };
    let Ok(decoded) = traces::decode(request.into(), &limits) else {
        losses.add(Reason::LimitExceeded, spans.quantities());
        return None;
    };
    losses.add(Reason::LimitExceeded, Quantities::spans(decoded.refused_spans));
    Some(Cow::Owned(decoded.spans))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use profbridge_model::{Envelope, ItemView};
    use profbridge_wire::sentry::{envelope, span_items};

    use super::super::{EncoderOptions, Signal};
    use super::*;

    fn encoded(text: &'static [u8], max_bytes: usize) -> Encoded<SignalCount> {
        let mut envelope: Envelope = envelope::read(Bytes::from_static(text)).unwrap().envelope;
        let read = span_items::read_items(&envelope).map(|(item, read)| ItemView::spans(item, read.unwrap().spans));
        envelope.views = read.collect();
        OtlpEncoder::new(EncoderOptions::plain(max_bytes)).encode(&envelope.into())
    }

    /// Guarantees: Sentry spans are sent as OTLP that another reader accepts, in one message or, if it is too large, in
    /// several; every span is counted exactly once.
    #[test]
    fn views_leave_as_otlp() {
        for text in [
            &include_bytes!("../../../wire/testdata/sentry/python-2.75-transaction.envelope")[..],
            include_bytes!("../../../wire/testdata/sentry/node-10.75-transaction.envelope"),
            include_bytes!("../../../wire/testdata/sentry/node-11.1-span.envelope"),
        ] {
            for (max_bytes, parts, lost) in [(1 << 20, 1, 0), (4000, 2, 0), (100, 0, 2)] {
                let Encoded { messages, report } = encoded(text, max_bytes);
                let read = |body: &Bytes| traces::decode(body.clone(), &Limits::default()).unwrap().spans;
                let sent: usize = messages.iter().map(|message| read(&message.body).spans().len()).sum();
                let too_large = report.losses.get(Reason::TooLarge).spans;
                assert!(messages.len() <= parts.max(1) && too_large <= lost, "{max_bytes}: {}", messages.len());
                assert_eq!(sent as u64 + too_large, 2);
                let counted: u64 = messages.iter().map(|message| message.quantities.spans).sum();
                assert_eq!(counted, sent as u64);
                assert!(messages.iter().all(|message| message.meta.signal == Signal::Traces));
            }
        }
    }
}
