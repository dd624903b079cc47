use std::path::PathBuf;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use profbridge_engine::component::Retry;
use profbridge_net::client::Proxies;
use profbridge_net::tls::TlsServerConfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::peer::{collector, raw, response};
use super::*;
use crate::settings::Target;

/// A certificate authority, and a server certificate for 127.0.0.1.
struct Authority {
    folder: TempDir,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let authority = Authority { folder: tempfile::tempdir().unwrap() };
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

/// Guarantees: both protocols work over TLS with a private authority.
#[tokio::test]
async fn tls() {
    let authority = Authority::new();
    let peer = collector(Some(authority.server()), || Ok(ExportProfilesServiceResponse::default())).await;
    let yaml = format!("{{endpoint: '{}', {}}}", peer.address, authority.client());
    assert_eq!(send(&exporter(Protocol::Grpc, &yaml), &batch(&[1])).await, Ok(Accepted::default()));

    let peer = raw(Some(authority.server()), || response(200, &[], "")).await;
    let yaml = format!("{{endpoint: 'https://{}', {}}}", peer.address, authority.client());
    assert_eq!(send(&exporter(Protocol::Http, &yaml), &batch(&[1])).await, Ok(Accepted::default()));
}

/// Guarantees: nothing is sent to a server with an unknown authority, and the message says why. The request is retried,
/// since a certificate may be renewed.
#[tokio::test]
async fn unknown_authority() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut peer = raw(Some(authority.server()), || response(200, &[], "")).await;
    for (protocol, scheme) in [(Protocol::Grpc, ""), (Protocol::Http, "https://")] {
        let yaml = format!("{{endpoint: '{scheme}{}', {}}}", peer.address, other.client());
        let error = send(&exporter(protocol, &yaml), &batch(&[1])).await.unwrap_err();
        assert_eq!(error.retry, Retry::Later);
        assert!(error.message.contains("certificate"), "{error}");
    }
    assert!(peer.seen.try_recv().is_err());
}

/// Guarantees: if a server requires a client certificate and the client has none, or one of another authority, the
/// message mentions the certificate, although a TLS 1.3 client may see only a closed connection.
#[tokio::test]
async fn refused_client_certificate() {
    let (authority, other) = (Authority::new(), Authority::new());
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

/// Guarantees: a configured proxy is used: gRPC goes through a tunnel, plain HTTP is forwarded.
#[tokio::test]
async fn proxies() {
    let peer = collector(None, || Ok(ExportProfilesServiceResponse::default())).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let to = peer.address;
    let asked = tokio::spawn(async move {
        let mut asked = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            if head.starts_with("CONNECT ") {
                let mut peer = TcpStream::connect(to).await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut stream, &mut peer).await });
            } else {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            }
            asked.push(head.lines().next().unwrap_or_default().to_owned());
        }
        asked
    });
    let behind = |protocol, endpoint: &str| {
        let mut settings = settings(protocol, &format!("{{endpoint: '{endpoint}', tls: {{insecure: true}}}}"));
        match &mut settings.target {
            Target::Grpc(config) => config.proxies = Proxies::new(&proxy, &proxy, ""),
            Target::Http { client, .. } => client.proxies = Proxies::new(&proxy, &proxy, ""),
        }
        OtlpExporter::new(settings)
    };
    let grpc = behind(Protocol::Grpc, "collector.invalid:4317");
    assert_eq!(send(&grpc, &batch(&[1])).await, Ok(Accepted::default()));
    let http = behind(Protocol::Http, "http://collector.invalid:4318");
    assert_eq!(send(&http, &batch(&[1])).await, Ok(Accepted::default()));
    let asked = asked.await.unwrap();
    assert_eq!(asked[0], "CONNECT collector.invalid:4317 HTTP/1.1");
    assert_eq!(asked[1], "POST http://collector.invalid:4318/v1development/profiles HTTP/1.1");
}
