//! How far an arena may grow, what it says when it may not, and how much it did.

use std::fmt;

/// What an arena may become. Checked before an element is added, so a full arena stays whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The memory of everything, allocated, in bytes.
    pub bytes: u64,
    /// How many strings.
    pub strings: u32,
    /// How many stacks.
    pub stacks: u32,
}

impl Limits {
    /// No limit but what 32-bit offsets can address.
    pub const ADDRESSABLE: Self = Self { bytes: u32::MAX as u64, strings: u32::MAX, stacks: u32::MAX };

    /// A limit on the memory alone, in bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self { bytes, ..Self::ADDRESSABLE }
    }
}

/// An arena takes no more: the caller starts another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// What there is too much of.
    pub what: &'static str,
    /// How much of it there may be.
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

/// How much work an arena did, to show that merging is linear without measuring time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Elements that were looked up.
    pub lookups: u64,
    /// Elements that a lookup was compared with.
    pub comparisons: u64,
}

impl std::ops::Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { lookups: self.lookups + other.lookups, comparisons: self.comparisons + other.comparisons }
    }
}
