//! Errors in TLS settings, each with the file concerned.

use std::fmt::Display;
use std::path::Path;

/// Why TLS settings cannot be used, for a person. Retrying never helps.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub(super) String);

impl TlsError {
    /// An error about a file.
    pub(super) fn of(path: &Path, what: impl Display) -> Self {
        Self(format!("{}: {what}", path.display()))
    }

    /// An error of the library: the provider supports no usable protocol version. Cannot happen with ring.
    pub(super) fn library(error: rustls::Error) -> Self {
        Self(format!("the TLS library refuses its own defaults: {error}"))
    }
}
