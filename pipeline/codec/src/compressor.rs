//! Compresses bodies while they are written.

use std::borrow::Cow;
use std::io::{self, Write as _};

use bytes::Bytes;
use profbridge_net::compression::{Compression, Encoder, EncoderContext};
use serde::Deserialize;

/// A body that is being written.
pub(crate) type OpenBody = Encoder<Vec<u8>>;

/// Creates bodies and reuses zstd's context, which is expensive to create: a gateway writes thousands of small bodies
/// per minute.
#[derive(Debug, Default)]
pub(crate) struct Compressor {
    context: EncoderContext,
}

impl Compressor {
    /// Opens a body with an estimated uncompressed size and compression factor.
    pub(crate) fn open(&mut self, compression: Compression, estimated: usize, times: usize) -> io::Result<OpenBody> {
        let capacity = if compression == Compression::None { estimated } else { estimated / times };
        Encoder::new(compression, Vec::with_capacity(capacity), &mut self.context)
    }

    /// Finishes a body.
    pub(crate) fn close(&mut self, open: OpenBody) -> io::Result<Bytes> {
        Ok(written(open.finish(&mut self.context)?))
    }

    /// Compresses bytes into a body. Borrowed bytes are copied.
    pub(crate) fn pack(&mut self, compression: Compression, plain: Cow<'_, [u8]>) -> io::Result<Bytes> {
        if compression == Compression::None {
            return Ok(written(plain.into_owned()));
        }
        // OTLP compresses to about a fifth; 4 leaves some room.
        let mut open = self.open(compression, plain.len(), 4)?;
        open.write_all(&plain)?;
        self.close(open)
    }
}

/// Trims the allocation to the length, because a queue counts its memory by length.
pub(crate) fn written(bytes: Vec<u8>) -> Bytes {
    bytes.into_boxed_slice().into()
}

/// Compresses a single body, for occasional use.
///
/// # Errors
///
/// There is no memory.
pub fn compress(compression: Compression, plain: &[u8]) -> io::Result<Bytes> {
    Compressor::default().pack(compression, plain.into())
}

/// The compression as written in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompressionConfig {
    /// Not at all.
    None,
    /// gzip, which every OTLP receiver understands (opentelemetry-proto `docs/specification.md`).
    Gzip,
    /// zstd: smaller and faster, understood by Collectors.
    Zstd,
}

impl From<CompressionConfig> for Compression {
    fn from(config: CompressionConfig) -> Self {
        match config {
            CompressionConfig::None => Self::None,
            CompressionConfig::Gzip => Self::GZIP,
            CompressionConfig::Zstd => Self::ZSTD,
        }
    }
}
