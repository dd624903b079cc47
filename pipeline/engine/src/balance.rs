//! The law that every edge of a pipeline obeys, in each unit by itself:
//! `in + synthesized + held before = out + dropped + held after`.

use std::fmt;

use profbridge_model::Quantities;
use profbridge_model::quantities::Number;

/// What a processor holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// How much.
    pub quantities: Quantities,
    /// Bytes, as well as they can be counted: capacity, not length.
    pub bytes: u64,
}

impl Held {
    /// So many observations in so many bytes.
    pub const fn observations(observations: u64, bytes: u64) -> Self {
        Self { quantities: Quantities::observations(observations), bytes }
    }
}

/// One call's two sides of the law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    /// What was handed in.
    pub inbound: Quantities,
    /// What a rule added.
    pub synthesized: Quantities,
    /// What was held before.
    pub held_before: Quantities,
    /// What was handed on.
    pub outbound: Quantities,
    /// What was lost, under any reason.
    pub dropped: Quantities,
    /// What is held after.
    pub held_after: Quantities,
}

impl Balance {
    /// By how much the sides differ in each unit: nothing where the law holds.
    pub fn unaccounted(&self) -> Quantities {
        let before = self.inbound + self.synthesized + self.held_before;
        before.abs_diff(self.outbound + self.dropped + self.held_after)
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inbound, synthesized, held_before, outbound, dropped, held_after } = *self;
        let [inbound, synthesized, held_before, outbound, dropped, held_after] =
            [inbound, synthesized, held_before, outbound, dropped, held_after].map(Number);
        write!(
            f,
            "in {inbound} + synthesized {synthesized} + held before {held_before} = \
             out {outbound} + dropped {dropped} + held after {held_after}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: what is missing in one unit is found, and nothing that is too much in another makes up for it.
    #[test]
    fn each_unit_by_itself() {
        let mixed = Quantities { observations: 5, spans: 0, items: 2 };
        let balance = Balance { inbound: mixed, outbound: mixed, ..Balance::default() };
        assert!(balance.unaccounted().is_none());
        let forgotten = Balance { outbound: Quantities::observations(5), ..balance };
        assert_eq!(forgotten.unaccounted(), Quantities::items(2));
        let exchanged = Balance { outbound: Quantities::observations(7), ..balance };
        assert_eq!(exchanged.unaccounted(), Quantities { observations: 2, ..Quantities::items(2) });
    }
}
