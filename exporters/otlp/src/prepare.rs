//! Turns telemetry into requests.

use profbridge_codec::otlp::{Batch, Encoder, EncoderOptions, Encoding};
use profbridge_engine::component::Prepared;
use profbridge_model::{Reason, Telemetry};
use profbridge_net::compression::Compression;

use crate::oversize::UnsentParts;
use crate::settings::Settings;

/// Metadata of a request.
#[derive(Debug)]
pub(crate) struct Meta {
    /// The signal, and the quantities that a partial success refers to.
    pub(crate) batch: Batch,
    /// Encoding of the body.
    pub(crate) encoding: Encoding,
    /// Compression of the body.
    pub(crate) compression: Compression,
    /// Unsent parts, if the peer refused the whole request as too large.
    pub(crate) parts: UnsentParts,
}

impl Meta {
    pub(crate) fn of(batch: Batch, encoding: Encoding, compression: Compression) -> Self {
        Self { batch, encoding, compression, parts: UnsentParts::default() }
    }
}

/// An encoder for the requests that the settings ask for.
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

/// Creates requests of at most `limit` bytes before compression.
pub(crate) fn prepare(
    encoder: &mut Encoder,
    settings: &Settings,
    limit: usize,
    telemetry: &Telemetry,
) -> Prepared<Meta> {
    encoder.limit(limit);
    let mut prepared =
        encoder.encode(telemetry).prepared(|batch| Meta::of(batch, settings.encoding, settings.compression));
    // Drops requests of signals that have no URL.
    prepared.requests.retain(|request| {
        let goes = settings.target.takes(request.meta.batch.signal);
        if !goes {
            prepared.losses.add(Reason::Unroutable, request.quantities);
        }
        goes
    });
    prepared
}
