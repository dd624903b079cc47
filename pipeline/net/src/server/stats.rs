//! What a server counts about its connections.

use std::sync::{Mutex, PoisonError};

/// Counters of one server, shared with whoever publishes them.
#[derive(Debug, Default)]
pub struct ServerStats(Mutex<StatsSnapshot>);

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
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut StatsSnapshot)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn opened(&self) -> OpenConnection<'_> {
        self.count(|stats| {
            stats.opened += 1;
            stats.open += 1;
        });
        OpenConnection(self)
    }

    /// Counts a connection on which another protocol is spoken than is served.
    pub fn wrong_protocol(&self) {
        self.count(|stats| stats.wrong_protocol += 1);
    }
}

/// Counts a connection as open until it is dropped, however it ends.
pub(super) struct OpenConnection<'a>(&'a ServerStats);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.count(|stats| stats.open -= 1);
    }
}
