use std::path::PathBuf;

use profbridge_engine::component::Retry;
use profbridge_net::tls::TlsServerConfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use super::peer::{grpc_response, raw, response};
use super::*;

/// A certificate authority, and a server certificate for 127.0.0.1.
struct LoopbackAuthority {
    folder: TempDir,
}

impl LoopbackAuthority {
    fn new() -> LoopbackAuthority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let authority = LoopbackAuthority { folder: tempfile::tempdir().unwrap() };
        std::fs::write(authority.path("ca.pem"), issuer.pem()).unwrap();
        std::fs::write(authority.path("server.pem"), certificate.pem()).unwrap();
        std::fs::write(authority.path("server.key"), key.serialize_pem()).unwrap();
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn server(&self) -> TlsServerConfig {
        TlsServerConfig { cert_file: self.path("server.pem"), key_file: self.path("server.key"), client_ca_file: None }
    }

    fn client(&self) -> String {
        format!("tls: {{ca_file: '{}'}}", self.path("ca.pem").display())
    }
}

/// Guarantees: over both protocols a server of the configured authority gets requests, and nothing is sent to one of an
/// unknown authority. The message says why, and the request is retried, since a certificate may be renewed.
#[tokio::test]
async fn unknown_authority() {
    let (authority, other) = (LoopbackAuthority::new(), LoopbackAuthority::new());
    let mut peer = raw(Some(authority.server()), || response(200, &[], "")).await;
    for (protocol, scheme) in [(Protocol::Grpc, ""), (Protocol::Http, "https://")] {
        let yaml = format!("{{endpoint: '{scheme}{}', {}}}", peer.address, other.client());
        let error = send(&exporter(protocol, &yaml), &batch(&[1])).await.unwrap_err();
        assert_eq!(error.retry, Retry::Later);
        assert!(error.message.contains("certificate"), "{error}");
    }
    assert!(peer.seen.try_recv().is_err());
    let yaml = format!("{{endpoint: 'https://{}', {}}}", peer.address, authority.client());
    assert_eq!(send(&exporter(Protocol::Http, &yaml), &batch(&[1])).await, Ok(Accepted::default()));
    let peer = raw(Some(authority.server()), || grpc_response(b"\0\0\0\0\0", &[("grpc-status", "0")])).await;
    let yaml = format!("{{endpoint: '{}', {}}}", peer.address, authority.client());
    assert_eq!(send(&exporter(Protocol::Grpc, &yaml), &batch(&[1])).await, Ok(Accepted::default()));
}

/// Guarantees: if a server requires a client certificate and the client has none, or one of another authority, the
/// message mentions the certificate, although a TLS 1.3 client may see only a closed connection.
#[tokio::test]
async fn refused_client_certificate() {
    let (authority, other) = (LoopbackAuthority::new(), LoopbackAuthority::new());
    let server = TlsServerConfig { client_ca_file: Some(authority.path("ca.pem")), ..authority.server() };
    let mut peer = raw(Some(server), || response(200, &[], "")).await;
    let [cert, key] = ["server.pem", "server.key"].map(|file| other.path(file).display().to_string());
    let ca = authority.path("ca.pem").display().to_string();
    for (protocol, scheme) in [(Protocol::Grpc, ""), (Protocol::Http, "https://")] {
        for (certificate, says) in [
            (String::new(), "the peer may want a TLS client certificate (`tls.cert_file`)"),
            (
                format!(", cert_file: '{cert}', key_file: '{key}'"),
                "the peer may have refused the TLS client certificate (`tls.cert_file`)",
            ),
        ] {
            let yaml = format!("{{endpoint: '{scheme}{}', tls: {{ca_file: '{ca}'{certificate}}}}}", peer.address);
            let error = send(&exporter(protocol, &yaml), &batch(&[1])).await.unwrap_err();
            assert_eq!(error.retry, Retry::Later);
            assert!(error.message.contains(says), "{error}");
        }
    }
    assert!(peer.seen.try_recv().is_err());
}

/// Guarantees: unusable certificate files fail the start, and the message names them.
#[tokio::test]
async fn bad_files_fail_the_start() {
    for (protocol, endpoint) in [(Protocol::Grpc, "127.0.0.1:1"), (Protocol::Http, "https://127.0.0.1:1")] {
        let yaml = format!("{{endpoint: '{endpoint}', tls: {{ca_file: /missing/ca.pem}}}}");
        let error = exporter(protocol, &yaml)
            .start(&profbridge_testkit::exporter_context("otlp"))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("127.0.0.1:1: /missing/ca.pem: cannot be read"), "{error}");
    }
}
