//! OTLP: batches become `ExportProfilesServiceRequest`s and `ExportTraceServiceRequest`s, as the bytes that they came
//! as wherever these may leave.

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

use crate::compressor::{Compressor, written};
use crate::message::{Encoded, Message, Report, samples};

/// Batches that left as the bytes they came as.
pub const FORWARDED: &str = "otlp_batches_forwarded_unchanged";

/// Batches that were too large for one message.
pub const SPLIT: &str = "otlp_batches_split";

/// What messages are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderOptions {
    /// The largest message, in bytes before compression. What cannot be cut below it is lost.
    pub max_bytes: usize,
    /// A batch that is written anew is cut into parts of so many bytes before compression, at most `max_bytes`. One
    /// whose payload is written with it is not, up to `max_bytes`.
    pub part_bytes: usize,
    /// Whether a profile without an id gets the hash of its content as one.
    pub fill_profile_id: bool,
    /// Whether `original_payload` is written, of profiles that nobody changed and never where it is pprof.
    pub original_payload: bool,
    /// Whether attributes that came as references to the string table leave as such. Readers older than
    /// opentelemetry-proto 1.10 find empty keys in their place.
    pub keep_references: bool,
    /// How each message is compressed.
    pub compression: Compression,
    /// How a message is written. In JSON none leaves as the bytes that it came as.
    pub encoding: Encoding,
    /// What stands around each message.
    pub framing: Framing,
}

impl EncoderOptions {
    /// Messages of at most so many bytes, for readers of which nothing is known: neither payloads nor references, and
    /// no ids that nobody gave.
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

/// The signal of a message: each goes to a service of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// `ExportProfilesServiceRequest`.
    Profiles,
    /// `ExportTraceServiceRequest`.
    Traces,
}

impl Signal {
    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Profiles => "profiles",
            Self::Traces => "traces",
        }
    }

    /// What a partial success counts of it, in the plural.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Profiles => "profiles",
            Self::Traces => "spans",
        }
    }
}

/// What is known of a message beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Of which signal it is.
    pub signal: Signal,
    /// The `Profile` messages in it, or the spans, which is what a partial success counts.
    pub counted: u64,
}

/// Makes messages, one batch at a time; keeps the compressor's memory from one to the next.
#[derive(Debug)]
pub struct Encoder {
    options: EncoderOptions,
    compressor: Compressor,
}

impl Encoder {
    /// An encoder that makes messages like these.
    pub fn new(options: EncoderOptions) -> Self {
        Self { options, compressor: Compressor::default() }
    }

    /// Makes messages of at most so many bytes from now on, where they were larger.
    pub fn limit(&mut self, bytes: usize) {
        self.options.max_bytes = self.options.max_bytes.min(bytes);
        self.options.part_bytes = self.options.part_bytes.min(bytes);
    }

    /// Telemetry as messages: of an envelope, what was read of it.
    pub fn encode(&mut self, telemetry: &Telemetry) -> Encoded<Batch> {
        let mut out = Encoded::default();
        match telemetry {
            Telemetry::Profiles(profiles) => self.batch(profiles, &mut out),
            Telemetry::Spans(spans) => self.spans(spans, &mut out),
            Telemetry::Envelope(envelope) => {
                envelope.profiles().for_each(|view| self.batch(view, &mut out));
                envelope.spans().for_each(|view| self.spans(view, &mut out));
                // OTLP has no place for an item of Sentry's that nothing was read of.
                out.report.losses.add(Reason::Unroutable, Quantities::items(envelope.unread_items()));
            }
        }
        out
    }

    fn batch(&mut self, profiles: &Profiles, out: &mut Encoded<Batch>) {
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
            // A payload repeats the profile in another form, so it goes out only with what nobody changed
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
        // The parts of a split must not carry a payload, which says what the whole said.
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

    /// The bytes that a batch came as, where they are what shall be sent.
    fn unchanged<'a>(&self, profiles: &'a Profiles) -> Option<&'a Bytes> {
        let EncoderOptions { max_bytes, fill_profile_id, original_payload, keep_references, .. } = self.options;
        let received = profiles.received.as_ref()?;
        let fills = fill_profile_id && profiles.profiles().any(|profile| profile.profile_id.is_none());
        let stays = |profile: &Profile| !original_payload || !payload_may_leave(profiles.dictionary(), profile);
        let strips = profiles.profiles().any(|profile| !profile.original_payload.is_empty() && stays(profile));
        let resolves = !keep_references && has_references(profiles);
        (!fills && !strips && !resolves && received.len() <= max_bytes).then_some(received)
    }

    /// The batch with an id for each profile. The ids come before the cuts, so that the parts of a profile share one:
    /// who reads them can put them together.
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

    fn message(&mut self, bytes: Bytes, profiles: &Profiles, out: &mut Encoded<Batch>) {
        let body = self.body(bytes, self.options.compression, None);
        Self::finish(body, Quantities::observations(profiles.observations()), out, |body| message(body, profiles));
    }

    fn finish(
        body: io::Result<Bytes>,
        quantities: Quantities,
        out: &mut Encoded<Batch>,
        message: impl FnOnce(Bytes) -> Message<Batch>,
    ) {
        match body {
            Ok(body) => out.messages.push(message(body)),
            Err(error) => {
                let lost = Report { error: Some(error), ..Report::default() };
                out.report.merge(lost);
                out.report.losses.add(Reason::Internal, quantities);
            }
        }
    }

    /// Each message is compressed by itself, as the Collector does it, so that a file of frames can be cut and joined.
    /// One that leaves as it is shares its memory with the batch that it came as, and so does one that is `packed`
    /// already.
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

/// Whether attributes of the batch came as references to its string table.
fn has_references(profiles: &Profiles) -> bool {
    profiles.dictionary().tables().references
}

fn message(body: Bytes, profiles: &Profiles) -> Message<Batch> {
    Message {
        body,
        quantities: Quantities::observations(profiles.observations()),
        samples: samples(profiles),
        meta: Batch { signal: Signal::Profiles, counted: profiles.profiles().count() as u64 },
    }
}
