//! Encodes telemetry as envelopes or OTLP messages.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use profbridge_codec::sentry::{SpanEnvelope, TransactionTarget, grouped};
use profbridge_codec::{otlp, sentry};
use profbridge_engine::component::{Now, Prepared};
use profbridge_model::{Envelope, Profiles, Reason, Spans, Telemetry};
use profbridge_net::compression::Compression;

use crate::config::{Settings, StorageLimits};
use crate::name;

/// Metadata of a request.
#[derive(Debug, Clone)]
pub(crate) struct FileMeta {
    /// The name of the new file; empty if the request is appended to a file.
    pub(crate) name: String,
    /// Whether the request is on disk.
    pub(crate) written: Arc<AtomicBool>,
}

impl FileMeta {
    fn of(name: String) -> Self {
        Self { name, written: Arc::default() }
    }
}

/// The maximum size of a message before compression: the default limit of an OTLP receiver (opentelemetry-proto
/// `docs/specification.md`), so that a reader of the file can send the message on.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The size of the parts into which messages that have to be encoded are split, since a part is in memory together with
/// the batch from which it is made.
const PART_BYTES: usize = 8 << 20;

/// Encodes telemetry in the configured format.
pub(crate) enum FormatEncoder {
    Envelopes(Box<sentry::EnvelopeEncoder>, Compression),
    /// The readers of the file are unknown, so references to the string table are replaced by strings.
    Messages(otlp::OtlpEncoder),
}

impl FormatEncoder {
    pub(crate) fn new(settings: &Settings) -> Self {
        let compression = settings.compression;
        match settings.kept {
            StorageLimits::Envelopes { .. } => {
                Self::Envelopes(Box::new(sentry::EnvelopeEncoder::new(settings.chunk.clone())), compression)
            }
            StorageLimits::Appended { encoding, framing, .. } => {
                Self::Messages(otlp::OtlpEncoder::new(otlp::EncoderOptions {
                    part_bytes: PART_BYTES,
                    original_payload: settings.original_payload,
                    compression,
                    encoding,
                    framing,
                    ..otlp::EncoderOptions::plain(MAX_MESSAGE_BYTES)
                }))
            }
        }
    }

    pub(crate) fn prepare(&mut self, telemetry: &Telemetry, now: Now) -> Prepared<FileMeta> {
        match (self, telemetry) {
            (Self::Envelopes(encoder, compression), Telemetry::Profiles(profiles)) => {
                chunks(encoder, profiles, *compression)
            }
            (Self::Envelopes(encoder, compression), Telemetry::Envelope(envelope)) => {
                forwarded(encoder, envelope, now, *compression)
            }
            (Self::Envelopes(encoder, compression), Telemetry::Spans(spans)) => {
                transactions(encoder, spans, *compression)
            }
            (Self::Envelopes(..), other) => Prepared::lost(Reason::Unroutable, other.quantities()),
            (Self::Messages(encoder), telemetry) => {
                let mut prepared = encoder.encode(telemetry).prepared(|_| FileMeta::of(String::new()));
                // Only the exporters that send OTLP report these notes.
                prepared.notes.clear();
                prepared
            }
        }
    }
}

/// Encodes profiles, one envelope for each chunk of a process and window.
fn chunks(encoder: &mut sentry::EnvelopeEncoder, profiles: &Profiles, compression: Compression) -> Prepared<FileMeta> {
    let profiler = profiles.window.as_ref().map(|window| window.profiler_id.to_string()).unwrap_or_default();
    encoder.profiles(profiles, compression, None).prepared(|chunk| {
        let id = chunk.chunk_id.simple().to_string();
        FileMeta::of(name::envelope(chunk.first_unix_nano, &profiler, &id, compression))
    })
}

/// Encodes spans, one envelope for each transaction and for each container that was received as OTLP. Spans that no
/// processor grouped are put together within the batch.
fn transactions(encoder: &mut sentry::EnvelopeEncoder, spans: &Spans, compression: Compression) -> Prepared<FileMeta> {
    let target = TransactionTarget { number: 0, dsn: None, compression };
    encoder.spans(&grouped(spans), |_| Some(target)).prepared(
        |SpanEnvelope { trace_id, id, start_unix_nano, .. }| {
            FileMeta::of(name::envelope(start_unix_nano, &trace_id.to_string(), &format!("{id:032x}"), compression))
        },
    )
}

/// Passes an envelope on unchanged.
fn forwarded(
    encoder: &mut sentry::EnvelopeEncoder,
    envelope: &Envelope,
    now: Now,
    compression: Compression,
) -> Prepared<FileMeta> {
    encoder.envelope(envelope, None, compression).prepared(|forwarded| {
        // Both ids in the name come from the hash, so equal envelopes of the same time get the same name.
        let hash = format!("{:016x}", forwarded.hash);
        FileMeta::of(name::envelope(now.unix_nano, &hash[..8], &hash[8..], compression))
    })
}
