//! Opens a connection for a URL, with or without proxy, tunnel and TLS. One deadline covers all steps.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::error::{ConnectError, chain};
use super::proxy::Proxies;
use super::stream::Stream;
use crate::tls::{ClientTls, server_name, speaks_plaintext};

/// The protocol over the connection, which decides how a proxy is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPurpose {
    /// HTTP/1.1. Plain requests are forwarded by the proxy, encrypted ones go through a tunnel.
    Http,
    /// gRPC, always through a tunnel: forwarding proxies do not support HTTP/2.
    Grpc,
}

/// Opens connections. The URL's scheme decides whether they are encrypted.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    tcp: HttpConnector,
    tls: Option<ClientTls>,
    proxies: Proxies,
    purpose: ConnectionPurpose,
    /// Whether the client uses HTTP/2 without negotiation.
    http2_only: bool,
    timeout: Duration,
}

type Opening = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>;

impl Connector {
    pub(super) fn new(
        purpose: ConnectionPurpose,
        http2_only: bool,
        tls: Option<ClientTls>,
        proxies: Proxies,
        timeout: Duration,
    ) -> Connector {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // The timeout is shared between several addresses, so that an unreachable first one leaves time for the others.
        tcp.set_connect_timeout(Some(timeout));
        // Detects a vanished peer even while nothing is sent.
        tcp.set_keepalive(Some(Duration::from_secs(60)));
        Connector { tcp, tls, proxies, purpose, http2_only, timeout }
    }

    /// The proxy for `destination`, and whether it forwards requests instead of opening a tunnel.
    pub(super) fn route(&self, destination: &Uri) -> Option<(Intercept, bool)> {
        let encrypted = destination.scheme() == Some(&Scheme::HTTPS);
        match self.purpose {
            ConnectionPurpose::Http => self.proxies.intercept(destination).map(|proxy| (proxy, !encrypted)),
            ConnectionPurpose::Grpc => {
                // gRPC uses the HTTPS proxy for plaintext too, since it tunnels in both cases (grpc-go
                // internal/resolver/delegatingresolver); gRPC core then tries http_proxy.
                let tunnelled = with_scheme(destination, Scheme::HTTPS);
                let found = self.proxies.intercept(&tunnelled);
                let found = if encrypted { found } else { found.or_else(|| self.proxies.intercept(destination)) };
                found.map(|proxy| (proxy, false))
            }
        }
    }

    async fn open(self, destination: Uri) -> Result<Stream, ConnectError> {
        let to = host_and_port(&destination);
        let encrypted = destination.scheme() == Some(&Scheme::HTTPS);
        let stream = match self.route(&destination) {
            None => self.tcp(&destination).await?,
            Some((proxy, true)) => return Ok(self.to_proxy(&proxy).await?.forwarded()),
            Some((proxy, false)) => self.tunnel(&proxy, &destination).await?,
        };
        if !encrypted {
            return Ok(stream.plain(self.http2_only));
        }
        let Some(tls) = &self.tls else {
            return Err(without_tls(&to, "the client is configured for plaintext"));
        };
        let host = destination.host().unwrap_or_default();
        let stream = handshake(tls, &to, host, stream).await?;
        if self.purpose == ConnectionPurpose::Grpc && !stream.is_http2() {
            let what = "does not offer HTTP/2 (ALPN h2), which gRPC needs; this may be an HTTP endpoint";
            return Err(ConnectError(format!("{to} {what}")));
        }
        Ok(stream)
    }

    async fn tcp(&self, to: &Uri) -> Result<Stream, ConnectError> {
        let mut tcp = self.tcp.clone();
        match tcp.call(to.clone()).await {
            Ok(stream) => Ok(Stream::new(stream)),
            Err(error) => Err(ConnectError(format!("cannot connect to {}: {}", host_and_port(to), chain(error)))),
        }
    }

    /// Connects to the proxy itself, possibly with TLS.
    async fn to_proxy(&self, proxy: &Intercept) -> Result<Stream, ConnectError> {
        let to = host_and_port(proxy.uri());
        match proxy.uri().scheme_str() {
            Some("http") => self.tcp(proxy.uri()).await,
            Some("https") => {
                let plaintext = || without_tls(&to, "the client is configured for plaintext");
                let tls = self.tls.as_ref().ok_or_else(plaintext)?;
                let stream = self.tcp(proxy.uri()).await?;
                // The name override and the ALPN names are for the destination, not for the proxy.
                let mut config = (*tls.config).clone();
                config.alpn_protocols = vec![b"http/1.1".to_vec()];
                let tls = ClientTls { config: config.into(), server_name: None };
                handshake(&tls, &to, proxy.uri().host().unwrap_or_default(), stream).await
            }
            scheme => {
                let scheme = scheme.unwrap_or("unknown");
                let what = "only http and https proxies are supported";
                Err(ConnectError(format!("the proxy {to} is of the kind {scheme}, {what}")))
            }
        }
    }

    async fn tunnel(&self, proxy: &Intercept, destination: &Uri) -> Result<Stream, ConnectError> {
        let opened = self.to_proxy(proxy).await?;
        let mut tunnel = Tunnel::new(proxy.uri().clone(), OpenedStream(Some(opened)));
        if let Some(auth) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(auth.clone());
        }
        // The tunnel needs a port; without one in the URL it is 443, also for plaintext.
        let tunnelled = with_port(destination);
        tunnel.call(tunnelled).await.map_err(|error| {
            let (proxy, to) = (host_and_port(proxy.uri()), host_and_port(destination));
            ConnectError(format!("the proxy {proxy} does not open a tunnel to {to}: {}", chain(error)))
        })
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = Opening;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, destination: Uri) -> Opening {
        let connector = self.clone();
        Box::pin(async move {
            let timeout = connector.timeout;
            let to = host_and_port(&destination);
            match tokio::time::timeout(timeout, connector.open(destination)).await {
                Ok(opened) => opened,
                Err(_) => Err(ConnectError(format!("no connection to {to} within {timeout:?}"))),
            }
        })
    }
}

/// Passes an open connection to [`Tunnel`], which expects to open it itself.
struct OpenedStream(Option<Stream>);

impl Service<Uri> for OpenedStream {
    type Response = Stream;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<Stream, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        std::future::ready(self.0.take().ok_or_else(|| std::io::ErrorKind::NotConnected.into()))
    }
}

fn without_tls(to: &str, cause: &str) -> ConnectError {
    ConnectError(format!("{to} cannot be reached with TLS: {cause}"))
}

async fn handshake(tls: &ClientTls, to: &str, host: &str, stream: Stream) -> Result<Stream, ConnectError> {
    let name = match &tls.server_name {
        Some(name) => name.clone(),
        None => server_name(host).map_err(|error| without_tls(to, &error.to_string()))?,
    };
    let connector = TlsConnector::from(tls.config.clone());
    match connector.connect(name, TokioIo::new(stream)).await {
        Ok(stream) => {
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            Ok(Stream::new(TokioIo::new(stream)).http2(http2))
        }
        Err(error) => {
            let spoken = speaks_plaintext(&error);
            let hint = if spoken { "; the server speaks no TLS: use http:// or `tls.insecure: true`" } else { "" };
            Err(ConnectError(format!("tls handshake with {to} failed: {}{hint}", chain(error))))
        }
    }
}

/// The host and the port of a URL, by default the scheme's port. These are the only parts of a URL that an error may
/// contain.
pub fn host_and_port(uri: &Uri) -> String {
    let host = uri.host().unwrap_or("an unnamed host");
    format!("{host}:{}", port(uri))
}

fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 })
}

/// Whether the port is absent or a number. `Uri` accepts other text too and then reports no port, so the scheme's
/// default would silently be used.
pub(super) fn has_sound_port(uri: &Uri) -> bool {
    let Some(authority) = uri.authority() else { return true };
    let after_host = authority.as_str().rsplit_once(authority.host()).map_or("", |(_, rest)| rest);
    after_host.is_empty() || authority.port_u16().is_some()
}

fn with_port(uri: &Uri) -> Uri {
    with_scheme(uri, uri.scheme().cloned().unwrap_or(Scheme::HTTP))
}

/// The URL with another scheme, without path and user information, with an explicit port.
pub(super) fn with_scheme(uri: &Uri, scheme: Scheme) -> Uri {
    Uri::builder()
        .scheme(scheme)
        .authority(host_and_port(uri))
        .path_and_query("/")
        .build()
        // The host was parsed before, so parsing it again cannot fail.
        .unwrap_or_else(|_| uri.clone())
}
