//! Telemetry becomes what will be written: envelopes or messages of OTLP.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use profbridge_codec::sentry::{SpanEnvelope, Target};
use profbridge_codec::{otlp, sentry};
use profbridge_engine::component::{Now, Prepared};
use profbridge_model::{Envelope, Profiles, Spans, Telemetry};
use profbridge_net::compression::Compression;

use crate::config::{Kept, Settings};
use crate::name;

/// What is known of a request beside its body.
#[derive(Debug, Clone)]
pub(crate) struct Meta {
    /// The file's name; empty for what is appended to one.
    pub(crate) name: String,
    /// Whether it is on disk.
    pub(crate) written: Arc<AtomicBool>,
}

impl Meta {
    fn of(name: String) -> Self {
        Self { name, written: Arc::default() }
    }
}

/// The largest message, before compression: what a receiver of OTLP takes by default (opentelemetry-proto
/// `docs/specification.md`), so that whoever reads the file can send it on.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A message that has to be written anew is cut into parts of so many bytes: it is there beside the batch that it is
/// made from.
const PART_BYTES: usize = 8 << 20;

/// Makes what is written, in the format that was asked for.
pub(crate) enum Encoder {
    Envelopes(Box<sentry::Encoder>, Compression),
    /// Who will read the file is not known, so attributes that refer to the string table are written out.
    Messages(otlp::Encoder),
}

impl Encoder {
    pub(crate) fn new(settings: &Settings) -> Self {
        let compression = settings.compression;
        match settings.kept {
            Kept::Envelopes { .. } => {
                Self::Envelopes(Box::new(sentry::Encoder::new(settings.chunk.clone())), compression)
            }
            Kept::Appended { encoding, framing, .. } => Self::Messages(otlp::Encoder::new(otlp::EncoderOptions {
                part_bytes: PART_BYTES,
                original_payload: settings.original_payload,
                compression,
                encoding,
                framing,
                ..otlp::EncoderOptions::plain(MAX_MESSAGE_BYTES)
            })),
        }
    }

    pub(crate) fn prepare(&mut self, telemetry: &Telemetry, now: Now) -> Prepared<Meta> {
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
            (Self::Messages(encoder), telemetry) => {
                let mut prepared = encoder.encode(telemetry).prepared(|_| Meta::of(String::new()));
                // These are counted by the exporter that sends OTLP.
                prepared.notes.clear();
                prepared
            }
        }
    }
}

/// Each chunk of a process and window in an envelope of its own.
fn chunks(encoder: &mut sentry::Encoder, profiles: &Profiles, compression: Compression) -> Prepared<Meta> {
    let profiler = profiles.window.as_ref().map(|window| window.profiler_id.to_string()).unwrap_or_default();
    encoder.profiles(profiles, compression, None).prepared(|chunk| {
        let id = chunk.chunk_id.simple().to_string();
        Meta::of(name::envelope(chunk.first_unix_nano, &profiler, &id, compression))
    })
}

/// Each transaction, and each container of spans that came back from OTLP, in an envelope of its own. Spans that were
/// not put together are lost.
fn transactions(encoder: &mut sentry::Encoder, spans: &Spans, compression: Compression) -> Prepared<Meta> {
    let target = Target { number: 0, dsn: None, compression };
    encoder.spans(spans, |_| Some(target)).prepared(|SpanEnvelope { trace_id, id, start_unix_nano, .. }| {
        Meta::of(name::envelope(start_unix_nano, &trace_id.to_string(), &format!("{id:032x}"), compression))
    })
}

/// An envelope as it came, whatever is in it.
fn forwarded(encoder: &mut sentry::Encoder, envelope: &Envelope, now: Now, compression: Compression) -> Prepared<Meta> {
    encoder.envelope(envelope, None, compression).prepared(|forwarded| {
        // Two halves of a hash, so that the same envelope has the same name at the same time.
        let hash = format!("{:016x}", forwarded.hash);
        Meta::of(name::envelope(now.unix_nano, &hash[..8], &hash[8..], compression))
    })
}
