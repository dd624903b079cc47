//! The TLS settings of servers and clients, and the rustls configurations made from them.

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
    /// The server's certificate chain in PEM: the leaf first and then its intermediates.
    pub cert_file: PathBuf,
    /// The certificate's private key in PEM, not encrypted.
    pub key_file: PathBuf,
    /// Authorities for client certificates in PEM. If set, the handshake refuses a client without a certificate of one
    /// of them.
    #[serde(default)]
    pub client_ca_file: Option<PathBuf>,
}

impl TlsServerConfig {
    /// Reads the files and offers `versions` by ALPN.
    ///
    /// # Errors
    ///
    /// A file is missing, unreadable or invalid, or certificate and key do not match.
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
    /// Whether to use plaintext if the endpoint has no scheme. An endpoint with `https://` still uses TLS, as in the
    /// Collector's `configgrpc`.
    pub insecure: bool,
    /// Authorities in PEM that replace the system's.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate in PEM. Needs `key_file`.
    pub cert_file: Option<PathBuf>,
    /// The client certificate's private key in PEM, not encrypted.
    pub key_file: Option<PathBuf>,
    /// The name that is sent by SNI and verified in the server's certificate, instead of the endpoint's host.
    pub server_name_override: Option<String>,
}

/// TLS for a client, ready to connect.
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) server_name: Option<ServerName<'static>>,
}

impl TlsClientConfig {
    /// Reads the files, or the system's authorities if there is no `ca_file`, and offers `versions` by ALPN.
    ///
    /// # Errors
    ///
    /// A file is missing, unreadable or invalid, only one of certificate and key is set, there are no authorities, or
    /// `server_name_override` is not a valid name.
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
        // An exporter connects to few servers; the default of 256 stored sessions would waste memory.
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

/// A host as rustls needs it; an IPv6 address may be in brackets.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned())
        .map_err(|_| TlsError(format!("{host:?} is neither a DNS name nor an IP address")))
}
