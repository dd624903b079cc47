//! An HTTP client for payloads: each request is a POST with one small answer.
//!
//! If a TLS server supports HTTP/2 (ALPN), all requests share one connection; otherwise HTTP/1.1 is used, with one
//! connection per concurrent request.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::Scheme;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::{Builder, Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use super::connector::{ConnectionPurpose, Connector, has_sound_port};
use super::error::{ConnectError, EndpointError, Failure};
use super::proxy::Proxies;
use crate::body::{self, BodyLimits, Guarded};
use crate::tls::{HttpVersions, TlsClientConfig};

/// Minimum time for the body of a response, even if its head arrived at the last moment.
const MIN_BODY_TIME: Duration = Duration::from_secs(1);

/// How often an HTTP/2 connection with running requests is pinged, and how long the answer may take.
const PING: Duration = Duration::from_secs(10);

/// Connection settings and timeouts of a client.
#[derive(Clone, Debug)]
pub struct HttpClientConfig {
    /// TLS for https URLs; `None` if every URL is http, which avoids loading the system's authorities (some
    /// milliseconds and a megabyte).
    pub tls: Option<TlsClientConfig>,
    /// The proxies.
    pub proxies: Proxies,
    /// The time limit for everything from the name lookup to the end of the handshake.
    pub connect_timeout: Duration,
    /// The time limit from the start of a request to the head of its response. The body may take the rest of this time,
    /// and at least a second. Once the head has arrived the outcome is known, so an error of the body is not a timeout
    /// of the request, see [`Failure::Response`]. An incomplete head is not a response: hyper passes on nothing of it,
    /// not even the status, before its last line.
    pub timeout: Duration,
    /// Maximum idle connections per host.
    pub max_idle_connections: usize,
    /// Whether servers accept HTTP/2 without negotiation (RFC 9113, section 3.3), with and without TLS.
    pub http2_prior_knowledge: bool,
    /// How long an idle connection is kept. Shorter than the usual idle timeout of load balancers (60 s), so that the
    /// client closes first and no request is sent over a closing connection.
    pub idle_timeout: Duration,
    /// The largest response body in bytes.
    pub max_response_bytes: usize,
    /// Whether a request without `User-Agent` gets profbridge's.
    pub names_itself: bool,
}

impl Default for HttpClientConfig {
    fn default() -> Self {
        HttpClientConfig {
            tls: Some(TlsClientConfig::default()),
            proxies: Proxies::from_env(),
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            max_idle_connections: 4,
            http2_prior_knowledge: false,
            idle_timeout: Duration::from_secs(50),
            max_response_bytes: 64 * 1024,
            names_itself: true,
        }
    }
}

/// A response with its whole body.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status; not a redirect.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, at most [`HttpClientConfig::max_response_bytes`].
    pub body: Bytes,
}

/// Sends requests over persistent connections. Cheap to clone; clones share the connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    client: Client<Connector, Full<Bytes>>,
    connector: Connector,
    timeout: Duration,
    max_response_bytes: usize,
    has_tls: bool,
    names_itself: bool,
}

impl HttpClientConfig {
    /// The connector for these settings. Fails if the TLS settings cannot be used.
    pub(super) fn connector(
        &self,
        purpose: ConnectionPurpose,
        versions: HttpVersions,
    ) -> Result<Connector, EndpointError> {
        let tls = self.tls.as_ref().map(|tls| tls.load(versions)).transpose()?;
        let http2_only = versions == HttpVersions::Http2;
        Ok(Connector::new(purpose, http2_only, tls, self.proxies.clone(), self.connect_timeout))
    }

    /// The connection pool for these settings.
    pub(super) fn pool(&self) -> Builder {
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(self.idle_timeout)
            .pool_max_idle_per_host(self.max_idle_connections)
            // Unlike with HTTP/1.1, a connection stays in use after a request on it timed out. The pings close a dead
            // one.
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PING);
        builder
    }
}

impl HttpClient {
    /// Builds a client; does not connect yet. Using it needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// The TLS settings cannot be used.
    pub fn new(config: &HttpClientConfig) -> Result<HttpClient, EndpointError> {
        let versions = if config.http2_prior_knowledge { HttpVersions::Http2 } else { HttpVersions::Both };
        let connector = config.connector(ConnectionPurpose::Http, versions)?;
        let client = config.pool().http2_only(config.http2_prior_knowledge).build(connector.clone());
        Ok(HttpClient {
            client,
            connector,
            timeout: config.timeout,
            max_response_bytes: config.max_response_bytes,
            has_tls: config.tls.is_some(),
            names_itself: config.names_itself,
        })
    }

    /// Posts `body`. `headers` are added to `User-Agent` (which they may replace), `Host` and `Content-Length`. A
    /// connection that was closed while idle is replaced without an error.
    ///
    /// # Errors
    ///
    /// See [`Failure`]; every status except redirects is a response.
    pub async fn post(&self, url: &Uri, headers: HeaderMap, body: Bytes) -> Result<Response, Failure> {
        self.send(Method::POST, url, headers, body).await
    }

    /// Sends a request with any method, otherwise as [`HttpClient::post`].
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn send(&self, method: Method, url: &Uri, headers: HeaderMap, body: Bytes) -> Result<Response, Failure> {
        let deadline = Instant::now() + self.timeout;
        let response = self.answered(self.request(method, url, headers, body)?, deadline).await?;
        let (head, body) = response.into_parts();
        let left = deadline.saturating_duration_since(Instant::now()).max(MIN_BODY_TIME);
        let limits = BodyLimits { timeout: left, ..BodyLimits::new(self.max_response_bytes) };
        match body::read(body, limits).await {
            Ok(body) => Ok(Response { status: head.status, headers: head.headers, body }),
            Err(cause) => Err(Failure::Response { status: head.status, headers: Box::new(head.headers), cause }),
        }
    }

    /// Gets a response that may be large: the caller reads its body, and `limits` are enforced while reading.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub async fn get(
        &self,
        url: &Uri,
        headers: HeaderMap,
        limits: BodyLimits,
    ) -> Result<http::Response<Guarded<Incoming>>, Failure> {
        let request = self.request(Method::GET, url, headers, Bytes::new())?;
        let response = self.answered(request, Instant::now() + self.timeout).await?;
        Ok(response.map(|body| Guarded::new(body, limits)))
    }

    /// Sends a request and returns the head of its answer with the unread body.
    async fn answered(
        &self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<http::Response<Incoming>, Failure> {
        let answered = tokio::time::timeout_at(deadline, self.client.request(request)).await;
        let answered = answered.map_err(|_| Failure::TimedOut { timeout: self.timeout })?;
        let response = answered.map_err(|error| failure(&error))?;
        match redirect(response.status(), response.headers()) {
            Some(location) => Err(Failure::Redirected { status: response.status(), location }),
            None => Ok(response),
        }
    }

    fn request(
        &self,
        method: Method,
        url: &Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => {}
            Some(scheme) if *scheme == Scheme::HTTPS && self.has_tls => {}
            Some(scheme) if *scheme == Scheme::HTTPS => {
                return Err(Failure::Unsendable("the URL is https but the client is configured for plaintext"));
            }
            _ => return Err(Failure::Unsendable("the URL does not begin with http:// or https://")),
        }
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(Failure::Unsendable("the URL holds user information, which belongs into a header"));
        }
        if !has_sound_port(url) {
            return Err(Failure::Unsendable("the port is not a number from 0 to 65535"));
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = url.clone();
        *request.headers_mut() = headers;
        let headers = request.headers_mut();
        if self.names_itself {
            headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(crate::USER_AGENT));
        }
        if let Some((proxy, true)) = self.connector.route(url)
            && let Some(auth) = proxy.basic_auth()
        {
            headers.insert(header::PROXY_AUTHORIZATION, auth.clone());
        }
        Ok(request)
    }
}

/// Distinguishes a failure to connect from a connection that broke.
pub(super) fn failure(error: &Error) -> Failure {
    let source = std::error::Error::source(error);
    if let Some(cause) = source.and_then(|cause| cause.downcast_ref::<ConnectError>()) {
        return Failure::Connect(cause.clone());
    }
    Failure::Broken { cause: crate::error_chain(error) }
}

/// The target of a redirect, without the parts of the URL that may contain secrets.
fn redirect(status: StatusCode, headers: &HeaderMap) -> Option<String> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = headers.get(header::LOCATION).and_then(|value| Uri::try_from(value.as_bytes()).ok());
    Some(match location {
        None => "an unreadable location".to_owned(),
        Some(uri) => match (uri.scheme_str(), uri.host()) {
            (scheme, Some(host)) => {
                let scheme = scheme.map(|scheme| format!("{scheme}://")).unwrap_or_default();
                let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
                format!("{scheme}{host}{port}")
            }
            (_, None) => "elsewhere on the same host".to_owned(),
        },
    })
}
