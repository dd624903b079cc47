//! An HTTP client for payloads: one POST, one small answer.
//!
//! Over TLS a server that speaks HTTP/2 (ALPN) gets all requests over one connection; others get HTTP/1.1, over as many
//! connections as requests are under way.

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

use super::connector::{Connector, Purpose, has_sound_port};
use super::error::{ConnectError, EndpointError, Failure};
use super::proxy::Proxies;
use crate::body::{self, BodyLimits, Guarded};
use crate::tls::{HttpVersions, TlsClientConfig};

/// What the body of a response may take at least, where its head came at the last moment.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// How often a connection over HTTP/2 with requests under way is tested, and how long it may take to answer.
const PING: Duration = Duration::from_secs(10);

/// How a client connects and waits.
#[derive(Clone, Debug)]
pub struct HttpClientConfig {
    /// TLS for https URLs; `None` where every URL is http, which saves reading the system's
    /// authorities (some milliseconds and a megabyte).
    pub tls: Option<TlsClientConfig>,
    /// The proxies.
    pub proxies: Proxies,
    /// From the name lookup to the end of the handshake.
    pub connect_timeout: Duration,
    /// From the start of a request to the head of its response; the body may take what is left of it, and a second in
    /// any case. Once the head is there the outcome is known, so nothing that happens to the body is a timeout of the
    /// request, see [`Failure::Response`]. A head that is not complete by then is no response: hyper hands over nothing
    /// of it before its last line, not the status either.
    pub timeout: Duration,
    /// Idle connections that are kept for each host.
    pub max_idle_connections: usize,
    /// Whether servers speak HTTP/2 without being asked (RFC 9113, section 3.3), over TLS and without it.
    pub http2_prior_knowledge: bool,
    /// How long an idle connection is kept. Below the usual idle timeout of load balancers (60 s),
    /// so that the client closes first and no request runs into a closing connection.
    pub idle_timeout: Duration,
    /// The largest response body in bytes.
    pub max_response_bytes: usize,
    /// Whether a request that names no `User-Agent` gets profbridge's.
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

/// Sends requests over kept-alive connections. Cheap to clone; clones share the connections.
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
    /// How connections are made. Fails if the TLS settings cannot be used.
    pub(super) fn connector(&self, purpose: Purpose, versions: HttpVersions) -> Result<Connector, EndpointError> {
        let tls = self.tls.as_ref().map(|tls| tls.load(versions)).transpose()?;
        Ok(Connector::new(purpose, tls, self.proxies.clone(), self.connect_timeout))
    }

    /// How connections are kept.
    pub(super) fn pool(&self) -> Builder {
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(self.idle_timeout)
            .pool_max_idle_per_host(self.max_idle_connections)
            // Unlike in HTTP/1.1, a connection on which a request timed out takes the next. One that is dead ends here.
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PING);
        builder
    }
}

impl HttpClient {
    /// Builds a client; connects nowhere yet. Needs a tokio runtime when it is used.
    ///
    /// # Errors
    /// The TLS settings cannot be used.
    pub fn new(config: &HttpClientConfig) -> Result<HttpClient, EndpointError> {
        let versions = if config.http2_prior_knowledge { HttpVersions::Http2 } else { HttpVersions::Both };
        let connector = config.connector(Purpose::Http, versions)?;
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

    /// Posts `body`. `headers` come on top of `User-Agent` (which they may replace), `Host` and
    /// `Content-Length`. A connection that was closed while idle is replaced without an error.
    ///
    /// # Errors
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
        let left = deadline.saturating_duration_since(Instant::now()).max(ANSWER_PATIENCE);
        let limits = BodyLimits { timeout: left, ..BodyLimits::new(self.max_response_bytes) };
        match body::read(body, limits).await {
            Ok(body) => Ok(Response { status: head.status, headers: head.headers, body }),
            Err(cause) => Err(Failure::Response { status: head.status, headers: Box::new(head.headers), cause }),
        }
    }

    /// Gets what may be large: the body is left to whoever reads it, and `limits` guard it.
    ///
    /// # Errors
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

    /// The head of the answer to a request, and its body unread.
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

/// Tells a connection that was never there from one that broke.
pub(super) fn failure(error: &Error) -> Failure {
    let source = std::error::Error::source(error);
    if let Some(cause) = source.and_then(|cause| cause.downcast_ref::<ConnectError>()) {
        return Failure::Connect(cause.clone());
    }
    Failure::Broken { cause: crate::error_chain(error) }
}

/// Where a redirect leads, without the parts of the URL that can hold secrets.
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
