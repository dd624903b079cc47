//! Splits a finished message into smaller ones.

use bytes::Bytes;
use profbridge_model::Profiles;
use profbridge_net::compression::{Coding, Compression, decompress};
use profbridge_wire::otlp::{EncodeOptions, Limits, decode, encode, json, split, traces};

use super::json::{parts, profiles_text, span_parts};
use super::spans::{compression_of_spans, span_message};
use super::{Encoding, Signal, SignalCount, message};
use crate::compressor::Compressor;
use crate::message::Message;

/// Minimum plausible limit of a peer: one that rejects less than 64 KiB has another reason than the size.
const MIN_LIMIT: usize = 64 << 10;

/// The result of splitting a message.
#[derive(Debug)]
pub struct Cut {
    /// The parts, at least two.
    pub messages: Vec<Message<SignalCount>>,
    /// Size of the original message, in bytes before compression.
    pub size: usize,
    /// Maximum size of the parts, in bytes before compression.
    pub limit: usize,
}

/// Splits a message that the peer rejected as too large, to `limit` or, if it is already smaller, to about half its
/// size. `None` if it cannot be split, or is so small that its size cannot be the reason. The message must not be
/// framed.
pub fn cut(body: Bytes, signal: Signal, encoding: Encoding, compression: Compression, limit: usize) -> Option<Cut> {
    let coding = Coding::parse(compression.content_encoding()).ok()?;
    // It is our own body, so its decompressed size is already known to be acceptable.
    let mut plain = decompress(coding, body, i32::MAX as usize).ok()?;
    let size = plain.len();
    // Somewhat more than half, so that two halves fit although both need the same names.
    let limit = if size > limit { limit } else { size / 8 * 5 };
    if limit < MIN_LIMIT {
        return None;
    }
    // Short numbers take more bytes in protobuf than in JSON.
    let limits = Limits { max_request: size.saturating_mul(4), ..Limits::default() };
    if encoding == Encoding::Json {
        plain = json::read(signal.names().request, &plain, &limits, &mut |_| true).ok()?.into();
    }
    let mut compressor = Compressor::default();
    let mut messages = Vec::new();
    if signal == Signal::Traces {
        let decoded = traces::decode(plain, &limits).ok().filter(|decoded| decoded.refused_spans == 0)?;
        let parts = match encoding {
            Encoding::Protobuf => {
                traces::split(&decoded.spans, limit).map(|(message, spans)| (Some(message), spans)).collect()
            }
            Encoding::Json => span_parts(&decoded.spans, limit),
        };
        for (message, spans) in parts {
            let body = compressor.pack(compression_of_spans(compression), message?.into()).ok()?;
            messages.push(span_message(body, spans as u64));
        }
        return (messages.len() > 1).then_some(Cut { messages, size, limit });
    }
    let decoded = decode(plain, &limits).ok().filter(|decoded| decoded.refused.is_empty())?;
    // The parts must not carry a payload, which describes the whole; the ids exist already. References only occur if
    // the peer supports them.
    let references = decoded.profiles.dictionary().tables().references;
    let options = EncodeOptions { references, ..EncodeOptions::default() };
    let mut failed = false;
    let mut take = |part: &Profiles, plain: Option<Vec<u8>>| match plain
        .and_then(|plain| compressor.pack(compression, plain.into()).ok())
    {
        Some(body) => messages.push(message(body, part)),
        None => failed = true,
    };
    match encoding {
        Encoding::Protobuf => {
            split(&decoded.profiles, limit, &options).for_each(|part| take(&part, Some(encode(&part, &options))));
        }
        Encoding::Json => parts(&decoded.profiles, limit, &options, &mut |part, plain| {
            // A part that cannot be split further is sent at its size.
            take(part, plain.or_else(|| profiles_text(&encode(part, &options), usize::MAX).ok()));
        }),
    }
    (messages.len() > 1 && !failed).then_some(Cut { messages, size, limit })
}
