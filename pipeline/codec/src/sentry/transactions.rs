//! Encodes grouped spans as transactions, each in its own envelope, streamed spans as containers, and OTLP spans as
//! requests for Sentry's OTLP endpoint.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write as _};

use bytes::Bytes;
use profbridge_model::spans::Packed;
use profbridge_model::{Losses, Quantities, Reason, Span, SpanForm, Spans, TraceId};
use profbridge_net::compression::Compression;
use profbridge_wire::otlp::traces::OtherSpanFields;
use profbridge_wire::sentry::otlp_spans::{MAX_BYTES, SentrySpans, client_sample_rate};
use profbridge_wire::sentry::span_v2_writer::ProcessAttributes;
use profbridge_wire::sentry::transaction::{Notes, TransactionResource, root};
use profbridge_wire::sentry::{Dsn, ResourceAttributes, transaction_envelope};
use xxhash_rust::xxh3::xxh3_128;

use super::{ContentEncoding, EnvelopeEncoder, containers, grouping};
use crate::compressor::Compressor;
use crate::message::{Encoded, Message};

/// Counts events of spans, for which containers have no place.
const EVENTS_LEFT_OUT: &str = "sentry_span_events_left_out";

/// The minimum factor by which compression shrinks a transaction's JSON.
const SHRINKS: usize = 3;

/// Maximum number of a batch's resources to cache with their transactions' common data: a gateway's batch may alternate
/// between the resources of many processes.
const MAX_KEPT: usize = 64;

/// The target of a resource's transactions.
#[derive(Debug, Clone, Copy)]
pub struct TransactionTarget<'a> {
    /// The caller's number for this target.
    pub number: usize,
    /// Its DSN, whose public key goes into the trace header; `None` if envelopes are written to files.
    pub dsn: Option<&'a Dsn>,
    /// The compression of its envelopes.
    pub compression: Compression,
}

/// What spans become for Sentry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanEnvelopeForm {
    /// A transaction in an envelope of its own.
    Transaction,
    /// A container of spans in an envelope of its own.
    Container,
}

/// A request for Sentry's OTLP endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtlpSpans {
    /// Number of spans.
    pub spans: u64,
    /// How the body was compressed by the client that sent it; `None` if it was encoded here.
    pub received: Option<ContentEncoding>,
}

/// The metadata of a message made of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanEnvelope {
    /// The number of its target.
    pub target: usize,
    /// What it is.
    pub form: SpanEnvelopeForm,
    /// Number of spans; a transaction itself counts as one.
    pub spans: u64,
    /// Their trace id.
    pub trace_id: TraceId,
    /// A transaction's event id, or a container's hash.
    pub id: u128,
    /// Start of the transaction or of the container's first span, in nanoseconds since the Unix epoch.
    pub start_unix_nano: u64,
}

/// The resources of a batch with their targets.
struct Resources<'d, R> {
    route: R,
    kept: HashMap<u32, Option<(TransactionTarget<'d>, TransactionResource)>>,
}

impl<'d, R: FnMut(&ResourceAttributes<'_>) -> Option<TransactionTarget<'d>>> Resources<'d, R> {
    /// The target and the common data of a resource; `None` if it has no target.
    fn get(
        &mut self,
        spans: &Spans,
        of: &Span,
        environment: &str,
    ) -> Option<&(TransactionTarget<'d>, TransactionResource)> {
        let number = spans.scope_of(of).resource;
        if self.kept.len() >= MAX_KEPT && !self.kept.contains_key(&number) {
            self.kept.clear();
        }
        let new = || {
            let resource = spans.resource_of(of);
            let target = (self.route)(&ResourceAttributes::of_resource(spans, resource))?;
            Some((target, TransactionResource::of(spans, resource, environment)))
        };
        self.kept.entry(number).or_insert_with(new).as_ref()
    }
}

impl EnvelopeEncoder {
    /// Encodes the transactions of a batch, each in its own envelope, and the spans that came from Sentry containers as
    /// containers again. `route` returns the target of a resource.
    ///
    /// Other ungrouped spans, spans from an envelope, and spans of a resource without a target are counted as
    /// unroutable.
    pub fn spans<'d>(
        &mut self,
        spans: &Spans,
        route: impl FnMut(&ResourceAttributes<'_>) -> Option<TransactionTarget<'d>>,
    ) -> Encoded<SpanEnvelope> {
        let mut encoded = Encoded::default();
        let mut losses = Losses::default();
        let mut notes = Notes::default();
        let mut resources = Resources { route, kept: HashMap::new() };
        for segment in spans.segments() {
            if spans.form() != SpanForm::Otlp {
                losses.add(Reason::Unroutable, Quantities::spans(segment.len() as u64));
                continue;
            }
            let Some(root) = root(segment).filter(|root| root.segment.is_some()) else {
                let streamed = self.containers(spans, segment, &mut resources, &mut losses, &mut encoded);
                losses.add(Reason::Unroutable, Quantities::spans(segment.len() as u64 - streamed));
                continue;
            };
            let Some((target, resource)) = resources.get(spans, root, &self.environment) else {
                losses.add(Reason::Unroutable, Quantities::spans(segment.len() as u64));
                continue;
            };
            let Some(transaction) = self.writer.write(spans, segment, resource) else { continue };
            losses.merge(&transaction.losses);
            notes.merge(transaction.notes);
            let summary = &transaction.summary;
            let sent = SpanEnvelope {
                target: target.number,
                form: SpanEnvelopeForm::Transaction,
                spans: summary.spans,
                trace_id: summary.trace_id,
                id: summary.event_id.as_u128(),
                start_unix_nano: summary.start_unix_nano,
            };
            let head = transaction_envelope::head(summary, resource, target.dsn);
            let body = envelope(&mut self.compressor, head.as_bytes(), transaction.json, target);
            put(&mut encoded, &mut losses, body, sent);
        }
        encoded.report.losses = losses;
        for (name, count) in notes.counts() {
            encoded.report.note(name, count);
        }
        encoded
    }

    /// Encodes all OTLP spans of a batch as containers, as if a Sentry SDK had streamed them. `route` returns the
    /// target of a resource; spans without one are counted as unroutable.
    pub fn streamed_spans<'d>(
        &mut self,
        spans: &Spans,
        route: impl FnMut(&ResourceAttributes<'_>) -> Option<TransactionTarget<'d>>,
    ) -> Encoded<SpanEnvelope> {
        let (mut encoded, mut losses) = (Encoded::default(), Losses::default());
        if spans.form() != SpanForm::Otlp {
            losses.add(Reason::Unroutable, spans.quantities());
        } else {
            let spans = grouping::streamed(spans);
            let mut resources = Resources { route, kept: HashMap::new() };
            self.containers(&spans, spans.spans(), &mut resources, &mut losses, &mut encoded);
        }
        encoded.report.losses = losses;
        encoded
    }

    /// Encodes OTLP spans as requests for Sentry's OTLP endpoint. Unchanged spans of a client are sent as they were
    /// received.
    pub fn otlp_spans(&mut self, spans: &Spans, compression: Compression) -> Encoded<OtlpSpans> {
        let mut encoded = Encoded::default();
        if spans.form() != SpanForm::Otlp {
            encoded.report.losses.add(Reason::Unroutable, spans.quantities());
            return encoded;
        }
        let mut put = |body: io::Result<Bytes>, spans: u64, received| match body {
            Ok(body) => {
                let meta = OtlpSpans { spans, received };
                encoded.messages.push(Message { body, quantities: Quantities::spans(spans), samples: 0, meta });
            }
            Err(error) => {
                encoded.report.losses.add(Reason::Internal, Quantities::spans(spans));
                encoded.report.error = encoded.report.error.take().or(Some(error));
            }
        };
        let count = spans.spans().len() as u64;
        if let Some(received) =
            spans.received().filter(|received| spans.client.is_some() && received.len() <= MAX_BYTES)
        {
            match spans.packed() {
                Some(Packed { coding, bytes }) => put(Ok(bytes.clone()), count, Some(ContentEncoding(Some(coding)))),
                None => put(self.compressor.pack(compression, Cow::Borrowed(received)), count, None),
            }
            return encoded;
        }
        let mut too_large = 0;
        for (request, count) in SentrySpans::new(spans, &self.environment).requests() {
            if request.len() > MAX_BYTES {
                too_large += count as u64;
            } else {
                put(self.compressor.pack(compression, Cow::Owned(request)), count as u64, None);
            }
        }
        encoded.report.losses.add(Reason::TooLarge, Quantities::spans(too_large));
        encoded
    }

    /// Encodes the container spans in a run of spans. Returns the number of such spans.
    fn containers<'d, R: FnMut(&ResourceAttributes<'_>) -> Option<TransactionTarget<'d>>>(
        &mut self,
        spans: &Spans,
        run: &[Span],
        resources: &mut Resources<'d, R>,
        losses: &mut Losses,
        encoded: &mut Encoded<SpanEnvelope>,
    ) -> u64 {
        let mut streamed = 0;
        for group in containers::groups(spans, run) {
            let count = group.len() as u64;
            streamed += count;
            let Some((first, (target, resource))) =
                group.first().and_then(|first| Some((first, resources.get(spans, first, &self.environment)?)))
            else {
                losses.add(Reason::Unroutable, Quantities::spans(count));
                continue;
            };
            let rate = group.iter().find_map(|span| client_sample_rate(spans, span));
            let events: usize = group.iter().map(|span| OtherSpanFields::of(spans, span).events().count()).sum();
            encoded.report.note(EVENTS_LEFT_OUT, events as u64);
            let process = ProcessAttributes::of(spans, spans.resource_of(first), resource);
            let mut notes = Notes::default();
            let items = containers::items(spans, &group, &process, losses, &mut notes);
            notes.counts().for_each(|(name, count)| encoded.report.note(name, count));
            for (item, count) in items {
                let head = transaction_envelope::container_head(&item, first.trace_id, rate, resource, target.dsn);
                let json = item.payload.plain().map_or(&[][..], |json| json);
                let body = envelope(&mut self.compressor, &head, json, target);
                let sent = SpanEnvelope {
                    target: target.number,
                    form: SpanEnvelopeForm::Container,
                    spans: count,
                    trace_id: first.trace_id,
                    id: xxh3_128(json),
                    start_unix_nano: first.start_unix_nano,
                };
                put(encoded, losses, body, sent);
            }
        }
        streamed
    }
}

/// Adds an envelope to the messages, or counts it as lost.
fn put(encoded: &mut Encoded<SpanEnvelope>, losses: &mut Losses, body: io::Result<Bytes>, sent: SpanEnvelope) {
    let quantities = Quantities::spans(sent.spans);
    match body {
        Ok(body) => encoded.messages.push(Message { body, quantities, samples: 0, meta: sent }),
        Err(error) => {
            losses.add(Reason::Internal, quantities);
            encoded.report.error = encoded.report.error.take().or(Some(error));
        }
    }
}

/// An envelope with one item: the lines before its JSON, and the JSON.
fn envelope(compressor: &mut Compressor, head: &[u8], json: &[u8], to: &TransactionTarget<'_>) -> io::Result<Bytes> {
    let mut open = compressor.open(to.compression, head.len() + json.len() + 1, SHRINKS)?;
    open.write_all(head)?;
    open.write_all(json)?;
    open.write_all(b"\n")?;
    compressor.close(open)
}

#[cfg(test)]
mod tests {
    use profbridge_model::spans::Segment;
    use profbridge_model::{Envelope, ItemView};
    use profbridge_wire::otlp::{Limits, traces};
    use profbridge_wire::sentry::chunk::Settings;
    use profbridge_wire::sentry::timestamp::Timestamp;
    use profbridge_wire::sentry::{envelope, span_items};
    use serde_json::Value;

    use super::*;
    use crate::otlp;

    /// An SDK's envelope with its spans read, as the receiver delivers it.
    fn received(text: &'static [u8]) -> Envelope {
        let mut envelope: Envelope = envelope::read(Bytes::from_static(text)).unwrap().envelope;
        let read = span_items::read_items(&envelope).map(|(item, read)| ItemView::spans(item, read.unwrap().spans));
        envelope.views = read.collect();
        envelope
    }

    fn as_number(value: &mut Value) -> Option<f64> {
        let text = value.as_str().map(str::to_owned);
        value.as_f64().or_else(|| Some(Timestamp::parse(&text?)?.0 as f64 / 1e9))
    }

    /// Guarantees: an SDK's transaction that is sent as OTLP and grouped again has the same name and spans, with their
    /// ids, operations, descriptions and data; times are equal to a microsecond.
    #[test]
    fn transactions_stay_readable() {
        for text in [
            &include_bytes!("../../../wire/testdata/sentry/python-2.75-transaction.envelope")[..],
            include_bytes!("../../../wire/testdata/sentry/node-10.75-transaction.envelope"),
        ] {
            let sent = received(text);
            let payload = sent.items[0].payload.plain().unwrap().clone();
            let encoded = otlp::OtlpEncoder::new(otlp::EncoderOptions::plain(1 << 20)).encode(&sent.into());
            let [message] = &encoded.messages[..] else { panic!("{:?}", encoded.report) };
            let read = traces::decode(message.body.clone(), &Limits::default()).unwrap().spans;
            let first = read.spans().iter().position(Span::is_local_root).unwrap();
            let together = read.spans().iter().cloned().enumerate().map(|(position, span)| Span {
                segment: Some(Segment { number: 1, is_root: position == first }),
                ..span
            });
            let (resources, scopes) = (read.resources().to_vec(), read.scopes().to_vec());
            let spans = together.collect();
            let spans = Spans::new(SpanForm::Otlp, read.bytes().clone(), resources, scopes, spans, false).unwrap();
            let dsn: Dsn = "http://0123456789abcdef0123456789abcdef@localhost/1".parse().unwrap();
            let target = TransactionTarget { number: 0, dsn: Some(&dsn), compression: Compression::None };
            let mut encoder = EnvelopeEncoder::new(Settings::default());
            let encoded = encoder.spans(&spans, |_| Some(target));
            let [message] = &encoded.messages[..] else { panic!("{:?}", encoded.report) };
            let back = envelope::read(message.body.clone()).unwrap().envelope;
            let mut one: Value = serde_json::from_slice(&payload).unwrap();
            let mut other: Value = serde_json::from_slice(back.items[0].payload.plain().unwrap()).unwrap();
            level(&mut one, &mut other);
            for key in ["transaction", "transaction_info", "release", "environment", "server_name", "platform"] {
                assert_eq!(one[key], other[key], "{key}");
            }
            same(&one["contexts"]["trace"], &other["contexts"]["trace"]);
            let list = |event: &Value| event["spans"].as_array().unwrap().clone();
            assert_eq!(list(&one).len(), list(&other).len());
            list(&one).iter().zip(&list(&other)).for_each(|(one, other)| same(one, other));
        }
    }

    /// Compares two spans except for data that OTLP cannot represent. A span without a status becomes `ok`, as in OTLP.
    fn same(one: &Value, other: &Value) {
        for key in ["trace_id", "span_id", "parent_span_id", "op", "description", "origin"] {
            assert_eq!(one[key], other[key], "{key}: {one} {other}");
        }
        assert_eq!(one["status"].as_str().unwrap_or("ok"), other["status"]);
        // Attributes with their own key in JSON are not repeated in the data.
        let keys = ["sentry.op", "sentry.source", "sentry.sample_rate"];
        for (key, value) in one["data"].as_object().unwrap().iter().filter(|(key, _)| !keys.contains(&&***key)) {
            assert_eq!(value, &other["data"][key], "{key}");
        }
    }

    /// Removes times that differ by at most a microsecond from both, at any depth.
    fn level(one: &mut Value, other: &mut Value) {
        if let (Some(spans), Some(others)) = (one["spans"].as_array_mut(), other["spans"].as_array_mut()) {
            spans.iter_mut().zip(others).for_each(|(one, other)| times(one, other));
        }
        times(one, other);
    }

    fn times(one: &mut Value, other: &mut Value) {
        for key in ["start_timestamp", "timestamp"] {
            let (a, b) = (as_number(&mut one[key]).unwrap(), as_number(&mut other[key]).unwrap());
            assert!((a - b).abs() < 2e-6, "{key}: {a} {b}");
            (one[key], other[key]) = (Value::Null, Value::Null);
        }
    }
}
