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

/// Why there is no connection, for a person. Nothing was sent to the destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub(super) String);

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
    },
    /// The connection broke, or the peer does not speak HTTP.
    #[error("the connection broke: {cause}")]
    Broken {
        /// What the transport says.
        cause: String,
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

/// The text of an error from a library, causes included.
pub(super) fn chain(error: impl Into<BoxError>) -> String {
    error_chain(&*error.into())
}
