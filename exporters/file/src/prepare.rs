//! Telemetry becomes what will be written: envelopes or frames.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use profbridge_codec::sentry;
use profbridge_engine::component::{Now, Prepared, Request};
use profbridge_model::{Envelope, Profile, Profiles, Quantities, Reason, Telemetry};
use profbridge_net::compression::{Compression, Encoder, EncoderContext};
use profbridge_wire::otlp::{self, EncodeOptions, delimited, payload_may_leave};

use crate::config::{Kept, Settings};
use crate::name;

/// What is known of a request beside its body.
#[derive(Debug, Clone)]
pub(crate) struct Meta {
    /// The file's name; empty for a frame.
    pub(crate) name: String,
    /// Whether it is on disk.
    pub(crate) written: Arc<AtomicBool>,
}

impl Meta {
    fn of(name: String) -> Self {
        Self { name, written: Arc::default() }
    }
}

/// The largest message of a frame, before compression: what a receiver of OTLP takes by default (opentelemetry-proto
/// `docs/specification.md`), so that whoever reads the file can send it on.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A message that has to be written anew is cut into parts of so many bytes: it is there beside the batch that it is
/// made from.
const PART_BYTES: usize = 8 << 20;

/// Keeps the converter's and the compressor's memory from batch to batch.
pub(crate) struct Workshop {
    frames: bool,
    original_payload: bool,
    compression: Compression,
    envelopes: sentry::Encoder,
    context: EncoderContext,
}

impl Workshop {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            frames: matches!(settings.kept, Kept::Frames { .. }),
            original_payload: settings.original_payload,
            compression: settings.compression,
            envelopes: sentry::Encoder::new(settings.chunk.clone()),
            context: EncoderContext::default(),
        }
    }

    pub(crate) fn prepare(&mut self, telemetry: &Telemetry, now: Now) -> Prepared<Meta> {
        let mut out = Prepared::default();
        match telemetry {
            Telemetry::Profiles(profiles) if !self.frames => return self.chunks(profiles),
            Telemetry::Envelope(envelope) if !self.frames => return self.forwarded(envelope, now),
            Telemetry::Profiles(profiles) => self.frames(profiles, &mut out),
            Telemetry::Envelope(envelope) => {
                envelope.profiles.iter().for_each(|view| self.frames(view, &mut out));
                // OTLP has no place for an item of Sentry's that nothing was read of.
                out.losses.add(Reason::Unroutable, Quantities::items(envelope.unread_items()));
            }
        }
        out
    }

    /// Each chunk of a process and window in an envelope of its own.
    fn chunks(&mut self, profiles: &Profiles) -> Prepared<Meta> {
        let profiler = profiles.window.as_ref().map(|window| window.profiler_id.to_string()).unwrap_or_default();
        let encoded = self.envelopes.profiles(profiles, self.compression, None);
        encoded.prepared(|chunk| {
            let id = chunk.chunk_id.simple().to_string();
            Meta::of(name::envelope(chunk.first_unix_nano, &profiler, &id, self.compression))
        })
    }

    /// An envelope as it came, whatever is in it.
    fn forwarded(&mut self, envelope: &Envelope, now: Now) -> Prepared<Meta> {
        let encoded = self.envelopes.envelope(envelope, None, self.compression);
        encoded.prepared(|forwarded| {
            // Two halves of a hash, so that the same envelope has the same name at the same time.
            let hash = format!("{:016x}", forwarded.hash);
            Meta::of(name::envelope(now.unix_nano, &hash[..8], &hash[8..], self.compression))
        })
    }

    /// A batch as a frame, or as several where it is larger than a request may be.
    fn frames(&mut self, profiles: &Profiles, out: &mut Prepared<Meta>) {
        if profiles.profiles().next().is_none() {
            return;
        }
        let stays = |profile: &Profile| !self.original_payload || !payload_may_leave(profiles.dictionary(), profile);
        let strips = profiles.profiles().any(|profile| !profile.original_payload.is_empty() && stays(profile));
        // Who will read the file is not known, so attributes that refer to the string table are written out: readers
        // older than opentelemetry-proto 1.10 find empty keys in their place.
        let resolves = profiles.dictionary().tables().references;
        if let Some(received) = profiles.received.as_ref().filter(|received| received.len() <= MAX_MESSAGE_BYTES)
            && !strips
            && !resolves
        {
            return self.frame(received, profiles, out);
        }
        // A payload repeats the profile in another form, so it is written only with what nobody changed
        // (opentelemetry-proto `profiles.proto`, `original_payload`), and not with a part of it.
        let whole = EncodeOptions {
            original_payload: self.original_payload && profiles.received.is_some(),
            ..EncodeOptions::default()
        };
        if whole.original_payload && otlp::encoded_len(profiles, &whole) <= MAX_MESSAGE_BYTES {
            return self.frame(&otlp::encode(profiles, &whole), profiles, out);
        }
        let options = EncodeOptions::default();
        for part in otlp::split(profiles, PART_BYTES, &options) {
            let message = otlp::encode(&part, &options);
            if message.len() > MAX_MESSAGE_BYTES {
                out.losses.add_observations(Reason::TooLarge, part.observations());
            } else {
                self.frame(&message, &part, out);
            }
        }
    }

    /// Each message is compressed by itself, as the Collector does it, so that a file can be cut and joined.
    fn frame(&mut self, message: &[u8], profiles: &Profiles, out: &mut Prepared<Meta>) {
        let quantities = Quantities::observations(profiles.observations());
        let mut body = Vec::new();
        let mut put = |message: &[u8]| delimited::put_frame(&mut body, message).map_err(io::Error::other);
        let framed = match self.compression {
            Compression::None => put(message),
            _ => self.compressed(message).and_then(|message| put(&message)),
        };
        match framed {
            Ok(()) => out.requests.push(request(String::new(), body.into(), quantities, samples(profiles))),
            // Compressing into memory fails only where there is none.
            Err(_) => out.losses.add(Reason::Internal, quantities),
        }
    }

    fn compressed(&mut self, body: &[u8]) -> io::Result<Bytes> {
        let mut encoder = Encoder::new(self.compression, Vec::with_capacity(body.len() / 4 + 64), &mut self.context)?;
        encoder.write_all(body)?;
        // The queue counts what it holds by length, so nothing beyond that is kept.
        Ok(encoder.finish(&mut self.context)?.into_boxed_slice().into())
    }
}

fn request(name: String, body: Bytes, quantities: Quantities, samples: u64) -> Request<Meta> {
    Request { body, quantities, samples, meta: Meta::of(name) }
}

/// The number of `Sample` messages of a batch.
fn samples(profiles: &Profiles) -> u64 {
    profiles.profiles().map(|profile| profile.samples.len() as u64).sum()
}
