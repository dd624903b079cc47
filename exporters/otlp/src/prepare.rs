//! Telemetry becomes requests.

use profbridge_codec::otlp::{Batch, Encoder, EncoderOptions, Encoding};
use profbridge_engine::component::Prepared;
use profbridge_model::{Reason, Telemetry};
use profbridge_net::compression::Compression;

use crate::oversize::Parts;
use crate::settings::Settings;

/// What is known of a request beside its body.
#[derive(Debug)]
pub(crate) struct Meta {
    /// Its signal, and how much is in it of what a partial success counts.
    pub(crate) batch: Batch,
    /// How the body is written.
    pub(crate) encoding: Encoding,
    /// How it is compressed.
    pub(crate) compression: Compression,
    /// What is left of it, where the peer did not take it as a whole.
    pub(crate) parts: Parts,
}

impl Meta {
    pub(crate) fn of(batch: Batch, encoding: Encoding, compression: Compression) -> Self {
        Self { batch, encoding, compression, parts: Parts::default() }
    }
}

/// What makes the requests that the settings ask for.
pub(crate) fn encoder(settings: &Settings) -> Encoder {
    Encoder::new(EncoderOptions {
        fill_profile_id: settings.fill_profile_id,
        original_payload: settings.original_payload,
        keep_references: settings.keep_references,
        encoding: settings.encoding,
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
    let mut prepared =
        encoder.encode(telemetry).prepared(|batch| Meta::of(batch, settings.encoding, settings.compression));
    // A signal without a URL goes nowhere.
    prepared.requests.retain(|request| {
        let goes = settings.target.takes(request.meta.batch.signal);
        if !goes {
            prepared.losses.add(Reason::Unroutable, request.quantities);
        }
        goes
    });
    prepared
}
