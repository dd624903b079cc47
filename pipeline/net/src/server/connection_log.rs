//! Log lines about connections that are not served: failed handshakes, wrong protocols, and too many connections.
//!
//! A client whose certificate is refused learns little: in TLS 1.3 its own handshake is over by then, and it only sees
//! that the connection ends. So the server has to log the reason. But everybody who reaches the port can cause failed
//! handshakes and open connections, so there is one line a minute per kind, with one peer and the number of others.

use std::collections::HashSet;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::ServerLimits;
use super::slots::NoRoom;
use crate::LogGate;

/// Minimum time between two lines of one kind.
const PAUSE: Duration = Duration::from_secs(60);

/// Maximum number of peers that are stored as already logged. Beyond this number all are dropped, and may be logged
/// again.
const MAX_LOGGED_PEERS: usize = 1024;

/// A protocol that a peer uses although the port serves another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WrongProtocol {
    /// TLS, on a port for plaintext.
    Tls,
    /// Plaintext, on a port for TLS.
    Plaintext,
    /// HTTP/1, on a port for HTTP/2 only.
    Http1,
}

impl WrongProtocol {
    /// Recognises a wrong protocol by the first bytes; `None` if the protocol may be right.
    pub(super) fn of(first: &[u8], only_http2: bool) -> Option<Self> {
        match first {
            // A handshake record of any version (RFC 8446, section 5.1).
            [0x16, 0x03, ..] => Some(Self::Tls),
            [b'A'..=b'Z', ..] if only_http2 && !first.starts_with(b"PRI") => Some(Self::Http1),
            _ => None,
        }
    }

    /// The text of the log line: what happened, and what to change.
    fn advice(self) -> &'static str {
        match self {
            Self::Tls => {
                "a peer speaks TLS to a port without it: give the client http:// or an insecure connection, or the \
                 receiver `tls`"
            }
            Self::Plaintext => {
                "a peer speaks without TLS to a port that has it: give the client https:// or a secure connection, or \
                 take `tls` from the receiver"
            }
            Self::Http1 => {
                "a peer speaks HTTP/1 to a port for gRPC: give the client the port for HTTP, 4318 for OTLP, or the \
                 protocol grpc (OTEL_EXPORTER_OTLP_PROTOCOL)"
            }
        }
    }
}

/// The log lines of one listener.
pub(super) struct ConnectionLog {
    endpoint: String,
    /// Peers that were logged.
    logged: Mutex<HashSet<(IpAddr, WrongProtocol)>>,
    handshakes: LogGate,
    /// The gates of the log lines, indexed by [`NoRoom`].
    no_room: [LogGate; 3],
}

impl ConnectionLog {
    pub(super) fn new(endpoint: &str) -> Self {
        let (handshakes, no_room) = (LogGate::new(PAUSE), [PAUSE; 3].map(LogGate::new));
        Self { endpoint: endpoint.to_owned(), logged: Mutex::default(), handshakes, no_room }
    }

    /// Logs that a handshake with `peer` failed.
    pub(super) fn handshake(&self, peer: SocketAddr, reason: &dyn Display) {
        let endpoint = &*self.endpoint;
        match self.handshakes.pass() {
            None => tracing::debug!(endpoint, %peer, %reason, "tls handshake failed"),
            Some(0) => tracing::warn!(endpoint, %peer, %reason, "tls handshake failed"),
            Some(others) => tracing::warn!(endpoint, %peer, %reason, others, "tls handshakes failed"),
        }
    }

    /// Logs that a peer uses the wrong protocol, once per peer, because its clients retry forever.
    pub(super) fn wrong_protocol(&self, peer: SocketAddr, spoken: WrongProtocol) {
        let (endpoint, peer) = (&*self.endpoint, peer.ip().to_canonical());
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= MAX_LOGGED_PEERS {
            logged.clear();
        }
        if logged.insert((peer, spoken)) {
            tracing::warn!(endpoint, %peer, "{}", spoken.advice());
        }
    }

    /// Logs that a connection of `peer` was closed at once for lack of room.
    pub(super) fn no_room(&self, peer: SocketAddr, none: NoRoom, limits: &ServerLimits) {
        let (endpoint, of_peer) = (&*self.endpoint, peer.ip().to_canonical());
        let Some(others) = self.no_room[none as usize].pass() else { return };
        let (all, each) = (limits.max_connections, limits.max_connections_per_peer);
        match none {
            NoRoom::Full => tracing::warn!(
                endpoint, %peer, others,
                "{all} connections are open, which is the bound (max_connections): further ones are closed at once"
            ),
            NoRoom::FullOfPeer => tracing::warn!(
                endpoint, peer = %of_peer, others,
                "a peer has {each} connections, which is the bound for one (max_connections_per_peer): its further ones \
                 are closed at once"
            ),
            NoRoom::FewFiles => tracing::warn!(
                endpoint, %peer, others,
                "three quarters of the files that this process may open are open: further connections are closed at once, \
                 so that exporters, metrics and health have the rest; raise the limit (ulimit -n, LimitNOFILE in systemd)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: wrong protocols are recognised by their first bytes, and the right ones never are.
    #[test]
    fn spoken() {
        assert_eq!(WrongProtocol::of(&[0x16, 3, 1, 2, 0], false), Some(WrongProtocol::Tls));
        assert_eq!(WrongProtocol::of(&[0x16, 3, 1, 2, 0], true), Some(WrongProtocol::Tls));
        assert_eq!(WrongProtocol::of(b"POST", true), Some(WrongProtocol::Http1));
        for (first, only_http2) in [(&b"POST"[..], false), (b"PRI ", true), (b"PRI ", false), (b"", true), (b"x", true)]
        {
            assert_eq!(WrongProtocol::of(first, only_http2), None, "{first:?}");
        }
    }
}
