//! Telemetry becomes requests: forwarded or encoded, split, compressed.

use std::io::{self, Write as _};

use bytes::Bytes;
use profbridge_engine::component::{Prepared, Request};
use profbridge_model::content_hash::content_hashes;
use profbridge_model::dictionary::Invalid;
use profbridge_model::{Profile, Profiles, Quantities, Reason, Telemetry};
use profbridge_net::compression::{Compression, Encoder, EncoderContext};
use profbridge_wire::otlp::{EncodeOptions, encode, encoded_len, payload_may_leave, split};

use crate::oversize::Parts;
use crate::settings::Settings;

/// What is known of a request beside its body.
#[derive(Debug)]
pub(crate) struct Meta {
    /// The `Profile` messages in it, which is what a partial success counts.
    pub(crate) profiles: u64,
    /// How the body is compressed.
    pub(crate) compression: Compression,
    /// What is left of it, where the peer did not take it as a whole.
    pub(crate) parts: Parts,
}

/// Batches that left as the bytes they came as.
const FORWARDED: &str = "otlp_batches_forwarded_unchanged";

/// Batches that were too large for one request.
const SPLIT: &str = "otlp_batches_split";

/// Makes requests of at most `limit` bytes before compression.
pub(crate) fn prepare(
    settings: &Settings,
    limit: usize,
    telemetry: &Telemetry,
    context: &mut EncoderContext,
) -> Prepared<Meta> {
    let mut out = Out { settings, limit, context, prepared: Prepared::default() };
    match telemetry {
        Telemetry::Profiles(profiles) => out.batch(profiles),
        Telemetry::Envelope(envelope) => {
            envelope.profiles.iter().for_each(|view| out.batch(view));
            // OTLP has no place for an item of Sentry's that nothing was read of.
            out.prepared.losses.add(Reason::Unroutable, Quantities::items(envelope.unread_items()));
        }
    }
    out.prepared
}

struct Out<'a> {
    settings: &'a Settings,
    limit: usize,
    context: &'a mut EncoderContext,
    prepared: Prepared<Meta>,
}

impl Out<'_> {
    fn batch(&mut self, profiles: &Profiles) {
        // Senders should not send empty requests (opentelemetry-proto `docs/specification.md`).
        if profiles.profiles().next().is_none() {
            return;
        }
        if let Some(received) = unchanged(self.settings, self.limit, profiles) {
            self.note(FORWARDED);
            return self.request(received, profiles);
        }
        let Ok(whole) = with_ids(self.settings, profiles) else {
            self.prepared.losses.add_observations(Reason::Internal, profiles.observations());
            return;
        };
        let options = EncodeOptions {
            // A payload repeats the profile in another form, so it goes out only with what nobody changed
            // (opentelemetry-proto `profiles.proto`, `original_payload`).
            original_payload: self.settings.original_payload && profiles.received.is_some(),
            references: self.settings.keep_references && has_references(profiles),
            ..EncodeOptions::default()
        };
        if encoded_len(&whole, &options) <= self.limit {
            return self.request(&encode(&whole, &options), &whole);
        }
        self.note(SPLIT);
        // The parts of a profile are not what its payload says.
        let options = EncodeOptions { original_payload: false, ..options };
        for part in split(&whole, self.limit, &options) {
            let body = encode(&part, &options);
            if body.len() > self.limit {
                self.prepared.losses.add_observations(Reason::TooLarge, part.observations());
            } else {
                self.request(&body, &part);
            }
        }
    }

    fn request(&mut self, message: &[u8], profiles: &Profiles) {
        match pack(message, profiles, self.settings.compression, self.context) {
            Ok(request) => self.prepared.requests.push(request),
            // Only memory can run out here, which ends the process anyway.
            Err(_) => self.prepared.losses.add_observations(Reason::Internal, profiles.observations()),
        }
    }

    fn note(&mut self, name: &'static str) {
        match self.prepared.notes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => self.prepared.notes.push((name, 1)),
        }
    }
}

/// The bytes that a batch came as, where they are what shall be sent.
fn unchanged<'a>(settings: &Settings, limit: usize, profiles: &'a Profiles) -> Option<&'a Bytes> {
    let received = profiles.received.as_ref()?;
    let fills = settings.fill_profile_id && profiles.profiles().any(|profile| profile.profile_id.is_none());
    let stays = |profile: &Profile| !settings.original_payload || !payload_may_leave(profiles.dictionary(), profile);
    let strips = profiles.profiles().any(|profile| !profile.original_payload.is_empty() && stays(profile));
    let resolves = !settings.keep_references && has_references(profiles);
    (!fills && !strips && !resolves && received.len() <= limit).then_some(received)
}

/// Whether attributes of the batch came as references to its string table.
fn has_references(profiles: &Profiles) -> bool {
    profiles.dictionary().tables().references
}

/// The batch with an id for each profile. The ids come before the cuts, so that the parts of a profile share one: who
/// reads them can put them together.
fn with_ids(settings: &Settings, profiles: &Profiles) -> Result<Profiles, Invalid> {
    if !settings.fill_profile_id || profiles.profiles().all(|profile| profile.profile_id.is_some()) {
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

/// A request of an encoded batch.
pub(crate) fn pack(
    message: &[u8],
    profiles: &Profiles,
    compression: Compression,
    context: &mut EncoderContext,
) -> io::Result<Request<Meta>> {
    // Profiles shrink to a fifth; the queue counts what it holds by length, so what is too much is given back.
    let capacity = if compression == Compression::None { message.len() } else { message.len() / 4 + 64 };
    let mut encoder = Encoder::new(compression, Vec::with_capacity(capacity), context)?;
    encoder.write_all(message)?;
    Ok(Request {
        body: encoder.finish(context)?.into_boxed_slice().into(),
        quantities: Quantities::observations(profiles.observations()),
        samples: profiles.profiles().map(|profile| profile.samples.len() as u64).sum(),
        meta: Meta { profiles: profiles.profiles().count() as u64, compression, parts: Parts::default() },
    })
}
