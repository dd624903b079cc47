//! Bodies, compressed while they are written.

use std::borrow::Cow;
use std::io::{self, Write as _};

use bytes::Bytes;
use profbridge_net::compression::{Compression, Encoder, EncoderContext};
use serde::Deserialize;

/// A body that is being written.
pub(crate) type Open = Encoder<Vec<u8>>;

/// Makes bodies, and lends zstd's context, which is costly to build, to one after the other: a gateway writes thousands
/// of small ones in a minute.
#[derive(Debug, Default)]
pub(crate) struct Compressor {
    context: EncoderContext,
}

impl Compressor {
    /// Begins a body of about so many bytes before compression, which makes it about so many times smaller.
    pub(crate) fn open(&mut self, compression: Compression, estimated: usize, times: usize) -> io::Result<Open> {
        let capacity = if compression == Compression::None { estimated } else { estimated / times };
        Encoder::new(compression, Vec::with_capacity(capacity), &mut self.context)
    }

    /// Ends a body.
    pub(crate) fn close(&mut self, open: Open) -> io::Result<Bytes> {
        Ok(written(open.finish(&mut self.context)?))
    }

    /// A body of bytes that are at hand. Bytes that belong to somebody else are copied, so that they need not stay.
    pub(crate) fn pack(&mut self, compression: Compression, plain: Cow<'_, [u8]>) -> io::Result<Bytes> {
        if compression == Compression::None {
            return Ok(written(plain.into_owned()));
        }
        // OTLP shrinks to a fifth.
        let mut open = self.open(compression, plain.len(), 4)?;
        open.write_all(&plain)?;
        self.close(open)
    }
}

/// What was written, in no more memory than it has bytes: a queue counts what it holds by length.
pub(crate) fn written(bytes: Vec<u8>) -> Bytes {
    bytes.into_boxed_slice().into()
}

/// A body of bytes, for who has one only now and then.
///
/// # Errors
///
/// There is no memory.
pub fn compress(compression: Compression, plain: &[u8]) -> io::Result<Bytes> {
    Compressor::default().pack(compression, plain.into())
}

/// How something is compressed, as it is written in a configuration.
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
