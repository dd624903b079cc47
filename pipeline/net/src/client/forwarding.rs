//! Forwards requests to another server unchanged, and streams the answers back. Neither is buffered as a whole.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;

use super::connector::{ConnectionPurpose, Connector};
use super::error::{EndpointError, Failure};
use super::http::{HttpClientConfig, failure};
use crate::body::{BodyError, Guarded};
use crate::tls::HttpVersions;

/// Headers that apply to a single connection (RFC 9110, section 7.6.1), or that are set anew for the next one.
const CONNECTION_HEADERS: [HeaderName; 9] = [
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

/// Maximum bytes buffered in one direction of a connection.
const BUFFER: usize = 64 * 1024;

/// Memory that a request takes while it is forwarded, in bytes: the buffers of its two connections.
pub const FORWARDING_BYTES: u64 = 2 * BUFFER as u64;

/// The headers without those that apply to a single connection.
fn without_connection_headers(headers: &HeaderMap) -> HeaderMap {
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        named.flat_map(|names| names.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    let mut headers = headers.clone();
    for name in CONNECTION_HEADERS.iter().chain(&named) {
        headers.remove(name);
    }
    headers
}

/// A body whose beginning was already read.
#[derive(Debug)]
pub struct PartlyReadBody {
    first: Bytes,
    rest: Guarded<Incoming>,
}

impl PartlyReadBody {
    /// Creates a body from the part that was read and the unread rest.
    pub fn new(first: Bytes, rest: Guarded<Incoming>) -> Self {
        Self { first, rest }
    }
}

impl Body for PartlyReadBody {
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

/// Forwards requests over persistent connections. Cheap to clone; clones share the connections.
#[derive(Clone, Debug)]
pub struct ForwardingClient {
    client: Client<Connector, PartlyReadBody>,
    connector: Connector,
    is_grpc: bool,
}

impl ForwardingClient {
    /// Creates a client for HTTP/1.1. Does not connect yet. Only the connection settings of the configuration apply;
    /// the requests' bodies have their own limits of time and size.
    ///
    /// # Errors
    ///
    /// The TLS settings cannot be used.
    pub fn new(config: &HttpClientConfig) -> Result<ForwardingClient, EndpointError> {
        let connector = config.connector(ConnectionPurpose::Http, HttpVersions::Http1)?;
        let client = config.pool().http1_max_buf_size(BUFFER).build(connector.clone());
        Ok(ForwardingClient { client, connector, is_grpc: false })
    }

    /// Creates a client for gRPC calls over HTTP/2; otherwise like [`ForwardingClient::new`].
    ///
    /// # Errors
    ///
    /// The TLS settings cannot be used.
    pub fn grpc(config: &HttpClientConfig) -> Result<ForwardingClient, EndpointError> {
        let connector = config.connector(ConnectionPurpose::Grpc, HttpVersions::Http2)?;
        let client = config.pool().http2_only(true).build(connector.clone());
        Ok(ForwardingClient { client, connector, is_grpc: true })
    }

    /// Forwards a request to `url` with its method, body and headers, except for headers that apply to a single
    /// connection. The answer is returned in the same way, whatever its status.
    ///
    /// # Errors
    ///
    /// No answer arrived, or the request's body was cut short.
    pub async fn pass(&self, url: Uri, request: Request<PartlyReadBody>) -> Result<Response<Incoming>, Failure> {
        let (mut head, body) = request.into_parts();
        head.headers = without_connection_headers(&head.headers);
        if self.is_grpc {
            head.headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        if let Some((proxy, true)) = self.connector.route(&url)
            && let Some(auth) = proxy.basic_auth()
        {
            head.headers.insert(header::PROXY_AUTHORIZATION, auth.clone());
        }
        head.uri = url;
        // hyper negotiates the version for the connection.
        head.version = Version::HTTP_11;
        let mut response =
            self.client.request(Request::from_parts(head, body)).await.map_err(|error| failure(&error))?;
        *response.headers_mut() = without_connection_headers(response.headers());
        Ok(response)
    }
}
