//! Who sent a request.

use std::net::SocketAddr;

/// The peer of a connection; every request carries it as an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address of the peer's socket. Behind a proxy this is the proxy.
    pub addr: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
}
