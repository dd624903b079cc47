//! Telemetry becomes what will be written: envelopes or frames.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use profbridge_engine::component::{Now, Prepared, Request};
use profbridge_model::{Envelope, Profile, Profiles, Quantities, Reason, Telemetry, TimelessTypes};
use profbridge_net::compression::{Compression, Encoder, EncoderContext};
use profbridge_wire::otlp::{self, EncodeOptions, delimited, payload_may_leave};
use profbridge_wire::sentry::chunk::{Converter, Report};
use profbridge_wire::sentry::chunk_envelope::Envelopes;
use profbridge_wire::sentry::envelope::{self, Ending};
use xxhash_rust::xxh3::xxh3_64;

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
    converter: Converter,
    context: EncoderContext,
    /// What the log has said once.
    timeless: TimelessTypes,
}

impl Workshop {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            frames: matches!(settings.kept, Kept::Frames { .. }),
            original_payload: settings.original_payload,
            compression: settings.compression,
            converter: Converter::new(settings.chunk.clone()),
            context: EncoderContext::default(),
            timeless: TimelessTypes::default(),
        }
    }

    pub(crate) fn prepare(&mut self, telemetry: &Telemetry, now: Now) -> Prepared<Meta> {
        let mut out = Prepared::default();
        match telemetry {
            Telemetry::Profiles(profiles) if self.frames => self.frames(profiles, &mut out),
            Telemetry::Envelope(envelope) if self.frames => {
                envelope.profiles.iter().for_each(|view| self.frames(view, &mut out));
                // OTLP has no place for an item of Sentry's that nothing was read of.
                out.losses.add(Reason::Unroutable, Quantities::items(envelope.unread_items()));
            }
            Telemetry::Profiles(profiles) => self.chunks(profiles, &mut out),
            Telemetry::Envelope(envelope) => self.forwarded(envelope, now, &mut out),
        }
        out
    }

    /// Each chunk of a process and window in an envelope of its own.
    fn chunks(&mut self, profiles: &Profiles, out: &mut Prepared<Meta>) {
        let mut envelopes = Envelopes::default();
        let report = self.converter.convert(profiles, &mut envelopes);
        for timeless in self.timeless.look_at(profiles) {
            tracing::warn!("dropped as no_time_unit: {timeless}");
        }
        let profiler = profiles.window.as_ref().map(|window| window.profiler_id.to_string()).unwrap_or_default();
        let whole: u64 = envelopes.finished.iter().map(|(_, summary)| summary.observations).sum();
        // One sample in OTLP's sense may be in many chunks: they are shared out by observations, and none counts twice.
        let (mut seen, mut shared) = (0, 0);
        for (body, summary) in envelopes.finished {
            seen += summary.observations;
            let until = samples(profiles) as u128 * u128::from(seen) / u128::from(whole.max(1));
            let until = u64::try_from(until).unwrap_or(u64::MAX);
            let chunk = summary.chunk_id.simple().to_string();
            let name = name::envelope(summary.first_unix_nano, &profiler, &chunk, self.compression);
            let quantities = Quantities::observations(summary.observations + summary.synthesized);
            self.request(name, body, quantities, until - shared, out);
            shared = until;
        }
        note(report, out);
    }

    /// An envelope as it came, whatever is in it.
    fn forwarded(&mut self, envelope: &Envelope, now: Now, out: &mut Prepared<Meta>) {
        let body = envelope::write(envelope, Ending::Newline);
        // Two halves of a hash, so that the same envelope has the same name at the same time.
        let hash = format!("{:016x}", xxh3_64(&body));
        let name = name::envelope(now.unix_nano, &hash[..8], &hash[8..], self.compression);
        self.request(name, body, envelope.quantities(), envelope.profiles.iter().map(samples).sum(), out);
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

    fn request(&mut self, name: String, body: Vec<u8>, quantities: Quantities, samples: u64, out: &mut Prepared<Meta>) {
        let body = match self.compression {
            Compression::None => Ok(body.into()),
            _ => self.compressed(&body),
        };
        match body {
            Ok(body) => out.requests.push(request(name, body, quantities, samples)),
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
    Request { body, quantities, samples, meta: Meta { name, written: Arc::default() } }
}

/// The number of `Sample` messages of a batch.
fn samples(profiles: &Profiles) -> u64 {
    profiles.profiles().map(|profile| profile.samples.len() as u64).sum()
}

fn note(report: Report, out: &mut Prepared<Meta>) {
    out.losses.merge(&report.losses);
    out.synthesized.add_observations(report.synthesized);
    out.notes.extend(report.counts());
}
