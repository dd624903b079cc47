//! OTLP encoder: converts batches to `ExportProfilesServiceRequest`s and `ExportTraceServiceRequest`s. Whenever
//! possible it sends the bytes that were received.

mod cut;
mod form;
mod json;
mod sentry_spans;
mod spans;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io;

use bytes::Bytes;
use profbridge_model::content_hash::content_hashes;
use profbridge_model::dictionary::Invalid;
use profbridge_model::{Profile, Profiles, Quantities, Reason, Telemetry};
use profbridge_net::compression::Compression;
use profbridge_wire::otlp::delimited::put_frame;
use profbridge_wire::otlp::{EncodeOptions, encode, encoded_len, payload_may_leave, split};

pub use cut::{Cut, cut};
pub use form::{Encoding, Framing};
pub use profbridge_wire::otlp::Signal;
pub use sentry_spans::as_otlp;

use crate::compressor::{Compressor, written};
use crate::message::{Encoded, EncodingReport, Message, samples};

/// Counts batches sent as the received bytes.
pub const FORWARDED: &str = "otlp_batches_forwarded_unchanged";

/// Counts batches that were too large for one message.
pub const SPLIT: &str = "otlp_batches_split";

/// Options for the encoded messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderOptions {
    /// Maximum size of a message, in bytes before compression. Data that cannot be split below it is lost.
    pub max_bytes: usize,
    /// A re-encoded batch is split into parts of this size, in bytes before compression and at most `max_bytes`. A
    /// batch with a payload is only split above `max_bytes`.
    pub part_bytes: usize,
    /// Whether a profile without an id gets the hash of its content.
    pub fill_profile_id: bool,
    /// Whether `original_payload` is written. Only unchanged profiles keep it, and never in pprof's format.
    pub original_payload: bool,
    /// Whether attributes received as references to the string table are sent like that. Readers older than
    /// opentelemetry-proto 1.10 see empty keys instead.
    pub keep_references: bool,
    /// The compression of each message.
    pub compression: Compression,
    /// The encoding of a message. In JSON received bytes are never forwarded.
    pub encoding: Encoding,
    /// The framing around each message.
    pub framing: Framing,
}

impl EncoderOptions {
    /// Messages of at most this many bytes for unknown readers: without payloads, references, or generated ids.
    pub const fn plain(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            part_bytes: max_bytes,
            fill_profile_id: false,
            original_payload: false,
            keep_references: false,
            compression: Compression::None,
            encoding: Encoding::Protobuf,
            framing: Framing::None,
        }
    }
}

/// The metadata of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalCount {
    /// The signal.
    pub signal: Signal,
    /// Number of `Profile` messages or spans, as a partial success counts them.
    pub counted: u64,
}

/// Encodes one batch at a time, and reuses the compressor's memory.
#[derive(Debug)]
pub struct OtlpEncoder {
    options: EncoderOptions,
    compressor: Compressor,
}

impl OtlpEncoder {
    /// Creates an encoder with these options.
    pub fn new(options: EncoderOptions) -> Self {
        Self { options, compressor: Compressor::default() }
    }

    /// Lowers the size limit of messages to this many bytes.
    pub fn limit(&mut self, bytes: usize) {
        self.options.max_bytes = self.options.max_bytes.min(bytes);
        self.options.part_bytes = self.options.part_bytes.min(bytes);
    }

    /// Encodes telemetry as messages; for an envelope, the parts that were read from it.
    pub fn encode(&mut self, telemetry: &Telemetry) -> Encoded<SignalCount> {
        let mut out = Encoded::default();
        match telemetry {
            Telemetry::Profiles(profiles) => self.batch(profiles, &mut out),
            Telemetry::Spans(spans) => self.spans(spans, &mut out),
            Telemetry::Envelope(envelope) => {
                envelope.profiles().for_each(|view| self.batch(view, &mut out));
                envelope.spans().for_each(|view| self.spans(view, &mut out));
                // OTLP cannot represent a Sentry item that was not read.
                out.report.losses.add(Reason::Unroutable, Quantities::items(envelope.unread_items()));
            }
            other => out.report.losses.add(Reason::Unroutable, other.quantities()),
        }
        out
    }

    fn batch(&mut self, profiles: &Profiles, out: &mut Encoded<SignalCount>) {
        // Senders should not send empty requests (opentelemetry-proto `docs/specification.md`).
        if profiles.profiles().next().is_none() {
            return;
        }
        if let Some(received) = self.unchanged(profiles) {
            if self.options.encoding == Encoding::Json {
                let references = has_references(profiles);
                let options = EncodeOptions { original_payload: self.options.original_payload, references };
                return self.json(received, profiles, self.options.max_bytes, &options, out);
            }
            out.report.note(FORWARDED, 1);
            return self.message(received.clone(), profiles, out);
        }
        let Ok(whole) = self.with_ids(profiles) else {
            out.report.losses.add_observations(Reason::Internal, profiles.observations());
            return;
        };
        let options = EncodeOptions {
            // A payload repeats the profile in another format, so it must only be sent if the profile is unchanged
            // (opentelemetry-proto `profiles.proto`, `original_payload`).
            original_payload: self.options.original_payload && profiles.received.is_some(),
            references: self.options.keep_references && has_references(profiles),
        };
        let EncoderOptions { max_bytes, part_bytes, .. } = self.options;
        let limit = if options.original_payload { max_bytes } else { part_bytes };
        if self.options.encoding == Encoding::Json {
            return self.json(&encode(&whole, &options), &whole, limit, &options, out);
        }
        if encoded_len(&whole, &options) <= limit {
            return self.message(written(encode(&whole, &options)), &whole, out);
        }
        out.report.note(SPLIT, 1);
        // The payload describes the whole profile, so parts of a split must not carry it.
        let options = EncodeOptions { original_payload: false, ..options };
        for part in split(&whole, part_bytes, &options) {
            let message = encode(&part, &options);
            if message.len() > max_bytes {
                out.report.losses.add_observations(Reason::TooLarge, part.observations());
            } else {
                self.message(written(message), &part, out);
            }
        }
    }

    /// The received bytes of a batch, if they can be sent unmodified.
    fn unchanged<'a>(&self, profiles: &'a Profiles) -> Option<&'a Bytes> {
        let EncoderOptions { max_bytes, fill_profile_id, original_payload, keep_references, .. } = self.options;
        let received = profiles.received.as_ref()?;
        let fills = fill_profile_id && profiles.profiles().any(|profile| profile.profile_id.is_none());
        let stays = |profile: &Profile| !original_payload || !payload_may_leave(profiles.dictionary(), profile);
        let strips = profiles.profiles().any(|profile| !profile.original_payload.is_empty() && stays(profile));
        let resolves = !keep_references && has_references(profiles);
        (!fills && !strips && !resolves && received.len() <= max_bytes).then_some(received)
    }

    /// The batch with an id for each profile. Ids are set before the split, so that a reader can reassemble the parts
    /// of a profile.
    fn with_ids(&self, profiles: &Profiles) -> Result<Profiles, Invalid> {
        if !self.options.fill_profile_id || profiles.profiles().all(|profile| profile.profile_id.is_some()) {
            return Ok(profiles.clone());
        }
        let mut hashes = content_hashes(profiles).into_iter();
        let mut resources = profiles.resources().to_vec();
        let scopes = resources.iter_mut().flat_map(|resource| &mut resource.scopes);
        for profile in scopes.flat_map(|scope| &mut scope.profiles) {
            let hash = hashes.next();
            profile.profile_id = profile.profile_id.or(hash);
        }
        profiles.with_resources(resources)
    }

    fn message(&mut self, bytes: Bytes, profiles: &Profiles, out: &mut Encoded<SignalCount>) {
        let body = self.body(bytes, self.options.compression, None);
        Self::finish(body, Quantities::observations(profiles.observations()), out, |body| message(body, profiles));
    }

    fn finish(
        body: io::Result<Bytes>,
        quantities: Quantities,
        out: &mut Encoded<SignalCount>,
        message: impl FnOnce(Bytes) -> Message<SignalCount>,
    ) {
        match body {
            Ok(body) => out.messages.push(message(body)),
            Err(error) => {
                let lost = EncodingReport { error: Some(error), ..EncodingReport::default() };
                out.report.merge(lost);
                out.report.losses.add(Reason::Internal, quantities);
            }
        }
    }

    /// Compresses each message separately, as the Collector does, so that a file of frames can be split and joined. An
    /// uncompressed message shares its memory with the received batch, and so does one that is already `packed`.
    fn body(&mut self, message: Bytes, compression: Compression, packed: Option<&Bytes>) -> io::Result<Bytes> {
        let framing = self.options.framing;
        let message = match framing {
            Framing::Line => [&message[..], b"\n"].concat().into(),
            Framing::None | Framing::Length => message,
        };
        let body = match (compression, packed) {
            (Compression::None, _) => message,
            (_, Some(packed)) => packed.clone(),
            _ => self.compressor.pack(compression, Cow::Borrowed(&message))?,
        };
        if framing != Framing::Length {
            return Ok(body);
        }
        let mut frame = Vec::new();
        put_frame(&mut frame, &body).map_err(io::Error::other)?;
        Ok(frame.into())
    }
}

/// Whether attributes of the batch were received as references to its string table.
fn has_references(profiles: &Profiles) -> bool {
    profiles.dictionary().tables().references
}

fn message(body: Bytes, profiles: &Profiles) -> Message<SignalCount> {
    Message {
        body,
        quantities: Quantities::observations(profiles.observations()),
        samples: samples(profiles),
        meta: SignalCount { signal: Signal::Profiles, counted: profiles.profiles().count() as u64 },
    }
}
