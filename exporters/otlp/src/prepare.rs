//! Turns telemetry into requests.

use profbridge_codec::otlp::{EncoderOptions, Encoding, OtlpEncoder, Signal, SignalCount};
use profbridge_engine::component::Prepared;
use profbridge_model::{Reason, Telemetry};
use profbridge_net::compression::Compression;

use crate::oversize::UnsentParts;
use crate::settings::Settings;

/// Metadata of a request.
#[derive(Debug)]
pub(crate) struct OtlpMeta {
    /// The signal, and the quantities that a partial success refers to.
    pub(crate) batch: SignalCount,
    /// Encoding of the body.
    pub(crate) encoding: Encoding,
    /// Compression of the body.
    pub(crate) compression: Compression,
    /// Unsent parts, if the peer refused the whole request as too large.
    pub(crate) parts: UnsentParts,
}

impl OtlpMeta {
    pub(crate) fn of(batch: SignalCount, encoding: Encoding, compression: Compression) -> Self {
        Self { batch, encoding, compression, parts: UnsentParts::default() }
    }
}

/// An encoder for the requests that the settings ask for.
pub(crate) fn encoder(settings: &Settings) -> OtlpEncoder {
    OtlpEncoder::new(EncoderOptions {
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
    encoder: &mut OtlpEncoder,
    settings: &Settings,
    limit: usize,
    telemetry: &Telemetry,
) -> Prepared<OtlpMeta> {
    let is_sent = |signal: Signal| settings.signals.contains(&signal);
    // Spares the encoding of what is not sent; an envelope may contain several signals.
    if Signal::find(|names| names.kind == telemetry.kind()).is_some_and(|signal| !is_sent(signal)) {
        return Prepared::lost(Reason::OtherSignal, telemetry.quantities());
    }
    encoder.limit(limit);
    let mut prepared =
        encoder.encode(telemetry).prepared(|batch| OtlpMeta::of(batch, settings.encoding, settings.compression));
    // Drops requests of signals that are not sent, or have no URL.
    prepared.requests.retain(|request| {
        let signal = request.meta.batch.signal;
        let reason = match (is_sent(signal), settings.target.takes(signal)) {
            (true, true) => return true,
            (false, _) => Reason::OtherSignal,
            (true, false) => Reason::Unroutable,
        };
        prepared.losses.add(reason, request.quantities);
        false
    });
    prepared
}
