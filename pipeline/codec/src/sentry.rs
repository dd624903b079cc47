//! Sentry encoder: profiles become envelopes with one chunk each, spans become envelopes with one transaction each, and
//! received envelopes are forwarded.

mod config;
mod containers;
mod forward;
mod grouping;
mod sink;
#[cfg(test)]
mod tests;
mod transactions;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use profbridge_model::envelope::EnvelopeBody;
use profbridge_model::{Envelope, Item, ItemView, Profiles, Quantities, Reason, TimelessTypes, Viewed};
use profbridge_net::compression::Compression;
use profbridge_wire::sentry::Dsn;
use profbridge_wire::sentry::chunk::{ChunkSummary, Converter, Settings};
use profbridge_wire::sentry::envelope::ItemHeader;
use profbridge_wire::sentry::span_writer;
use profbridge_wire::sentry::trace_header::TraceHeader;
use profbridge_wire::sentry::transaction::TransactionWriter;
use profbridge_wire::sentry::v1_upgrade::linked_transaction;

pub use config::ChunkConfig;
pub use forward::{ContentEncoding, Forwarded, SPAN_CHANGES_UNWRITTEN, Settled, sent_later, settled};
pub use grouping::grouped;
pub use transactions::{OtlpSpans, SpanEnvelope, SpanEnvelopeForm, TransactionTarget};

use crate::compressor::Compressor;
use crate::message::{Encoded, EncodingReport, Message, samples};
use forward::Hashed;
use sink::Envelopes;

/// Encodes envelopes one batch at a time, and reuses its memory.
#[derive(Debug)]
pub struct EnvelopeEncoder {
    converter: Converter,
    writer: TransactionWriter,
    /// The environment for processes without one.
    environment: String,
    compressor: Compressor,
    /// The types already reported.
    timeless: TimelessTypes,
}

impl EnvelopeEncoder {
    /// Creates an encoder with these settings for chunks. Transactions only use the environment.
    pub fn new(settings: Settings) -> Self {
        let environment = settings.environment.clone();
        Self {
            converter: Converter::new(settings),
            writer: TransactionWriter::default(),
            environment,
            compressor: Compressor::default(),
            timeless: TimelessTypes::default(),
        }
    }

    /// Encodes a batch of one process and window as envelopes with one chunk each. `extra` is added to the first
    /// envelope as another item; without an envelope it is not sent.
    pub fn profiles(
        &mut self,
        profiles: &Profiles,
        compression: Compression,
        extra: Option<Item>,
    ) -> Encoded<ChunkSummary> {
        let mut envelopes = Envelopes::new(&mut self.compressor, compression, extra);
        let converted = self.converter.convert(profiles, &mut envelopes);
        let finished = envelopes.finished;
        let report = EncodingReport {
            synthesized: Quantities::observations(converted.synthesized),
            notes: converted.counts().collect(),
            timeless: self.timeless.look_at(profiles),
            not_shown: Vec::new(),
            clipped: Duration::from_nanos(converted.notes.clipped_nanos),
            error: converted.error,
            losses: converted.losses,
        };
        // An OTLP sample may be in several chunks. So samples are distributed in proportion to observations, and none
        // counts twice.
        let whole = finished.iter().map(|(_, meta)| meta.observations).sum::<u64>().max(1);
        let (all, mut seen, mut shared) = (samples(profiles), 0, 0);
        let messages = finished.into_iter().map(|(body, meta)| {
            seen += meta.observations;
            let until = u128::from(all) * u128::from(seen) / u128::from(whole);
            let until = u64::try_from(until).unwrap_or(u64::MAX);
            let samples = until - std::mem::replace(&mut shared, until);
            Message { body, quantities: Quantities::observations(meta.observations + meta.synthesized), samples, meta }
        });
        Encoded { messages: messages.collect(), report }
    }

    /// Encodes an envelope for forwarding to a DSN: the received body with its compression, if it still matches the
    /// envelope; otherwise like [`EnvelopeEncoder::envelope`], without the client's content coding.
    pub fn forward(
        &mut self,
        envelope: &Envelope,
        to: &Dsn,
        compression: Compression,
    ) -> Encoded<Option<ContentEncoding>> {
        let Settled { envelope, report } = settled(envelope);
        let Some(envelope) = &envelope else { return Encoded { messages: Vec::new(), report } };
        let (body, meta) = if let Some(received) = forward::as_received(envelope, to) {
            (Ok(received.body.clone()), Some(ContentEncoding(received.content_encoding)))
        } else if let Some((received, header)) = forward::renamed(envelope, to) {
            (self.rename(received, envelope.header.len(), &header, compression), None)
        } else {
            (self.write(envelope, Some(to), compression).map(|(body, _)| body), None)
        };
        of_envelope(envelope, body.map(|body| (body, meta)), report)
    }

    fn rename(
        &mut self,
        received: &EnvelopeBody,
        old: usize,
        header: &[u8],
        compression: Compression,
    ) -> io::Result<Bytes> {
        // Compressed again, it has about the same size.
        let mut open = self.compressor.open(compression, received.body.len(), 1)?;
        forward::write_renamed(received, old, header, &mut open)?;
        self.compressor.close(open)
    }

    fn write(
        &mut self,
        envelope: &Envelope,
        to: Option<&Dsn>,
        compression: Compression,
    ) -> io::Result<(Bytes, Forwarded)> {
        let plain = envelope.items.iter().map(|item| item.header.len() + item.payload.len() + 2).sum::<usize>();
        let packed = envelope.received.as_ref().filter(|received| received.content_encoding.is_some());
        let (estimated, times) = match packed {
            // Compressed again, it has about the same size.
            Some(received) if compression != Compression::None => (received.body.len(), 1),
            _ => (envelope.header.len() + plain + 1, 4),
        };
        let mut open = self.compressor.open(compression, estimated, times)?;
        let mut hashed = Hashed::new(&mut open);
        forward::write(envelope, to, &mut hashed)?;
        let meta = hashed.end();
        Ok((self.compressor.close(open)?, meta))
    }

    /// Upgrades an envelope with a profile of sample format V1: the chunks, in their own envelopes, and the envelope
    /// without the profile, whose transaction names the profiler and its thread. `None` if there is no such profile, or
    /// it cannot be upgraded and should be sent unmodified. The envelope must be [`settled`].
    pub fn upgraded(
        &mut self,
        envelope: &Envelope,
        compression: Compression,
    ) -> Option<(Encoded<ChunkSummary>, Option<Envelope>)> {
        let is_v1 = |view: &&ItemView| {
            let header = envelope.items.get(view.item).map(|item| ItemHeader::read(&item.header));
            header.is_some_and(|header| header.is_ok_and(|header| header.kind == "profile"))
        };
        let view = envelope.views.iter().find(is_v1)?;
        let Viewed::Profiles(profiles) = &view.what else { return None };
        let mut rest = envelope.clone();
        for (item, came) in rest.items.iter_mut().zip(&envelope.items) {
            if ItemHeader::read(&came.header).is_ok_and(|header| header.kind == "transaction") {
                item.payload = forward::payload(envelope, came).ok()?.into();
            }
        }
        let transaction = linked_transaction(&rest, profiles).ok()?;
        let chunks = self.profiles(profiles, compression, None);
        if chunks.messages.is_empty() {
            return None;
        }
        if let Some((position, item)) = transaction {
            rest.items[position] = item;
            let header = TraceHeader::read(&rest.header);
            span_writer::renew(&mut rest, position, &header);
        }
        rest.remove_item(view.item);
        Some((chunks, Some(rest).filter(|rest| !rest.items.is_empty())))
    }

    /// Encodes a received envelope. If the project or the key of `to` differs from its header, the header's DSN is
    /// replaced.
    pub fn envelope(&mut self, envelope: &Envelope, to: Option<&Dsn>, compression: Compression) -> Encoded<Forwarded> {
        let Settled { envelope, report } = settled(envelope);
        let Some(envelope) = &envelope else { return Encoded { messages: Vec::new(), report } };
        let body = self.write(envelope, to, compression);
        of_envelope(envelope, body, report)
    }
}

/// The single message of an envelope, or its loss, added to an existing report.
fn of_envelope<M>(envelope: &Envelope, body: io::Result<(Bytes, M)>, report: EncodingReport) -> Encoded<M> {
    let mut encoded = Encoded { messages: Vec::new(), report };
    let quantities = envelope.quantities();
    match body {
        Ok((body, meta)) => {
            let samples = envelope.profiles().map(samples).sum();
            encoded.messages.push(Message { body, quantities, samples, meta });
        }
        Err(error) => {
            encoded.report.losses.add(Reason::Internal, quantities);
            encoded.report.error = Some(error);
        }
    }
    encoded
}
