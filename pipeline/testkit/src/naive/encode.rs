//! Encodes chunks: JSON, an envelope around it, gzip.

use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};

use super::chunk::NaiveChunk;

/// The chunk as JSON.
///
/// # Errors
/// None in practice: no map has keys other than strings, and times are finite.
pub fn json(chunk: &NaiveChunk) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(chunk)
}

/// An envelope with one `profile_chunk` item.
pub fn envelope(platform: &str, payload: &[u8]) -> Vec<u8> {
    let header = serde_json::json!({
        "type": "profile_chunk",
        "platform": platform,
        "content_type": "application/json",
        "length": payload.len(),
    });
    let mut envelope = format!("{{}}\n{header}\n").into_bytes();
    envelope.extend_from_slice(payload);
    envelope.push(b'\n');
    envelope
}

/// Gzip at level 6, the default of most senders.
///
/// # Errors
/// None in practice: a vector takes every write.
pub fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes)?;
    encoder.finish()
}
