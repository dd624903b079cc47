//! TLS and client certificates.

use profbridge_net::client::{GrpcClientConfig, HttpClient, HttpClientConfig, Proxies, grpc_channel};
use profbridge_net::tls::TlsClientConfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::*;
use crate::http::PATH;

/// A certificate authority with a folder for the certificates that it signs.
struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { folder: tempfile::tempdir().unwrap(), issuer };
        authority.write("ca.pem", &authority.issuer.pem());
        authority
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Writes `NAME.pem` and `NAME.key` for localhost.
    fn sign(&self, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        self.write(&format!("{name}.pem"), &params.signed_by(&key, &self.issuer).unwrap().pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    /// A configuration of both protocols with TLS. If `client_ca` is given, clients need a certificate of that
    /// authority.
    fn settings(&self, client_ca: Option<&str>) -> Settings {
        let (cert, key) = (self.path("server.pem"), self.path("server.key"));
        let ca = client_ca.map(|ca| format!(", client_ca_file: '{}'", self.path(ca))).unwrap_or_default();
        let one = format!("{{endpoint: '127.0.0.1:0', tls: {{cert_file: '{cert}', key_file: '{key}'{ca}}}}}");
        settings(&format!("{{protocols: {{grpc: {one}, http: {one}}}}}"))
    }

    fn client(&self, certificate: Option<&str>) -> TlsClientConfig {
        TlsClientConfig {
            ca_file: Some(self.path("ca.pem").into()),
            cert_file: certificate.map(|name| self.path(&format!("{name}.pem")).into()),
            key_file: certificate.map(|name| self.path(&format!("{name}.key")).into()),
            ..TlsClientConfig::default()
        }
    }
}

fn client(rig: &OtlpRig, tls: TlsClientConfig) -> ProfilesServiceClient<Channel> {
    let endpoint = format!("https://localhost:{}", rig.grpc().port());
    let config = GrpcClientConfig { tls, proxies: Proxies::none(), ..GrpcClientConfig::new(endpoint) };
    ProfilesServiceClient::new(grpc_channel(&config).unwrap())
}

/// The status of an HTTPS request, or the error.
async fn post(address: SocketAddr, tls: TlsClientConfig) -> Result<u16, String> {
    let config = HttpClientConfig { tls: Some(tls), proxies: Proxies::none(), ..HttpClientConfig::default() };
    let mut headers = ::http::HeaderMap::new();
    headers.insert("content-type", "application/x-protobuf".parse().unwrap());
    let url = format!("https://localhost:{}{PATH}", address.port()).parse().unwrap();
    let sent = HttpClient::new(&config).unwrap().post(&url, headers, small().encode_to_vec().into()).await;
    sent.map(|response| response.status.as_u16()).map_err(|error| error.to_string())
}

/// Guarantees: both protocols are served over TLS with the configured certificate, and plaintext is refused. With
/// `client_ca_file` a client without a certificate of that authority is refused before a request is read, and the
/// metrics count it beside the accepted connections.
#[tokio::test]
async fn tls_is_served() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.sign("server");
    authority.sign("client");
    other.sign("client");
    let mut rig = OtlpRig::start_with(authority.settings(Some("ca.pem")), PLENTY).await.unwrap();
    let known = client(&rig, authority.client(Some("client")));
    rig.export(known, small()).await;
    let (status, taken) = tokio::join!(post(rig.http(), authority.client(Some("client"))), rig.consumer.take());
    assert_eq!((status, profiles(taken).observations()), (Ok(200), 3));

    let strange = TlsClientConfig { ca_file: authority.client(None).ca_file, ..other.client(Some("client")) };
    for tls in [authority.client(None), strange] {
        assert!(client(&rig, tls.clone()).export(small()).await.is_err());
        assert!(post(rig.http(), tls).await.is_err());
    }
    assert_eq!((rig.requests("success", "grpc"), rig.requests("success", "http")), (1, 1));
    assert_eq!((rig.requests("failure", "grpc"), rig.requests("failure", "http")), (0, 0));
    // The generated client may have retried.
    assert!(rig.connections("handshake_failed", "grpc") >= 2);
    assert_eq!((rig.connections("handshake_failed", "http"), rig.connections("served", "http")), (2, 3));
    assert!(rig.client().export(small()).await.is_err());
    assert!(!exchange(rig.http(), b"POST / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.contains("HTTP/1.1"));
}

/// Guarantees: if a certificate file is missing, the start fails, and the message names the key and the file.
#[tokio::test]
async fn a_missing_certificate_fails_the_start() {
    let authority = Authority::new();
    let error = OtlpRig::start_with(authority.settings(None), PLENTY).await.err().unwrap().to_string();
    assert!(error.starts_with("protocols.grpc.tls: ") && error.contains("server.pem: cannot be read"), "{error}");
}
