//! Sentry's spans, which were read of an envelope, as messages.

use profbridge_model::{Quantities, Reason, Spans};
use profbridge_wire::otlp::{Limits, traces};
use profbridge_wire::sentry::spans_to_otlp;

use super::{Batch, Encoder};
use crate::message::Encoded;

impl Encoder {
    /// Writes a transaction and its spans, or those of a container.
    pub(super) fn spans_of_sentry(&mut self, spans: &Spans, out: &mut Encoded<Batch>) {
        let request = spans_to_otlp::request(spans);
        // Our own message: it is as large as it was made.
        let limits = Limits { max_request: request.len(), ..Limits::default() };
        let Ok(decoded) = traces::decode(request.into(), &limits) else {
            return out.report.losses.add(Reason::LimitExceeded, spans.quantities());
        };
        out.report.losses.add(Reason::LimitExceeded, Quantities::spans(decoded.refused_spans));
        self.otlp_spans(&decoded.spans, out);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use profbridge_model::{Envelope, View};
    use profbridge_wire::sentry::{envelope, span_items};

    use super::super::{EncoderOptions, Signal};
    use super::*;

    fn encoded(text: &'static [u8], max_bytes: usize) -> Encoded<Batch> {
        let mut envelope: Envelope = envelope::read(Bytes::from_static(text)).unwrap().envelope;
        let read = span_items::read_items(&envelope).map(|(item, read)| View::spans(item, read.unwrap().spans));
        envelope.views = read.collect();
        Encoder::new(EncoderOptions::plain(max_bytes)).encode(&envelope.into())
    }

    /// Guarantees: what was read of Sentry's spans leaves as OTLP that another reader takes, in one message or, where
    /// that is too large, in several; no span is counted twice or not at all.
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
