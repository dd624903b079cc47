//! Content codings: decompression with bounded memory, compression into a writer.
//!
//! [`decompress()`] compares its limit with the output as it grows, so a decompression bomb costs at most the limit.
//! Truncated input and bytes after the end are errors, because the payload is then not the one that its sender made.
//! Both directions are CPU work and block the calling thread.

mod brotli;
mod decompress;
mod encoder;

pub use decompress::{DecompressError, Decompressed, Grant, decompress, decompress_granted, decompress_into};
pub use encoder::{Compression, Encoder, EncoderContext};

/// The codings that [`Coding::parse`] accepts, as the value of an `Accept-Encoding` header.
pub const ACCEPT_ENCODING: &str = "zstd, gzip, deflate, br, identity";

/// A supported content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// No coding.
    Identity,
    /// RFC 1952, with any number of members.
    Gzip,
    /// RFC 8878, with any number of frames.
    Zstd,
    /// HTTP's `deflate`, which is the zlib format of RFC 1950 (RFC 9110 section 8.4.1.2).
    Deflate,
    /// Brotli, RFC 7932. Only for decompression: Sentry's SDKs send it.
    Brotli,
}

/// An unsupported `Content-Encoding`. Permanent: HTTP 415, gRPC UNIMPLEMENTED.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// The name is not known.
    #[error("the content encoding {0:?} is not supported, use one of zstd, gzip, deflate, br, identity")]
    Unknown(String),
    /// Several codings on top of each other. No telemetry client sends these, and they multiply the factor of a
    /// decompression bomb.
    #[error("more than one content encoding on top of each other is not supported")]
    Stacked,
}

impl Coding {
    /// The value of the `Content-Encoding` header; `None` for no header.
    pub fn content_encoding(self) -> Option<&'static str> {
        match self {
            Coding::Identity => None,
            Coding::Gzip => Some("gzip"),
            Coding::Zstd => Some("zstd"),
            Coding::Deflate => Some("deflate"),
            Coding::Brotli => Some("br"),
        }
    }

    /// Parses the value of a `Content-Encoding` or `grpc-encoding` header; `None` means no header. Names are
    /// case-insensitive, and `x-gzip` and `zlib` are accepted as in the Collector.
    ///
    /// # Errors
    ///
    /// A name is unknown, or there are several codings other than `identity`.
    pub fn parse(header: Option<&str>) -> Result<Coding, CodingError> {
        let mut coding = Coding::Identity;
        for name in header.unwrap_or_default().split(',').map(str::trim) {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            let next = if name.is_empty() || is("identity") {
                continue;
            } else if is("gzip") || is("x-gzip") {
                Coding::Gzip
            } else if is("zstd") {
                Coding::Zstd
            } else if is("br") {
                Coding::Brotli
            } else if is("deflate") || is("zlib") {
                Coding::Deflate
            } else {
                // A header can be very long; the beginning suffices for the error.
                return Err(CodingError::Unknown(name.chars().take(40).collect()));
            };
            if coding != Coding::Identity {
                return Err(CodingError::Stacked);
            }
            coding = next;
        }
        Ok(coding)
    }
}

#[cfg(test)]
mod tests;
