//! Reads bodies with a size limit, a deadline and a minimum of progress.
//!
//! The limit is compared with the announced length before the first byte is read, and with the received bytes while
//! reading. An announced length may be false, so memory is allocated as bytes arrive: a thousand peers that each
//! announce 64 MiB and send nothing cost nothing.
//!
//! [`read`] collects a body; [`Guarded`] enforces the same limits for code that reads frame by frame.

mod guarded;

pub use guarded::Guarded;

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::BoxError;

/// Limits on the size and the duration of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// The largest body in bytes, as transmitted (before decompression).
    pub max_bytes: usize,
    /// The maximum time from the start of reading to the last byte.
    pub timeout: Duration,
    /// In each interval of this length, at least [`BodyLimits::min_progress`] bytes must arrive.
    pub progress_interval: Duration,
    /// The minimum number of bytes per interval.
    pub min_progress: usize,
}

impl BodyLimits {
    /// `max_bytes` within 60 s, and at least 1 KiB in 10 s: enough for a peer on a slow line, but not for one that
    /// sends a byte now and then to keep its connection.
    pub fn new(max_bytes: usize) -> BodyLimits {
        BodyLimits {
            max_bytes,
            timeout: Duration::from_secs(60),
            progress_interval: Duration::from_secs(10),
            min_progress: 1024,
        }
    }
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The body is larger than allowed. Permanent: HTTP 413, gRPC RESOURCE_EXHAUSTED.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The body arrived too slowly.
    #[error("the body stopped or came too slowly, {received} bytes were received")]
    TimedOut {
        /// The number of bytes received until then.
        received: u64,
    },
    /// The connection broke, or the peer violated the protocol, for example with a body shorter or longer than
    /// announced.
    #[error("the body broke off after {received} bytes: {source}")]
    Broken {
        /// The number of bytes received until then.
        received: u64,
        /// The transport's error.
        source: BoxError,
    },
}

/// Reads a whole body. A body in one piece is not copied, and an announced length allocates no memory.
///
/// # Errors
///
/// The body is too large (detected before reading if its length is announced), too slow or broken.
pub async fn read<B>(body: B, limits: BodyLimits) -> Result<Bytes, BodyError>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    Ok(Guarded::new(body, limits).collect().await?.to_bytes())
}

#[cfg(test)]
mod tests;
