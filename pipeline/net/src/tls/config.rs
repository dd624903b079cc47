//! The two configurations and what they become.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ServerConfig};
use serde::Deserialize;

use super::{HttpVersions, TlsError, files, provider};

/// `tls:` of a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsServerConfig {
    /// The server's certificate, PEM, the leaf first and then its intermediates.
    pub cert_file: PathBuf,
    /// The certificate's private key, PEM, not encrypted.
    pub key_file: PathBuf,
    /// Authorities for client certificates, PEM. When set, a client without a certificate of one of
    /// them is refused in the handshake.
    #[serde(default)]
    pub client_ca_file: Option<PathBuf>,
}

impl TlsServerConfig {
    /// Reads the files and offers `versions` by ALPN.
    ///
    /// # Errors
    /// A file is missing, unreadable or not what it should be, or the pair does not fit together.
    pub fn load(&self, versions: HttpVersions) -> Result<Arc<ServerConfig>, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::library)?;
        let builder = match &self.client_ca_file {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(files::authorities(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                    .build()
                    .map_err(|error| TlsError::of(path, format!("cannot verify client certificates: {error}")))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(files::certificates(&self.cert_file)?, files::key(&self.key_file)?)
            .map_err(|source| pair(&self.cert_file, &self.key_file, source))?;
        config.alpn_protocols = versions.alpn();
        Ok(Arc::new(config))
    }
}

/// `tls:` of an exporter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsClientConfig {
    /// Speak plaintext where the endpoint has no scheme. An endpoint with `https://` uses TLS all the
    /// same, as in the Collector's `configgrpc`.
    pub insecure: bool,
    /// Authorities, PEM, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate, PEM. Needs `key_file`.
    pub cert_file: Option<PathBuf>,
    /// The client certificate's private key, PEM, not encrypted.
    pub key_file: Option<PathBuf>,
    /// The name that is sent by SNI and that the server's certificate must carry, instead of the
    /// endpoint's host.
    pub server_name_override: Option<String>,
}

/// TLS for a client, ready to connect.
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) server_name: Option<ServerName<'static>>,
}

impl TlsClientConfig {
    /// Reads the files, or the system's authorities where there is no `ca_file`, and offers
    /// `versions` by ALPN.
    ///
    /// # Errors
    /// A file is missing, unreadable or not what it should be, a pair is incomplete, there are no
    /// authorities, or `server_name_override` is no name.
    pub fn load(&self, versions: HttpVersions) -> Result<ClientTls, TlsError> {
        let server_name = match &self.server_name_override {
            None => None,
            Some(name) => Some(server_name(name)?),
        };
        let roots = match &self.ca_file {
            Some(path) => files::authorities(path)?,
            None => files::system_authorities()?,
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::library)?
            .with_root_certificates(roots);
        let mut config = match (&self.cert_file, &self.key_file) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), Some(key)) => builder
                .with_client_auth_cert(files::certificates(cert)?, files::key(key)?)
                .map_err(|source| pair(cert, key, source))?,
            (Some(_), None) => return Err(half("cert_file", "key_file")),
            (None, Some(_)) => return Err(half("key_file", "cert_file")),
        };
        config.alpn_protocols = versions.alpn();
        // An exporter talks to one server, or to few: the default of 256 remembered ones is memory
        // that is never used.
        config.resumption = Resumption::in_memory_sessions(8);
        Ok(ClientTls { config: Arc::new(config), server_name })
    }
}

fn pair(cert: &Path, key: &Path, source: rustls::Error) -> TlsError {
    TlsError(format!("{} and {}: cannot be used together: {source}", cert.display(), key.display()))
}

fn half(present: &str, missing: &str) -> TlsError {
    TlsError(format!("{present} is set but {missing} is not; a certificate needs its key"))
}

/// A host as rustls wants it; an IPv6 address may stand in its brackets.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned())
        .map_err(|_| TlsError(format!("{host:?} is neither a DNS name nor an IP address")))
}
