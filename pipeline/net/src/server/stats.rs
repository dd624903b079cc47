//! A server's counters of its connections.

use std::sync::{Mutex, PoisonError};

/// The counters of one server, shared with the code that publishes them.
#[derive(Debug, Default)]
pub struct ServerStats(Mutex<StatsSnapshot>);

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// Connections open now.
    pub open: u64,
    /// Connections that were served, including open ones.
    pub opened: u64,
    /// Connections closed at once because there were too many.
    pub refused: u64,
    /// TLS handshakes that failed or took too long.
    pub handshakes_failed: u64,
    /// Connections on which a peer used another protocol than the port's.
    pub wrong_protocol: u64,
    /// Connections closed because the peer was silent or too slow, or was idle when another peer needed the place.
    pub timed_out: u64,
    /// Failures of `accept` itself, such as too many open files.
    pub accepts_failed: u64,
}

impl ServerStats {
    /// A snapshot of the counters.
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

    /// Counts a connection on which a peer used another protocol than the port's.
    pub fn wrong_protocol(&self) {
        self.count(|stats| stats.wrong_protocol += 1);
    }
}

/// Counts a connection as open until it is dropped.
pub(super) struct OpenConnection<'a>(&'a ServerStats);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.count(|stats| stats.open -= 1);
    }
}
