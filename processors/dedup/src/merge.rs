//! Buffers the requests of each sender for a while and merges them into one, with one dictionary.
//!
//! Each element of a request is looked up once, so the cost only depends on new data, and not on buffered data. (The
//! Collector's merge compares each element with all others.)

use std::sync::Arc;

use profbridge_engine::component::{Now, Outbox};
use profbridge_model::{Profiles, Reason};
use profbridge_windows::{Absorbed, Flushed, Requests, WindowKey};

use crate::config::Settings;

/// The memory limit for data divided by this is the limit for all windows: one eighth.
const SHARE: u64 = 8;

/// The key of a window: the sender of its requests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sender(Option<Arc<str>>);

impl WindowKey for Sender {}

/// One window per sender.
#[derive(Debug)]
pub(crate) struct Merge {
    settings: Settings,
    pub(crate) requests: Requests<Sender>,
}

impl Merge {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { requests: Requests::new(settings.limits()), settings }
    }

    /// Reduces the limits to fit the memory limit for all data of the process, in bytes. Flushing a window needs
    /// several times the window's size, in addition to all other data.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.settings.max_bytes = self.settings.max_bytes.min(limit / SHARE);
        self.requests = Requests::new(self.settings.limits());
    }

    /// Buffers a request, or the first part of it.
    pub(crate) fn take(&mut self, profiles: Profiles, now: Now, out: &mut Outbox) {
        let sender = Sender(profiles.peer.clone());
        count(self.requests.add(profiles, sender, now.monotonic_nano), out);
    }

    /// Flushes a window that is closed, due, or scheduled because of memory pressure, and absorbs more of the pending
    /// request.
    pub(crate) fn advance(&mut self, now: Now, out: &mut Outbox) {
        send(self.requests.flush_due(now.monotonic_nano), out);
        count(self.requests.absorb(), out);
    }

    /// Flushes one window because memory is short, until half of the initial size is left. Returns whether there is
    /// more to do.
    pub(crate) fn on_memory_pressure(&mut self, out: &mut Outbox) -> bool {
        let (flushed, closed_early) = self.requests.flush_for_memory();
        send(flushed, out);
        out.note(crate::CLOSED_EARLY, closed_early);
        self.requests.is_relieving()
    }

    /// Flushes the oldest window at shutdown. Returns whether there is more to do.
    pub(crate) fn flush(&mut self, now: Now, out: &mut Outbox) -> bool {
        if self.requests.is_absorbing() {
            self.advance(now, out);
            return true;
        }
        send(self.requests.flush_at_end(), out);
        !self.requests.is_empty()
    }
}

fn send(flushed: Option<Flushed<Sender>>, out: &mut Outbox) {
    let Some(flushed) = flushed else { return };
    match flushed.batch {
        Some(batch) => out.send(batch),
        None => out.drop_observations(Reason::LimitExceeded, flushed.observations),
    }
}

fn count(Absorbed { lost, payloads_removed, closed_early }: Absorbed, out: &mut Outbox) {
    out.drop_observations(Reason::LimitExceeded, lost);
    out.note(crate::PAYLOAD_REMOVED, payloads_removed);
    out.note(crate::CLOSED_EARLY, closed_early);
}
