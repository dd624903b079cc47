//! The key of a window: a process and a cell of its time.

use std::cmp::Ordering;

use profbridge_identity::{Cell, Identity};
use profbridge_model::{IdentityStrength, Profile};
use profbridge_windows::WindowKey;

/// A process and a cell of its time. Equality compares only hash and cell, because the hash represents the whole
/// identity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessCell {
    pub(crate) identity: Identity,
    pub(crate) cell: Cell,
}

impl ProcessCell {
    /// A key that sorts before all cells of the process with this hash.
    pub(crate) fn first(hash: u128) -> Self {
        let identity = Identity { hash, strength: IdentityStrength::Strong, alone: false, profiler: None };
        Self { identity, cell: Cell::FIRST }
    }
}

impl PartialEq for ProcessCell {
    fn eq(&self, other: &Self) -> bool {
        (self.identity.hash, self.cell) == (other.identity.hash, other.cell)
    }
}

impl Eq for ProcessCell {}

impl Ord for ProcessCell {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.identity.hash, self.cell).cmp(&(other.identity.hash, other.cell))
    }
}

impl PartialOrd for ProcessCell {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl WindowKey for ProcessCell {
    fn is_in_group_of(&self, other: &Self) -> bool {
        self.identity.hash == other.identity.hash
    }

    fn first_of_group(&self) -> Self {
        Self::first(self.identity.hash)
    }

    fn range_of(&self, profile: &Profile) -> std::ops::Range<u64> {
        self.cell.clip(profile)
    }
}
