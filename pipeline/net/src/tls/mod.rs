//! TLS settings with the Collector's keys, and the rustls configurations made from them.
//!
//! The provider is ring and is passed explicitly: a process-wide default would be global state over which two libraries
//! can conflict. Errors name the file and the problem.
//!
//! Source of the keys: opentelemetry-collector `config/configtls/README.md`. `insecure_skip_verify` is deliberately
//! missing: use `ca_file` for a private authority, and `server_name_override` for a certificate with another name.

mod config;
mod error;
mod files;

pub(crate) use config::server_name;
pub use config::{ClientTls, TlsClientConfig, TlsServerConfig};
pub use error::TlsError;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The HTTP versions of a listener or a client, which are also offered by ALPN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersions {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only, as gRPC needs it.
    Http2,
    /// The client chooses.
    #[default]
    Both,
}

impl HttpVersions {
    /// The protocol names of RFC 7301, preferred one first.
    fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            HttpVersions::Http1 => vec![b"http/1.1".to_vec()],
            HttpVersions::Http2 => vec![b"h2".to_vec()],
            HttpVersions::Both => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Whether a handshake failed because the received bytes are not a TLS record.
pub(crate) fn speaks_plaintext(error: &std::io::Error) -> bool {
    matches!(cause(error), Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)))
}

/// Whether a handshake failed because the client offers no protocol of the server (ALPN).
pub(crate) fn offers_other_protocols(error: &std::io::Error) -> bool {
    matches!(cause(error), Some(rustls::Error::NoApplicationProtocol))
}

fn cause(error: &std::io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|cause| cause.downcast_ref())
}

#[cfg(test)]
mod tests;
