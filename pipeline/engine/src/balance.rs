//! The conservation law of a pipeline. Each component obeys it for every unit separately: `in + synthesized + held
//! before = out + dropped + held after`.

use std::fmt;

use profbridge_model::Quantities;
use profbridge_model::quantities::Number;

/// The data that a processor currently holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// The amount, in each unit.
    pub quantities: Quantities,
    /// Approximate memory in bytes, by capacity rather than length.
    pub bytes: u64,
}

impl Held {
    /// `observations` observations that take `bytes` bytes.
    pub const fn observations(observations: u64, bytes: u64) -> Self {
        Self { quantities: Quantities::observations(observations), bytes }
    }
}

/// The terms of the conservation law for one call of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    /// The quantities that the processor received.
    pub inbound: Quantities,
    /// The quantities that the processor added by a rule, such as closing samples.
    pub synthesized: Quantities,
    /// The quantities that the processor held before the call.
    pub held_before: Quantities,
    /// The quantities that the processor emitted.
    pub outbound: Quantities,
    /// The quantities that were lost, for any reason.
    pub dropped: Quantities,
    /// The quantities that the processor holds after the call.
    pub held_after: Quantities,
}

impl Balance {
    /// The unaccounted quantity of each unit; all are zero if every item is accounted for.
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

    /// Guarantees: a loss in one unit is found, and an excess in another unit does not cancel it.
    #[test]
    fn each_unit_by_itself() {
        let mixed = Quantities { observations: 5, ..Quantities::items(2) };
        let balance = Balance { inbound: mixed, outbound: mixed, ..Balance::default() };
        assert!(balance.unaccounted().is_none());
        let forgotten = Balance { outbound: Quantities::observations(5), ..balance };
        assert_eq!(forgotten.unaccounted(), Quantities::items(2));
        let exchanged = Balance { outbound: Quantities::observations(7), ..balance };
        assert_eq!(exchanged.unaccounted(), Quantities { observations: 2, ..Quantities::items(2) });
    }
}
