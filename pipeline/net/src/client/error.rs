//! Client errors, grouped by what the caller has to do about them.

use std::time::Duration;

use crate::tls::TlsError;
use crate::{BoxError, error_chain};

/// Why a client cannot be built. Permanent: the configuration has to change.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The endpoint is malformed. The error does not quote it, because a URL may contain a secret.
    #[error("the endpoint cannot be used: {0}")]
    Malformed(&'static str),
    /// The TLS settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The reason why there is no connection, for a person. Nothing was sent to the destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub(super) String);

/// Why a request got no usable response.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The request cannot be sent: its URL is not an absolute http or https URL, or is https without TLS. Permanent.
    #[error("the request cannot be sent: {0}")]
    Unsendable(&'static str),
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The request took longer than the timeout.
    #[error("no response within {timeout:?}")]
    TimedOut {
        /// The configured timeout.
        timeout: Duration,
    },
    /// The connection broke, or the peer does not speak HTTP.
    #[error("the connection broke: {cause}")]
    Broken {
        /// The transport's error.
        cause: String,
    },
    /// The peer redirects. Redirects are not followed, because a redirected POST becomes a GET, or sends the payload
    /// and its credentials to another host.
    #[error("the server redirects ({status}) to {location}; set the endpoint to where it should go")]
    Redirected {
        /// The status, 301, 302, 303, 307 or 308.
        status: http::StatusCode,
        /// The new host and port, or "elsewhere on the same host", or "an unreadable location".
        location: String,
    },
    /// The head of the response arrived, but its body is too large, too slow, or cut short.
    #[error("the response ({status}) cannot be read: {cause}")]
    Response {
        /// The received status.
        status: http::StatusCode,
        /// The received headers: an overloaded server may say in them when to retry.
        headers: Box<http::HeaderMap>,
        /// Why the body could not be read.
        cause: crate::body::BodyError,
    },
}

/// The text of a library's error, causes included.
pub(super) fn chain(error: impl Into<BoxError>) -> String {
    error_chain(&*error.into())
}
