//! Telemetry becomes requests.

use profbridge_codec::otlp::{Batch, Encoder, EncoderOptions};
use profbridge_engine::component::Prepared;
use profbridge_model::Telemetry;
use profbridge_net::compression::Compression;

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

impl Meta {
    pub(crate) fn of(batch: Batch, compression: Compression) -> Self {
        Self { profiles: batch.profiles, compression, parts: Parts::default() }
    }
}

/// What makes the requests that the settings ask for.
pub(crate) fn encoder(settings: &Settings) -> Encoder {
    Encoder::new(EncoderOptions {
        fill_profile_id: settings.fill_profile_id,
        original_payload: settings.original_payload,
        keep_references: settings.keep_references,
        compression: settings.compression,
        ..EncoderOptions::plain(settings.max_request_bytes)
    })
}

/// Makes requests of at most `limit` bytes before compression.
pub(crate) fn prepare(
    encoder: &mut Encoder,
    settings: &Settings,
    limit: usize,
    telemetry: &Telemetry,
) -> Prepared<Meta> {
    encoder.limit(limit);
    encoder.encode(telemetry).prepared(|batch| Meta::of(batch, settings.compression))
}
