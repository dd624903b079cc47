//! What a server counts about its connections.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one server, shared with whoever publishes them.
#[derive(Debug, Default)]
pub struct ServerStats {
    opened: AtomicU64,
    closed: AtomicU64,
    refused: AtomicU64,
    handshakes_failed: AtomicU64,
    wrong_protocol: AtomicU64,
    timed_out: AtomicU64,
    accepts_failed: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// Connections that are open.
    pub open: u64,
    /// Connections that were served, open ones included.
    pub opened: u64,
    /// Connections closed at once because there were too many.
    pub refused: u64,
    /// TLS handshakes that failed or took too long.
    pub handshakes_failed: u64,
    /// Connections on which another protocol was spoken than is served.
    pub wrong_protocol: u64,
    /// Connections closed because the peer was silent or too slow, or was silent while others wanted its place.
    pub timed_out: u64,
    /// Failures of `accept` itself, such as too many open files.
    pub accepts_failed: u64,
}

impl ServerStats {
    /// The counters now.
    pub fn snapshot(&self) -> StatsSnapshot {
        // `closed` first: read the other way round, a connection could be seen closed but not opened.
        let closed = self.closed.load(Relaxed);
        let opened = self.opened.load(Relaxed);
        StatsSnapshot {
            open: opened.saturating_sub(closed),
            opened,
            refused: self.refused.load(Relaxed),
            handshakes_failed: self.handshakes_failed.load(Relaxed),
            wrong_protocol: self.wrong_protocol.load(Relaxed),
            timed_out: self.timed_out.load(Relaxed),
            accepts_failed: self.accepts_failed.load(Relaxed),
        }
    }

    pub(super) fn opened(&self) -> OpenConnection<'_> {
        self.opened.fetch_add(1, Relaxed);
        OpenConnection(self)
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn handshake_failed(&self) {
        self.handshakes_failed.fetch_add(1, Relaxed);
    }

    /// Counts a connection on which another protocol is spoken than is served.
    pub fn wrong_protocol(&self) {
        self.wrong_protocol.fetch_add(1, Relaxed);
    }

    pub(super) fn timed_out(&self) {
        self.timed_out.fetch_add(1, Relaxed);
    }

    pub(super) fn accept_failed(&self) {
        self.accepts_failed.fetch_add(1, Relaxed);
    }
}

/// Counts a connection as open until it is dropped, however it ends.
pub(super) struct OpenConnection<'a>(&'a ServerStats);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Relaxed);
    }
}
