//! Reads PEM files with a size limit, and names the file in every error.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;

/// Maximum size of a PEM file in bytes. The bundle of all public authorities has 0.25 MB.
const MAX_FILE: u64 = 4 * 1024 * 1024;

fn read_bounded(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |error: io::Error| TlsError::of(path, format!("cannot be read: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let mut text = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_FILE {
        let what = format!("larger than {MAX_FILE} bytes, which no PEM file of certificates or keys is");
        return Err(TlsError::of(path, what));
    }
    Ok(text)
}

fn broken(path: &Path, error: &pem::Error) -> TlsError {
    // Does not use the parser's own message, which contains lines as lists of bytes and so possibly key material.
    let cause = match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no END line".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed".to_owned(),
        pem::Error::Base64Decode(_) => "a section is not valid base64".to_owned(),
        other => other.to_string(),
    };
    TlsError::of(path, format!("not a valid PEM file: {cause}"))
}

/// All certificates of a file in order. In a chain the leaf comes first.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read_bounded(path)?;
    let certificates =
        CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>().map_err(|error| broken(path, &error))?;
    if certificates.is_empty() {
        let what = "holds no certificate (a section `-----BEGIN CERTIFICATE-----` is expected)";
        return Err(TlsError::of(path, what));
    }
    Ok(certificates)
}

/// The first private key of a file: PKCS#8, PKCS#1 or SEC1.
pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    const ENCRYPTED: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
    let text = read_bounded(path)?;
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) if text.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED) => {
            let what =
                "holds an encrypted private key; decrypt it, for example with `openssl pkey -in FILE -out FILE.key`";
            Err(TlsError::of(path, what))
        }
        Err(pem::Error::NoItemsFound) => {
            Err(TlsError::of(path, "holds no private key (a section `-----BEGIN PRIVATE KEY-----` is expected)"))
        }
        Err(error) => Err(broken(path, &error)),
    }
}

/// The authorities of a file. One unusable authority makes the file invalid, because connections to its peers would
/// otherwise fail much later without an explanation.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates(path)?.into_iter().enumerate() {
        let number = index + 1;
        let unusable = |error| format!("certificate {number} cannot be used as an authority: {error}");
        roots.add(certificate).map_err(|error| TlsError::of(path, unusable(error)))?;
    }
    Ok(roots)
}

/// The system's authorities. Some unusable certificates in a bundle are normal; if none is usable, that is an error.
pub(super) fn system_authorities() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let detail = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        let what = "install ca-certificates or name a bundle with ca_file";
        return Err(TlsError(format!("the system has no certificate authorities{detail}; {what}")));
    }
    Ok(roots)
}
