//! The configuration of identity, and the ids and cells that follow from it.

use profbridge_model::{Attribute, Dictionary, ProcessWindow, ProfilerId};

use crate::cell::Cell;
use crate::identity::{Identity, IdentityKind, identify};

/// The maximum window length, in nanoseconds: Relay refuses a chunk of more than 66 seconds, Sentry's own profilers
/// send 60 (getsentry/relay `relay-profiling/src/sample/v2.rs`).
pub const MAX_WINDOW: u64 = 60 * 1_000_000_000;

/// The attributes that identify a process, and how its time is divided. The configuration is validated elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The window length in nanoseconds of event time, at most [`MAX_WINDOW`]. With 0 each request is processed by
    /// itself, and split if it is longer than [`MAX_WINDOW`].
    pub window: u64,
    /// The session length in nanoseconds: each session of a process has a different profiler id. 0 is one endless
    /// session.
    pub session: u64,
    /// The tuples of attributes that identify a process, best first.
    pub kinds: Vec<IdentityKind>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            window: MAX_WINDOW,
            session: 0,
            kinds: vec![IdentityKind::Container, IdentityKind::Host, IdentityKind::Instance],
        }
    }
}

impl Rules {
    /// The cell length in nanoseconds, also if requests are processed by themselves.
    pub fn cell_width(&self) -> u64 {
        if self.window == 0 { MAX_WINDOW } else { self.window }
    }

    /// Identifies the process with these attributes. If several have the same key, the first one counts. `peer` is the
    /// sender.
    pub fn identify<'a>(
        &self,
        dictionary: &Dictionary,
        attributes: impl Iterator<Item = &'a Attribute> + Clone,
        peer: Option<&str>,
    ) -> Identity {
        identify(dictionary, attributes, peer, &self.kinds)
    }

    /// The cell of a process that contains a time, in nanoseconds since the Unix epoch.
    #[inline]
    pub fn cell(&self, identity: Identity, time_unix_nano: u64) -> Cell {
        let width = self.cell_width();
        Cell::of(time_unix_nano, width, identity.phase(width))
    }

    /// Sentry's id for a process in a cell: that of the session in which the cell starts.
    pub fn profiler_id(&self, identity: Identity, cell: Cell) -> ProfilerId {
        identity.profiler_id(cell.start.checked_div(self.session).unwrap_or(0))
    }

    /// A process in a cell of its time, as the window of a batch.
    pub fn window(&self, identity: Identity, cell: Cell) -> ProcessWindow {
        ProcessWindow {
            profiler_id: self.profiler_id(identity, cell),
            strength: identity.strength,
            start_unix_nano: cell.start,
            end_unix_nano: cell.end,
        }
    }
}

#[cfg(test)]
mod tests {
    use profbridge_model::IdentityStrength;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Guarantees: the session of a window is the one in which the window starts, so a whole window has one id; without
    /// sessions a process always has the same id; and if requests are processed by themselves, cells are as long as the
    /// longest window.
    #[test]
    fn ids_follow_from_the_cell() {
        let identity =
            Identity { hash: 7 << 40 | 12_345, strength: IdentityStrength::Strong, alone: false, profiler: None };
        let rules = Rules { window: 10 * SECOND, session: 3600 * SECOND, ..Rules::default() };
        let time = 1_767_225_600 * SECOND;
        let cell = rules.cell(identity, time);
        assert!(cell.contains(time) && cell.end - cell.start == 10 * SECOND);
        let id = |rules: &Rules, time| rules.window(identity, rules.cell(identity, time)).profiler_id;
        assert_eq!(id(&rules, cell.start), id(&rules, cell.end - 1));
        assert_eq!(id(&rules, time), identity.profiler_id(cell.start / (3600 * SECOND)));
        assert_ne!(id(&rules, time), id(&rules, time + 7200 * SECOND));
        let for_ever = Rules { session: 0, ..rules };
        assert_eq!(id(&for_ever, time), id(&for_ever, time + 7200 * SECOND));
        assert_eq!(Rules { window: 0, ..for_ever }.cell_width(), MAX_WINDOW);
    }
}
