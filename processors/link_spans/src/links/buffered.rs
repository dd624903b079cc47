//! Holds profiles in windows until the spans of their time have arrived.
//!
//! A window takes what its sender sends during a quarter of the wait, and closes when its last request has waited long
//! enough. So no profile waits more than a quarter longer, and all requests of a window share a dictionary.

use std::sync::Arc;

use profbridge_engine::component::Outbox;
use profbridge_model::arena;
use profbridge_model::{Profiles, Reason, whole_chunk};
use profbridge_windows::{Absorbed, CLOSED_EARLY, Flushed, PAYLOAD_REMOVED, Requests, WindowKey, WindowLimits};

/// A window takes requests for the wait divided by this number.
const CELLS: u64 = 4;

/// A window with this many observations is closed early, because it becomes one batch.
const MAX_OBSERVATIONS: u64 = 1_000_000;

/// A dictionary larger than this, in bytes, is not shared with further windows.
const MAX_DICTIONARY: u64 = 16 << 20;

/// The key of a window: the sender of its requests, and the time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SenderWindow {
    sender: Option<Arc<str>>,
    cell: u64,
    /// The number of its only request, or 0 if it may hold several.
    alone: u64,
    relayed: bool,
}

impl WindowKey for SenderWindow {}

/// The profiles that wait.
#[derive(Debug)]
pub(super) struct BufferedProfiles {
    wait: u64,
    pub(super) requests: Requests<SenderWindow>,
    numbered: u64,
}

impl BufferedProfiles {
    /// Profiles wait for `wait` nanoseconds and take at most `max_bytes` bytes.
    pub(super) fn new(wait: u64, max_bytes: u64) -> Self {
        let open_for = wait.saturating_add(cell(wait));
        let limits = WindowLimits {
            open_for,
            max_observations: MAX_OBSERVATIONS,
            max_window_bytes: u64::MAX,
            max_groups: usize::MAX,
            max_bytes,
            max_arena_age: open_for,
            max_arena_bytes: MAX_DICTIONARY,
            arena: arena::ArenaLimits::ADDRESSABLE,
        };
        Self { wait, requests: Requests::new(limits), numbered: 0 }
    }

    /// Holds a request, or the first part of it.
    pub(super) fn add(&mut self, profiles: Profiles, monotonic_nano: u64, out: &mut Outbox) {
        // Profiles of different machines are not merged, and neither are complete Sentry chunks.
        let is_alone = profiles.relayed || whole_chunk::any(&profiles);
        self.numbered += u64::from(is_alone);
        let key = SenderWindow {
            sender: profiles.peer.clone(),
            cell: monotonic_nano / cell(self.wait),
            alone: if is_alone { self.numbered } else { 0 },
            relayed: profiles.relayed,
        };
        count(self.requests.add(profiles, key, monotonic_nano), out);
    }

    /// Takes in more of the current request.
    pub(super) fn absorb(&mut self, out: &mut Outbox) {
        count(self.requests.absorb(), out);
    }

    /// Takes a window that has waited long enough.
    pub(super) fn next_due(&mut self, monotonic_nano: u64, out: &mut Outbox) -> Option<Profiles> {
        batch(self.requests.flush_due(monotonic_nano)?, out)
    }

    /// Takes a window early because memory is short.
    pub(super) fn next_for_memory(&mut self, out: &mut Outbox) -> Option<Profiles> {
        let (flushed, closed_early) = self.requests.flush_for_memory();
        out.note(CLOSED_EARLY, closed_early);
        batch(flushed?, out)
    }

    /// Takes the next window at shutdown.
    pub(super) fn next_at_end(&mut self, out: &mut Outbox) -> Option<Profiles> {
        batch(self.requests.flush_at_end()?, out)
    }
}

/// For how long a window takes requests, in nanoseconds.
fn cell(wait: u64) -> u64 {
    (wait / CELLS).max(1)
}

fn batch(flushed: Flushed<SenderWindow>, out: &mut Outbox) -> Option<Profiles> {
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
