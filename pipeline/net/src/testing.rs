//! Test helpers of several modules: certificates, a server that answers, raw requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::server::{Drained, Listener, ServerLimits, ServerStats, serve};
use crate::tls::{TlsClientConfig, TlsServerConfig};
use crate::{Shutdown, Trigger};

/// A certificate authority with a folder for its certificates.
pub(crate) struct Authority {
    pub(crate) folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Authority { folder: tempfile::tempdir().unwrap(), issuer };
        authority.file("ca.pem", &authority.issuer.pem());
        authority
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Writes `NAME.pem` and `NAME.key` with a certificate for a host or address.
    pub(crate) fn sign(&self, name: &str, host: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let cert = self.file(&format!("{name}.pem"), &certificate.pem());
        (cert, self.file(&format!("{name}.key"), &key.serialize_pem()))
    }

    pub(crate) fn server(&self, host: &str) -> TlsServerConfig {
        let (cert_file, key_file) = self.sign("server", host);
        TlsServerConfig { cert_file, key_file, client_ca_file: None }
    }

    pub(crate) fn client(&self) -> TlsClientConfig {
        TlsClientConfig { ca_file: Some(self.path("ca.pem")), ..TlsClientConfig::default() }
    }
}

/// A server that runs until it is stopped.
pub(crate) struct TestServer {
    pub(crate) addr: SocketAddr,
    pub(crate) stats: Arc<ServerStats>,
    pub(crate) trigger: Trigger,
    pub(crate) done: JoinHandle<Drained>,
}

pub(crate) async fn start<S>(service: S, tls: Option<Arc<rustls::ServerConfig>>, limits: ServerLimits) -> TestServer
where
    S: Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr();
    let stats = Arc::new(ServerStats::default());
    let (trigger, shutdown) = Shutdown::pair();
    let done = tokio::spawn(serve(listener, tls, service, limits, Arc::clone(&stats), shutdown));
    TestServer { addr, stats, trigger, done }
}

/// Sends raw bytes and reads until the peer closes.
pub(crate) async fn exchange(addr: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request).await.unwrap();
    read_to_end(&mut stream).await
}

/// Reads until the peer closes, gracefully or not, for at most two minutes.
pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(120), stream.read_to_end(&mut answer)).await;
    // A reset counts as closing.
    drop(read.expect("the peer closes the connection"));
    String::from_utf8(answer).unwrap()
}

/// A response with a text body.
pub(crate) fn text(text: impl Into<String>) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::from(text.into())))
}

/// Captures the log of this thread until this is dropped.
#[derive(Clone, Default)]
pub(crate) struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    pub(crate) fn start() -> (CapturedLog, tracing::subscriber::DefaultGuard) {
        let log = CapturedLog::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(lines))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
