//! TLS settings in the Collector's vocabulary, and what rustls makes of them.
//!
//! The provider is ring and is passed explicitly: a process-wide default would be global state that
//! two libraries can fight over. Errors name the file and what is wrong with it.
//!
//! Source of the names: opentelemetry-collector `config/configtls/README.md`. `insecure_skip_verify`
//! is deliberately absent: a private authority belongs into `ca_file`, and a certificate for another
//! name is what `server_name_override` is for.

mod config;
mod error;
mod files;

pub(crate) use config::server_name;
pub use config::{ClientTls, TlsClientConfig, TlsServerConfig};
pub use error::TlsError;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The HTTP versions that a listener or a client speaks, which is also what it offers by ALPN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersions {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only, as gRPC needs it.
    Http2,
    /// Whichever the client chooses.
    #[default]
    Both,
}

impl HttpVersions {
    /// The protocol names of RFC 7301, the preferred one first.
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

/// Whether a handshake failed because what came is no record of TLS.
pub(crate) fn speaks_plaintext(error: &std::io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)))
}

#[cfg(test)]
mod tests;
