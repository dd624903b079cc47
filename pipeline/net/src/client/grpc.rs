//! A gRPC channel: one HTTP/2 connection that opens on demand and reconnects.

use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use super::connector::{ConnectionPurpose, Connector, has_sound_port, with_scheme};
use super::error::EndpointError;
use super::proxy::Proxies;
use crate::tls::{HttpVersions, TlsClientConfig};

/// The configuration of a channel.
#[derive(Clone, Debug)]
pub struct GrpcClientConfig {
    /// `host:port`, with `http://` (plaintext) or `https://` (TLS) in front or, as in gRPC, without a scheme; then
    /// `tls.insecure` decides. The scheme `dns:` is accepted and ignored.
    pub endpoint: String,
    /// The TLS settings.
    pub tls: TlsClientConfig,
    /// The proxies.
    pub proxies: Proxies,
    /// The time limit for everything from the name lookup to the end of the handshake.
    pub connect_timeout: Duration,
}

/// How often a connection with running calls is pinged, and how long the answer may take. Servers close a connection
/// that pings more often than they allow; by gRPC's default this is once in five minutes without a call.
const PING: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));

impl GrpcClientConfig {
    /// The defaults for an endpoint: 10 s to connect, a ping every 60 s during calls, the proxies of the environment.
    pub fn new(endpoint: impl Into<String>) -> GrpcClientConfig {
        GrpcClientConfig {
            endpoint: endpoint.into(),
            tls: TlsClientConfig::default(),
            proxies: Proxies::from_env(),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// Builds a channel that connects at its first call and again whenever the connection is lost. The caller is
/// responsible for call deadlines and backoff. Must be called within a tokio runtime.
///
/// # Errors
///
/// The endpoint or the TLS settings cannot be used.
pub fn grpc_channel(config: &GrpcClientConfig) -> Result<Channel, EndpointError> {
    let destination = grpc_destination(&config.endpoint, config.tls.insecure)?;
    let encrypted = destination.scheme_str() == Some("https");
    let tls = if encrypted { Some(config.tls.load(HttpVersions::Http2)?) } else { None };
    let connector = Connector::new(ConnectionPurpose::Grpc, true, tls, config.proxies.clone(), config.connect_timeout);
    // tonic refuses https unless its own TLS is used. So it gets a plaintext URL as the destination, and the real URL
    // as the origin, which appears in its requests.
    let refused = |_| EndpointError::Malformed("tonic refuses it");
    let plain = with_scheme(&destination, Scheme::HTTP);
    let endpoint = Endpoint::from(plain).origin(destination.clone()).user_agent(crate::USER_AGENT).map_err(refused)?;
    let endpoint = endpoint.http2_keep_alive_interval(PING.0).keep_alive_timeout(PING.1);
    Ok(endpoint.connect_with_connector_lazy(FixedDestination { connector, destination }))
}

/// Always connects to the same destination.
struct FixedDestination {
    connector: Connector,
    destination: Uri,
}

impl Service<Uri> for FixedDestination {
    type Response = <Connector as Service<Uri>>::Response;
    type Error = <Connector as Service<Uri>>::Error;
    type Future = <Connector as Service<Uri>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        self.connector.call(self.destination.clone())
    }
}

/// The URL of a gRPC endpoint: scheme, host and port. Without a scheme, `insecure` decides about TLS.
///
/// # Errors
///
/// The endpoint cannot be used.
pub fn grpc_destination(endpoint: &str, insecure: bool) -> Result<Uri, EndpointError> {
    use EndpointError::Malformed;
    let endpoint = endpoint.strip_prefix("dns:").map_or(endpoint, |rest| rest.trim_start_matches('/'));
    let (scheme, rest) = match endpoint.split_once("://") {
        Some(("http", rest)) => ("http", rest),
        Some(("https", rest)) => ("https", rest),
        Some(_) => return Err(Malformed("the scheme is not http, https or dns")),
        None if endpoint.starts_with("unix:") => return Err(Malformed("unix sockets are not supported")),
        None => (if insecure { "http" } else { "https" }, endpoint),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.is_empty() || authority.starts_with(':') {
        return Err(Malformed("the host is missing"));
    }
    if authority.contains('@') {
        return Err(Malformed("user information belongs into a header"));
    }
    if authority.contains(['/', '?', '#']) {
        return Err(Malformed("gRPC has no path, use host:port"));
    }
    let built = Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build();
    built.ok().filter(has_sound_port).ok_or(Malformed("it is not host:port"))
}

#[cfg(test)]
mod tests {
    use super::grpc_destination;

    /// Guarantees: the scheme decides about TLS; without one `insecure` does.
    #[test]
    fn the_scheme_decides() {
        let url = |endpoint, insecure| grpc_destination(endpoint, insecure).unwrap().to_string();
        assert_eq!(url("collector:4317", false), "https://collector:4317/");
        assert_eq!(url("collector:4317", true), "http://collector:4317/");
        assert_eq!(url("https://collector:4317", true), "https://collector:4317/");
        assert_eq!(url("http://collector:4317/", false), "http://collector:4317/");
        assert_eq!(url("dns:///collector:4317", true), "http://collector:4317/");
        assert_eq!(url("[::1]:4317", true), "http://[::1]:4317/");
    }

    /// Guarantees: a text other than host and port is refused with an error that names the rule and never quotes the
    /// text.
    #[test]
    fn malformed_endpoints_are_refused() {
        for (endpoint, rule) in [
            ("", "the host is missing"),
            (":4317", "the host is missing"),
            ("unix:/run/otlp.sock", "unix sockets"),
            ("ftp://collector", "the scheme"),
            ("https://secret@collector:4317", "user information"),
            ("https://collector:4317/v1?secret", "gRPC has no path"),
            ("collector:port", "not host:port"),
            ("collector:99999", "not host:port"),
            ("[::1]:", "not host:port"),
        ] {
            let error = grpc_destination(endpoint, false).unwrap_err().to_string();
            assert!(error.contains(rule), "{endpoint}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
