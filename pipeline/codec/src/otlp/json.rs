//! Encodes messages as JSON. The JSON length of a batch is only known after writing it, so a message that is too long
//! is written again in parts.

use profbridge_model::{Profiles, Quantities, Reason, Spans};
use profbridge_wire::otlp::json::{self, Message};
use profbridge_wire::otlp::{DecodeError, EncodeOptions, encode, split, traces};

use super::{OtlpEncoder, SPLIT, SignalCount};
use crate::compressor::written;
use crate::message::Encoded;

/// Typical factor from the size of a protobuf request to its JSON.
const BYTES_OF_JSON: usize = 4;

/// Minimum size of parts in bytes of protobuf: data that is still too long in JSON cannot be split.
const MIN_PART: usize = 256;

impl OtlpEncoder {
    /// Appends one or several messages of at most `limit` bytes of JSON. `protobuf` is the encoded batch.
    pub(super) fn json(
        &mut self,
        protobuf: &[u8],
        whole: &Profiles,
        limit: usize,
        options: &EncodeOptions,
        out: &mut Encoded<SignalCount>,
    ) {
        match profiles_text(protobuf, limit) {
            Ok(text) => return self.message(written(text), whole, out),
            Err(DecodeError::LimitExceeded { .. }) => out.report.note(SPLIT, 1),
            // Cannot happen: a request that we encoded or decoded can be written.
            Err(_) => return out.report.losses.add_observations(Reason::Internal, whole.observations()),
        }
        // The payload describes the whole profile, so parts of a split must not carry it.
        let options = EncodeOptions { original_payload: false, ..*options };
        parts(whole, limit, &options, &mut |part, text| match text {
            Some(text) => self.message(written(text), part, out),
            None => out.report.losses.add_observations(Reason::TooLarge, part.observations()),
        });
    }

    /// Like `json`, for spans.
    pub(super) fn spans_json(&mut self, protobuf: &[u8], spans: &Spans, limit: usize, out: &mut Encoded<SignalCount>) {
        match text(Message::TracesRequest, protobuf, limit) {
            Ok(text) => return self.span_message(written(text), spans.spans().len(), out),
            Err(DecodeError::LimitExceeded { .. }) => out.report.note(SPLIT, 1),
            Err(_) => return out.report.losses.add(Reason::Internal, spans.quantities()),
        }
        for (text, count) in span_parts(spans, limit) {
            match text {
                Some(text) => self.span_message(written(text), count, out),
                None => out.report.losses.add(Reason::TooLarge, Quantities::spans(count as u64)),
            }
        }
    }
}

/// Calls `take` with each part of a batch and its JSON of at most `limit` bytes; `None` if it cannot be split that
/// small.
pub(super) fn parts(
    batch: &Profiles,
    limit: usize,
    options: &EncodeOptions,
    take: &mut dyn FnMut(&Profiles, Option<Vec<u8>>),
) {
    cut(batch, limit / BYTES_OF_JSON, limit, options, take);
}

/// Splits a batch into parts of this many bytes of protobuf, and again those whose JSON is longer than `limit`.
fn cut(
    batch: &Profiles,
    part_bytes: usize,
    limit: usize,
    options: &EncodeOptions,
    take: &mut dyn FnMut(&Profiles, Option<Vec<u8>>),
) {
    for part in split(batch, part_bytes, options) {
        match profiles_text(&encode(&part, options), limit) {
            Ok(text) => take(&part, Some(text)),
            Err(_) if part.observations() > 1 && part_bytes > MIN_PART => {
                cut(&part, part_bytes / 2, limit, options, take);
            }
            Err(_) => take(&part, None),
        }
    }
}

/// The parts of a batch of spans, each as JSON of at most `limit` bytes with its number of spans; `None` if it cannot
/// be split that small.
pub(super) fn span_parts(spans: &Spans, limit: usize) -> Vec<(Option<Vec<u8>>, usize)> {
    let mut part_bytes = limit / BYTES_OF_JSON;
    loop {
        let can_be_smaller = part_bytes > MIN_PART;
        let parts = traces::split(spans, part_bytes).map(|(protobuf, count)| {
            match text(Message::TracesRequest, &protobuf, limit) {
                Ok(text) => Some((Some(text), count)),
                Err(_) if count > 1 && can_be_smaller => None,
                Err(_) => Some((None, count)),
            }
        });
        match parts.collect() {
            Some(parts) => return parts,
            None => part_bytes /= 2,
        }
    }
}

/// A request of profiles as JSON of at most `limit` bytes.
pub(super) fn profiles_text(protobuf: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    text(Message::ProfilesRequest, protobuf, limit)
}

/// A message as JSON of at most `limit` bytes.
pub(super) fn text(message: Message, protobuf: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let mut text = Vec::with_capacity(protobuf.len().saturating_mul(BYTES_OF_JSON).min(limit));
    json::write(message, protobuf, limit, &mut text)?;
    Ok(text)
}
