//! Limits on connections.

use std::time::Duration;

use crate::tls::HttpVersions;

/// The limits of one server. The defaults suit a sidecar and a node agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// The HTTP versions to serve.
    pub versions: HttpVersions,
    /// Maximum number of connections. A further one is accepted and closed at once, counted and logged.
    pub max_connections: usize,
    /// Maximum number of connections from one address, so that one peer cannot use up all of them. Further ones are
    /// closed in the same way.
    pub max_connections_per_peer: usize,
    /// Whether a connection beyond the limit replaces the one that has been idle for longest, if there is one. For
    /// servers whose requests are short and whose newest client matters most. Only such servers may use the last
    /// quarter of the file descriptors.
    pub replace_idle: bool,
    /// Maximum concurrent streams (requests) of one HTTP/2 connection.
    pub max_concurrent_streams: u32,
    /// The time limit from accept to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// The time limit from the first byte of a request's head to its end; also from accept (or the handshake) to the
    /// first byte.
    pub header_timeout: Duration,
    /// How long a connection may stay open while no request is being handled and the peer reads no part of a response.
    /// Longer than the report interval of any client, so that clients normally keep their connection.
    pub idle_timeout: Duration,
    /// How often an HTTP/2 connection is pinged; `None` for never.
    pub keepalive_interval: Option<Duration>,
    /// How long the answer to a ping may take before the connection is closed.
    pub keepalive_timeout: Duration,
    /// How long a connection accepts requests, varied by a tenth so that clients do not all reconnect at the same time;
    /// `None` for no limit. Reconnecting distributes clients anew over several servers.
    pub max_connection_age: Option<Duration>,
    /// How long requests may continue after the maximum age; `None` for no limit.
    pub max_connection_age_grace: Option<Duration>,
    /// How long a graceful close of a connection may take.
    pub close_timeout: Duration,
    /// How long requests may continue after the shutdown.
    pub drain_timeout: Duration,
    /// Size of the read buffer of an HTTP/1 connection in bytes, which also limits the request head; at least 8192.
    pub max_head_bytes: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            versions: HttpVersions::Both,
            // The usual limit of open files is 1024, and exporters and files need some of them.
            max_connections: 768,
            // One address may belong to a gateway, or to a proxy with many clients.
            max_connections_per_peer: 384,
            replace_idle: false,
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
