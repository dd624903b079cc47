//! The law that every edge of a pipeline obeys, in observations:
//! `in + synthesized + held before = out + dropped + held after`.

use std::fmt;

/// One call's two sides of the law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    /// What was handed in.
    pub inbound: u64,
    /// What a rule added.
    pub synthesized: u64,
    /// What was held before.
    pub held_before: u64,
    /// What was handed on.
    pub outbound: u64,
    /// What was lost, under any reason.
    pub dropped: u64,
    /// What is held after.
    pub held_after: u64,
}

impl Balance {
    /// What there was, and what became of it.
    pub fn sides(&self) -> (u64, u64) {
        let before = self.inbound.saturating_add(self.synthesized).saturating_add(self.held_before);
        let after = self.outbound.saturating_add(self.dropped).saturating_add(self.held_after);
        (before, after)
    }

    /// By how much the sides differ: 0 where the law holds.
    pub fn unaccounted(&self) -> u64 {
        let (before, after) = self.sides();
        before.abs_diff(after)
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inbound, synthesized, held_before, outbound, dropped, held_after } = self;
        write!(
            f,
            "in {inbound} + synthesized {synthesized} + held before {held_before} = \
             out {outbound} + dropped {dropped} + held after {held_after}"
        )
    }
}
