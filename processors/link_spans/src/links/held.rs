//! Profiles that wait for the spans of their time, in windows.
//!
//! A window takes what its sender sends for a quarter of the time to wait, and is closed when the last of it has waited
//! long enough. So no profile waits longer than a quarter more, and the requests of that time share a dictionary.

use std::sync::Arc;

use profbridge_engine::component::Outbox;
use profbridge_model::arena;
use profbridge_model::{Profiles, Reason, whole_chunk};
use profbridge_windows::{Absorbed, CLOSED_EARLY, Flushed, Key, Limits, PAYLOAD_REMOVED, Requests};

/// A window takes requests for one part in so many of the time to wait.
const CELLS: u64 = 4;

/// A window with so many observations is closed early: it becomes one batch.
const MAX_OBSERVATIONS: u64 = 1_000_000;

/// So large may a dictionary be, in bytes, when another window is to share it.
const MAX_DICTIONARY: u64 = 16 << 20;

/// The key of a window: who sent what it holds, and when.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Window {
    sender: Option<Arc<str>>,
    cell: u64,
    /// The number of the only request in it; 0 where it may hold several.
    alone: u64,
    relayed: bool,
}

impl Key for Window {}

/// The profiles that wait.
#[derive(Debug)]
pub(super) struct HeldProfiles {
    wait: u64,
    pub(super) requests: Requests<Window>,
    numbered: u64,
}

impl HeldProfiles {
    /// Profiles wait for so many nanoseconds, and take at most so many bytes.
    pub(super) fn new(wait: u64, max_bytes: u64) -> Self {
        let open_for = wait.saturating_add(cell(wait));
        let limits = Limits {
            open_for,
            max_observations: MAX_OBSERVATIONS,
            max_window_bytes: u64::MAX,
            max_groups: usize::MAX,
            max_bytes,
            max_arena_age: open_for,
            max_arena_bytes: MAX_DICTIONARY,
            arena: arena::Limits::ADDRESSABLE,
        };
        Self { wait, requests: Requests::new(limits), numbered: 0 }
    }

    /// Holds a request, or the beginning of it.
    pub(super) fn take(&mut self, profiles: Profiles, monotonic_nano: u64, out: &mut Outbox) {
        // What is of different machines is not put together, nor is what is a chunk of Sentry's.
        let is_alone = profiles.relayed || whole_chunk::any(&profiles);
        self.numbered += u64::from(is_alone);
        let key = Window {
            sender: profiles.peer.clone(),
            cell: monotonic_nano / cell(self.wait),
            alone: if is_alone { self.numbered } else { 0 },
            relayed: profiles.relayed,
        };
        count(self.requests.take(profiles, key, monotonic_nano), out);
    }

    /// Goes on with the request that is being taken in.
    pub(super) fn absorb(&mut self, out: &mut Outbox) {
        count(self.requests.absorb(), out);
    }

    /// A window that has waited long enough.
    pub(super) fn next_due(&mut self, monotonic_nano: u64, out: &mut Outbox) -> Option<Profiles> {
        batch(self.requests.flush_due(monotonic_nano)?, out)
    }

    /// A window that goes on early, because memory is short.
    pub(super) fn relieve(&mut self, out: &mut Outbox) -> Option<Profiles> {
        let (flushed, closed_early) = self.requests.relieve();
        out.note(CLOSED_EARLY, closed_early);
        batch(flushed?, out)
    }

    /// The next window, because the end has come.
    pub(super) fn next_at_end(&mut self, out: &mut Outbox) -> Option<Profiles> {
        batch(self.requests.flush_at_end()?, out)
    }
}

/// For how long a window takes requests, in nanoseconds.
fn cell(wait: u64) -> u64 {
    (wait / CELLS).max(1)
}

fn batch(flushed: Flushed<Window>, out: &mut Outbox) -> Option<Profiles> {
    let Some(mut batch) = flushed.batch else {
        out.drop_observations(Reason::LimitExceeded, flushed.observations);
        return None;
    };
    batch.relayed = flushed.key.relayed;
    Some(batch)
}

fn count(Absorbed { lost, payloads_removed, closed_early }: Absorbed, out: &mut Outbox) {
    out.drop_observations(Reason::LimitExceeded, lost);
    out.note(PAYLOAD_REMOVED, payloads_removed);
    out.note(CLOSED_EARLY, closed_early);
}
