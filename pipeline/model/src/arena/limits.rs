//! The limits of an arena, the error when one is reached, and counters of its work.

use std::fmt;

/// The limits of an arena. They are checked before an element is added, so a full arena stays consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaLimits {
    /// The maximum of allocated memory, in bytes.
    pub bytes: u64,
    /// The maximum number of strings.
    pub strings: u32,
    /// The maximum number of stacks.
    pub stacks: u32,
}

impl ArenaLimits {
    /// No limits but that of 32-bit offsets.
    pub const ADDRESSABLE: Self = Self { bytes: u32::MAX as u64, strings: u32::MAX, stacks: u32::MAX };

    /// Limits only the memory, in bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self { bytes, ..Self::ADDRESSABLE }
    }
}

/// The arena is full: the caller has to start another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// The limit that was reached.
    pub what: &'static str,
    /// The value of the limit.
    pub limit: u64,
}

impl Full {
    pub(super) const fn addressable() -> Self {
        Self { what: "bytes", limit: u32::MAX as u64 }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tables are full: at most {} {}", self.limit, self.what)
    }
}

impl std::error::Error for Full {}

/// The work of an arena. With it tests show, without measuring time, that merging is linear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// The number of lookups.
    pub lookups: u64,
    /// The number of elements compared in lookups.
    pub comparisons: u64,
}

impl std::ops::Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { lookups: self.lookups + other.lookups, comparisons: self.comparisons + other.comparisons }
    }
}
