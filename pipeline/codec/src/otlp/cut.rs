//! A message that was finished, cut into smaller ones.

use bytes::Bytes;
use profbridge_net::compression::{Coding, Compression, decompress};
use profbridge_wire::otlp::{EncodeOptions, Limits, decode, encode, split, traces};

use super::spans::span_message;
use super::{Batch, Signal, message};
use crate::compressor::Compressor;
use crate::message::Message;

/// A reader that takes less than this has another reason than its size to refuse a message: 64 KiB.
const MIN_LIMIT: usize = 64 << 10;

/// What became of a message that was cut.
#[derive(Debug)]
pub struct Cut {
    /// The parts, at least two.
    pub messages: Vec<Message<Batch>>,
    /// The size of the message, in bytes before compression.
    pub size: usize,
    /// The size that the parts have at most, in the same way.
    pub limit: usize,
}

/// Cuts a message that a reader found too large, to `limit` or, where it is within that, to about half its size. `None`
/// where it cannot be cut, or is so small that its size cannot be what is wrong with it. The message is not framed.
pub fn cut(body: Bytes, signal: Signal, compression: Compression, limit: usize) -> Option<Cut> {
    let coding = Coding::parse(compression.content_encoding()).ok()?;
    // Our own body: it is as large as it was when it was compressed.
    let plain = decompress(coding, body, i32::MAX as usize).ok()?;
    let size = plain.len();
    // Somewhat more than half, so that two halves fit that both need the same names.
    let limit = if size > limit { limit } else { size / 8 * 5 };
    if limit < MIN_LIMIT {
        return None;
    }
    let limits = Limits { max_request: size, ..Limits::default() };
    let mut compressor = Compressor::default();
    let mut messages = Vec::new();
    if signal == Signal::Traces {
        let decoded = traces::decode(plain, &limits).ok().filter(|decoded| decoded.refused_spans == 0)?;
        for (message, spans) in traces::split(&decoded.spans, limit) {
            messages.push(span_message(compressor.pack(compression, message.into()).ok()?, spans as u64));
        }
        return (messages.len() > 1).then_some(Cut { messages, size, limit });
    }
    let decoded = decode(plain, &limits).ok().filter(|decoded| decoded.refused.is_empty())?;
    // The parts must not carry a payload, which says what the whole said; the ids are there. References are in it for a
    // reader that knows them only.
    let references = decoded.profiles.dictionary().tables().references;
    let options = EncodeOptions { references, ..EncodeOptions::default() };
    for part in split(&decoded.profiles, limit, &options) {
        let body = compressor.pack(compression, encode(&part, &options).into()).ok()?;
        messages.push(message(body, &part));
    }
    (messages.len() > 1).then_some(Cut { messages, size, limit })
}
