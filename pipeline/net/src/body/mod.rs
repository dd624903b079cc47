//! Bodies read with a limit, a deadline and a minimum of progress.
//!
//! The limit is compared with the announced length before the first byte is read, and with what
//! really came while reading. An announced length is a claim: memory follows what arrives, so that a
//! thousand peers which announce 64 MiB and send nothing cost nothing.
//!
//! [`read`] collects a body; [`Guarded`] is the same guard for whoever reads frame by frame.

mod guarded;

pub use guarded::Guarded;

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::BoxError;

/// How much a body may be and how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// The largest body in bytes, as it comes from the wire (compressed, where it is).
    pub max_bytes: usize,
    /// From the start of reading to the last byte.
    pub timeout: Duration,
    /// In each such interval at least [`BodyLimits::min_progress`] bytes have to come.
    pub progress_interval: Duration,
    /// How many bytes make progress.
    pub min_progress: usize,
}

impl BodyLimits {
    /// `max_bytes` within 60 s, and at least 1 KiB in 10 s: a peer on a slow line passes, one that
    /// sends a byte now and then to keep its place does not.
    pub fn new(max_bytes: usize) -> BodyLimits {
        BodyLimits {
            max_bytes,
            timeout: Duration::from_secs(60),
            progress_interval: Duration::from_secs(10),
            min_progress: 1024,
        }
    }
}

/// Why a body cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is larger than allowed. Permanent: HTTP 413, gRPC RESOURCE_EXHAUSTED.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// It came too slowly.
    #[error("the body stopped or came too slowly, {received} bytes were received")]
    TimedOut {
        /// How many bytes had come.
        received: u64,
    },
    /// The connection broke, or the peer broke the protocol: also a body that is shorter or longer
    /// than announced.
    #[error("the body broke off after {received} bytes: {source}")]
    Broken {
        /// How many bytes had come.
        received: u64,
        /// What the transport says.
        source: BoxError,
    },
}

/// Reads a whole body. Nothing is copied where it comes in one piece, and nothing is allocated for an announced length.
///
/// # Errors
/// The body is too large (known before it is read where its length is announced), too slow or broken.
pub async fn read<B>(body: B, limits: BodyLimits) -> Result<Bytes, BodyError>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    Ok(Guarded::new(body, limits).collect().await?.to_bytes())
}

#[cfg(test)]
mod tests;
