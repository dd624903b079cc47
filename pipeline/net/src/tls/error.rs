//! What can be wrong with TLS settings, each with the file it is about.

use std::fmt::Display;
use std::path::Path;

/// Why TLS settings cannot be used, for a person. None of it heals by trying again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub(super) String);

impl TlsError {
    /// What is wrong with a file.
    pub(super) fn of(path: &Path, what: impl Display) -> Self {
        Self(format!("{}: {what}", path.display()))
    }

    /// The provider offers no usable protocol version. Not reachable with ring.
    pub(super) fn library(error: rustls::Error) -> Self {
        Self(format!("the TLS library refuses its own defaults: {error}"))
    }
}
