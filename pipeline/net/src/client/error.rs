//! What can go wrong with a client, sorted by what the caller does about it.

use std::time::Duration;

use crate::tls::TlsError;
use crate::{BoxError, error_chain};

/// Why a client cannot be built. Permanent: the configuration has to change.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The endpoint cannot be understood. It is not quoted, since a URL can hold a secret.
    #[error("the endpoint cannot be used: {0}")]
    Malformed(&'static str),
    /// The TLS settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why there is no connection. Nothing was sent to the destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The destination, or the proxy where one is named, cannot be reached.
    #[error("cannot connect to {to}: {cause}")]
    Tcp {
        /// Host and port.
        to: String,
        /// What the system says.
        cause: String,
    },
    /// A proxy refuses or breaks off.
    #[error("the proxy {proxy} does not open a tunnel to {to}: {cause}")]
    Proxy {
        /// The proxy's host and port.
        proxy: String,
        /// The destination's host and port.
        to: String,
        /// What it answered.
        cause: String,
    },
    /// A proxy of a kind that is not supported.
    #[error("the proxy {proxy} is of the kind {scheme}, only http and https proxies are supported")]
    ProxyKind {
        /// The proxy's host and port.
        proxy: String,
        /// The scheme of its URL.
        scheme: String,
    },
    /// The TLS handshake fails, also because of a certificate.
    #[error("tls handshake with {to} failed: {cause}")]
    Tls {
        /// Host and port.
        to: String,
        /// What rustls says.
        cause: String,
    },
    /// The server does not speak HTTP/2, which gRPC needs.
    #[error("{to} does not offer HTTP/2 (ALPN h2), which gRPC needs; this may be an HTTP endpoint")]
    NoHttp2 {
        /// Host and port.
        to: String,
    },
    /// The endpoint's scheme is https but the client was built without TLS, or the host is no name.
    #[error("{to} cannot be reached with TLS: {cause}")]
    Name {
        /// Host and port.
        to: String,
        /// The rule that is broken.
        cause: String,
    },
    /// It took too long, the proxy and the handshake included.
    #[error("no connection to {to} within {timeout:?}")]
    TimedOut {
        /// Host and port.
        to: String,
        /// The configured timeout.
        timeout: Duration,
    },
}

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The peer has not seen it: sending it again cannot make a duplicate.
    No,
    /// The peer may have seen and handled it.
    Maybe,
    /// The peer answered.
    Yes,
}

/// Why a request has no usable response.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The request cannot be made: no absolute http or https URL, or https without TLS. Permanent.
    #[error("the request cannot be sent: {0}")]
    Unsendable(&'static str),
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The whole took longer than allowed.
    #[error("no response within {timeout:?}")]
    TimedOut {
        /// The configured timeout.
        timeout: Duration,
        /// Whether there was a connection.
        reached: Reached,
    },
    /// The connection broke, or the peer does not speak HTTP.
    #[error("the connection broke: {cause}")]
    Broken {
        /// What the transport says.
        cause: String,
        /// Whether the request was begun.
        reached: Reached,
    },
    /// The peer sends elsewhere. Not followed: a redirected POST becomes a GET or sends the payload
    /// and its credentials to another host.
    #[error("the server redirects ({status}) to {location}; set the endpoint to where it should go")]
    Redirected {
        /// The status, 301, 302, 303, 307 or 308.
        status: http::StatusCode,
        /// The new host and port, or "elsewhere on the same host", or "an unreadable location".
        location: String,
    },
    /// The response's head came but its body is larger than allowed, too slow, or broke off.
    #[error("the response ({status}) cannot be read: {cause}")]
    Response {
        /// The status, which is known.
        status: http::StatusCode,
        /// The headers, which are known as well: a server that is overloaded may say in them when to come back.
        headers: Box<http::HeaderMap>,
        /// Why the body cannot be had.
        cause: crate::body::BodyError,
    },
}

impl Failure {
    /// Whether the request may have reached the peer.
    pub fn reached(&self) -> Reached {
        match self {
            Failure::Unsendable(_) | Failure::Connect(_) => Reached::No,
            Failure::TimedOut { reached, .. } | Failure::Broken { reached, .. } => *reached,
            Failure::Redirected { .. } | Failure::Response { .. } => Reached::Yes,
        }
    }
}

/// The text of an error from a library, causes included.
pub(super) fn chain(error: impl Into<BoxError>) -> String {
    error_chain(&*error.into())
}
