//! Requests that go on to another server as they came, and its answers on the way back, neither of them held.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;

use super::connector::{Connector, Purpose};
use super::error::{EndpointError, Failure};
use super::http::{HttpClientConfig, failure};
use crate::body::{BodyError, Guarded};
use crate::tls::HttpVersions;

/// Headers that are about one connection (RFC 9110, section 7.6.1), or written anew for the next one.
const OF_ONE_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The most bytes that wait in one direction of a connection.
const BUFFER: usize = 64 * 1024;

/// What a request takes while it is handed on, in bytes: what waits in its two connections.
pub const IN_PASSING: u64 = 2 * BUFFER as u64;

/// The headers without those that are about one connection.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        named.flat_map(|names| names.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    let mut headers = headers.clone();
    for name in OF_ONE_CONNECTION.iter().chain(&named) {
        headers.remove(name);
    }
    headers
}

/// A body of which a part was read already.
#[derive(Debug)]
pub struct Resumed {
    first: Bytes,
    rest: Guarded<Incoming>,
}

impl Resumed {
    /// What was read of a body, and what was not.
    pub fn new(first: Bytes, rest: Guarded<Incoming>) -> Self {
        Self { first, rest }
    }
}

impl Body for Resumed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.first)))));
        }
        Pin::new(&mut self.rest).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, first) = (self.rest.size_hint(), self.first.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + first);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + first);
        }
        hint
    }
}

/// Hands requests on over kept-alive connections. Cheap to clone; clones share the connections.
#[derive(Clone, Debug)]
pub struct Passage {
    client: Client<Connector, Resumed>,
    connector: Connector,
    is_grpc: bool,
}

impl Passage {
    /// Hands on over HTTP/1.1. Connects nowhere yet. Takes of the configuration how it connects; there is no limit of
    /// time or size but that of the requests' bodies.
    ///
    /// # Errors
    /// The TLS settings cannot be used.
    pub fn new(config: &HttpClientConfig) -> Result<Passage, EndpointError> {
        let connector = config.connector(Purpose::Http, HttpVersions::Http1)?;
        let client = config.pool().http1_max_buf_size(BUFFER).build(connector.clone());
        Ok(Passage { client, connector, is_grpc: false })
    }

    /// Hands calls of gRPC on, over HTTP/2; otherwise as [`Passage::new`].
    ///
    /// # Errors
    /// The TLS settings cannot be used.
    pub fn grpc(config: &HttpClientConfig) -> Result<Passage, EndpointError> {
        let connector = config.connector(Purpose::Grpc, HttpVersions::Http2)?;
        let client = config.pool().http2_only(true).build(connector.clone());
        Ok(Passage { client, connector, is_grpc: true })
    }

    /// Hands a request on to `url`: with its method, its body and its headers, but for those that are about one
    /// connection. The same holds for the answer, whatever its status.
    ///
    /// # Errors
    /// Nobody answers, or the request's body breaks off.
    pub async fn pass(&self, url: Uri, request: Request<Resumed>) -> Result<Response<Incoming>, Failure> {
        let (mut head, body) = request.into_parts();
        head.headers = passed_on(&head.headers);
        if self.is_grpc {
            head.headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        if let Some((proxy, true)) = self.connector.route(&url)
            && let Some(auth) = proxy.basic_auth()
        {
            head.headers.insert(header::PROXY_AUTHORIZATION, auth.clone());
        }
        head.uri = url;
        // What is spoken is the connection's.
        head.version = Version::HTTP_11;
        let mut response =
            self.client.request(Request::from_parts(head, body)).await.map_err(|error| failure(&error))?;
        *response.headers_mut() = passed_on(response.headers());
        Ok(response)
    }
}
