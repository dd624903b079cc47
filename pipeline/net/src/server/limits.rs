//! What a connection may cost.

use std::time::Duration;

use crate::tls::HttpVersions;

/// The bounds of one server. Each has a default that suits a sidecar and a node agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// What the server speaks.
    pub versions: HttpVersions,
    /// Connections at the same time. One more is accepted and closed at once, counted and said in the log.
    pub max_connections: usize,
    /// Connections at the same time from one address, so that one peer cannot take the places of all others. One more
    /// is treated as one too many in all.
    pub max_connections_per_peer: usize,
    /// Whether a connection too many replaces the one that has been without a request for longest, if there is one. For
    /// servers whose requests take a moment, and where the one who asks now matters more than the one who asked before;
    /// they alone may have the last quarter of the file descriptors.
    pub replace_idle: bool,
    /// Whether a request over HTTP/1 is served to its end although its sender has closed its side of the connection. For
    /// protocols whose senders do not repeat a request: a browser closes together with its page.
    pub serves_closed: bool,
    /// Streams (requests) at the same time on one HTTP/2 connection.
    pub max_concurrent_streams: u32,
    /// From accept to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request's head to its end; also from accept (or the handshake) to
    /// the first bytes.
    pub header_timeout: Duration,
    /// How long a connection may stay open while no request is being handled and no part of a
    /// response is taken by the peer. Larger than the report interval of any client, so that the
    /// usual client keeps its connection.
    pub idle_timeout: Duration,
    /// How often an HTTP/2 connection is pinged; `None` for never.
    pub keepalive_interval: Option<Duration>,
    /// How long the answer to a ping may take before the connection is closed.
    pub keepalive_timeout: Duration,
    /// For how long a connection takes requests, varied by a tenth so that not all clients come back at the same time;
    /// `None` for ever. Clients that stay with one of several servers are spread anew by it.
    pub max_connection_age: Option<Duration>,
    /// How long requests may take that are under way then; `None` as long as they want.
    pub max_connection_age_grace: Option<Duration>,
    /// How long a connection that is told to end may take for it.
    pub close_timeout: Duration,
    /// How long requests in flight may take to end after shutdown.
    pub drain_timeout: Duration,
    /// The read buffer of an HTTP/1 connection and with it the largest request head, in bytes; at
    /// least 8192.
    pub max_head_bytes: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            versions: HttpVersions::Both,
            // The usual limit of open files is 1024, and exporters and files need some.
            max_connections: 768,
            // Behind one address there may be a gateway, or all that a proxy lets through.
            max_connections_per_peer: 384,
            replace_idle: false,
            serves_closed: false,
            max_concurrent_streams: 64,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            keepalive_interval: Some(Duration::from_secs(60)),
            keepalive_timeout: Duration::from_secs(20),
            max_connection_age: None,
            max_connection_age_grace: None,
            close_timeout: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(10),
            max_head_bytes: 16 * 1024,
        }
    }
}
