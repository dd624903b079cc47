//! What can be wrong with TLS settings, each with the file it is about.

use std::io;
use std::path::PathBuf;

/// Why TLS settings cannot be used. None of these heals by trying again.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The file as it was configured.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is larger than any certificate bundle.
    #[error("{}: larger than {limit} bytes, which no PEM file of certificates or keys is", path.display())]
    TooLarge {
        /// The file as it was configured.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file is not PEM.
    #[error("{}: not a valid PEM file: {cause}", path.display())]
    Pem {
        /// The file as it was configured.
        path: PathBuf,
        /// The rule that is broken.
        cause: String,
    },
    /// A file holds no certificate.
    #[error("{}: holds no certificate (a section `-----BEGIN CERTIFICATE-----` is expected)", path.display())]
    NoCertificate {
        /// The file as it was configured.
        path: PathBuf,
    },
    /// A file holds no private key.
    #[error("{}: holds no private key (a section `-----BEGIN PRIVATE KEY-----` is expected)", path.display())]
    NoKey {
        /// The file as it was configured.
        path: PathBuf,
    },
    /// A file holds an encrypted key, for which there is no passphrase.
    #[error("{}: holds an encrypted private key; decrypt it, for example with `openssl pkey -in FILE -out FILE.key`", path.display())]
    EncryptedKey {
        /// The file as it was configured.
        path: PathBuf,
    },
    /// A certificate of an authority cannot be used.
    #[error("{}: certificate {number} cannot be used as an authority: {source}", path.display())]
    Authority {
        /// The file as it was configured.
        path: PathBuf,
        /// Which certificate of the file, counted from one.
        number: usize,
        /// What rustls says.
        source: rustls::Error,
    },
    /// A certificate and a key do not make a pair.
    #[error("{} and {}: cannot be used together: {source}", cert.display(), key.display())]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What rustls says.
        source: rustls::Error,
    },
    /// Only one of `cert_file` and `key_file` is set.
    #[error("{present} is set but {missing} is not; a certificate needs its key")]
    HalfPair {
        /// The key that is set.
        present: &'static str,
        /// The key that is not.
        missing: &'static str,
    },
    /// The system offers no authority at all.
    #[error("the system has no certificate authorities{detail}; install ca-certificates or name a bundle with ca_file")]
    NoSystemRoots {
        /// What went wrong while reading them; empty when there are simply none.
        detail: String,
    },
    /// `server_name_override` or a host is no name that a certificate can carry.
    #[error("{name:?} is neither a DNS name nor an IP address")]
    ServerName {
        /// What was configured.
        name: String,
    },
    /// The verifier for client certificates refuses the authorities.
    #[error("{}: cannot verify client certificates: {cause}", path.display())]
    ClientAuthorities {
        /// The file as it was configured.
        path: PathBuf,
        /// What rustls says.
        cause: String,
    },
    /// The provider offers no usable protocol version. Not reachable with ring.
    #[error("the TLS library refuses its own defaults: {0}")]
    Library(rustls::Error),
}
