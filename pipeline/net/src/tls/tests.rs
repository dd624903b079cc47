use super::*;
use crate::testing::Authority;

/// The error text for a server's settings.
fn server_error(config: &TlsServerConfig) -> String {
    config.load(HttpVersions::Both).map(|_| ()).unwrap_err().to_string()
}

fn client_error(config: &TlsClientConfig) -> String {
    config.load(HttpVersions::Both).map(|_| ()).unwrap_err().to_string()
}

/// Guarantees: a matching pair loads, and exactly the requested protocols are offered.
#[test]
fn a_sound_pair_loads_with_its_protocols() {
    let authority = Authority::new();
    let server = authority.server("localhost");
    assert_eq!(server.load(HttpVersions::Http2).unwrap().alpn_protocols, [b"h2".to_vec()]);
    assert_eq!(server.load(HttpVersions::Http1).unwrap().alpn_protocols, [b"http/1.1".to_vec()]);
    let client = authority.client().load(HttpVersions::Both).unwrap();
    assert_eq!(client.config.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
}

/// Guarantees: every broken server file is reported with its name and the rule, and no key material is shown.
#[test]
fn server_errors_name_the_file_and_the_rule() {
    let authority = Authority::new();
    let sound = authority.server("localhost");
    let (_, other_key) = authority.sign("other", "localhost");
    let with_key = |key_file| TlsServerConfig { key_file, ..sound.clone() };
    let with_cert = |cert_file| TlsServerConfig { cert_file, ..sound.clone() };
    let section = |label: &str, text: &str| format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");

    let missing = server_error(&with_cert(authority.path("missing.pem")));
    assert!(missing.contains("missing.pem: cannot be read: No such file"), "{missing}");

    let empty = server_error(&with_cert(authority.file("empty.pem", "nothing\n")));
    assert!(empty.contains("empty.pem: holds no certificate"), "{empty}");

    let swapped = server_error(&with_key(sound.cert_file.clone()));
    assert!(swapped.contains("server.pem: holds no private key"), "{swapped}");

    let mismatch = server_error(&with_key(other_key));
    assert!(mismatch.contains("server.pem and ") && mismatch.contains("other.key: cannot be used"), "{mismatch}");

    let locked = server_error(&with_key(authority.file("locked.key", &section("ENCRYPTED PRIVATE KEY", "AAAA"))));
    assert!(locked.contains("locked.key: holds an encrypted private key"), "{locked}");

    let garbled = server_error(&with_key(authority.file("garbled.key", &section("PRIVATE KEY", "SECRET*"))));
    assert!(garbled.contains("garbled.key: not a valid PEM file: a section is not valid base64"), "{garbled}");
    assert!(!garbled.contains("SECRET"), "{garbled}");

    let open = server_error(&with_cert(authority.file("open.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n")));
    assert!(open.contains("open.pem: not a valid PEM file: a section has no END line"), "{open}");

    let no_authority = TlsServerConfig { client_ca_file: Some(authority.path("none.pem")), ..sound };
    assert!(server_error(&no_authority).contains("none.pem: cannot be read"));
}

/// Guarantees: an endless file is refused after a bounded read.
#[test]
fn an_endless_file_is_refused() {
    let authority = Authority::new();
    let endless = TlsServerConfig { cert_file: "/dev/zero".into(), ..authority.server("localhost") };
    assert!(server_error(&endless).contains("/dev/zero: larger than 4194304 bytes"));
}

/// Guarantees: a client certificate without its key, an invalid name, and an unusable authority are refused.
#[test]
fn client_errors_name_the_key_or_the_file() {
    let authority = Authority::new();
    let (cert, key) = authority.sign("client", "client");
    let half = TlsClientConfig { cert_file: Some(cert), ..authority.client() };
    assert_eq!(client_error(&half), "cert_file is set but key_file is not; a certificate needs its key");
    let half = TlsClientConfig { key_file: Some(key), ..authority.client() };
    assert_eq!(client_error(&half), "key_file is set but cert_file is not; a certificate needs its key");

    let name = TlsClientConfig { server_name_override: Some("no name".to_owned()), ..authority.client() };
    assert_eq!(client_error(&name), "\"no name\" is neither a DNS name nor an IP address");

    let bad = authority.file("bad-ca.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let bad = TlsClientConfig { ca_file: Some(bad), ..TlsClientConfig::default() };
    assert!(client_error(&bad).contains("bad-ca.pem: certificate 1 cannot be used as an authority"));
}

/// Guarantees: a URL's IPv6 host, which is in brackets, is accepted as a name to verify.
#[test]
fn hosts_become_names() {
    assert!(server_name("[::1]").is_ok());
    assert!(server_name("10.0.0.1").is_ok());
    assert!(server_name("ingest.example.com").is_ok());
    assert!(server_name("[::1").is_err());
}
