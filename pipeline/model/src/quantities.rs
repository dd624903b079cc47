//! The amount of telemetry of each kind: the unit of all counters, balances and bounds.
//!
//! A single number is not enough. An envelope without profiles has no observations, so if only observations were
//! counted, its loss would go unnoticed.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// The unit of an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Unit {
    /// Observations of profiles: a sample at one time, or a value without a time.
    Observations,
    /// Spans of traces.
    Spans,
    /// Items of Sentry envelopes without a parsed view, so that no other unit counts them.
    Items,
}

impl Unit {
    /// All units.
    pub const ALL: [Unit; 3] = [Unit::Observations, Unit::Spans, Unit::Items];

    /// The name of the unit in metrics and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Unit::Observations => "observations",
            Unit::Spans => "spans",
            Unit::Items => "items",
        }
    }

    /// The name of the unit at the beginning of a description.
    pub const fn title(self) -> &'static str {
        match self {
            Unit::Observations => "Observations",
            Unit::Spans => "Spans",
            Unit::Items => "Items of envelopes",
        }
    }

    /// The noun for `number` of the unit: `item`, `items`.
    pub const fn noun(self, number: u64) -> &'static str {
        match self {
            Unit::Observations if number == 1 => "observation",
            Unit::Spans if number == 1 => "span",
            Unit::Items if number == 1 => "item",
            _ => self.as_str(),
        }
    }
}

/// An amount in each [`Unit`]. Sums saturate.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Quantities {
    /// [`Unit::Observations`].
    pub observations: u64,
    /// [`Unit::Spans`].
    pub spans: u64,
    /// [`Unit::Items`].
    pub items: u64,
}

impl Quantities {
    /// Zero in every unit.
    pub const NONE: Self = Self { observations: 0, spans: 0, items: 0 };

    /// A number of observations.
    pub const fn observations(observations: u64) -> Self {
        Self { observations, ..Self::NONE }
    }

    /// A number of spans.
    pub const fn spans(spans: u64) -> Self {
        Self { spans, ..Self::NONE }
    }

    /// A number of items without a view.
    pub const fn items(items: u64) -> Self {
        Self { items, ..Self::NONE }
    }

    /// Adds observations.
    pub const fn add_observations(&mut self, more: u64) {
        self.observations = self.observations.saturating_add(more);
    }

    /// Whether all units are zero.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The amount in one unit.
    pub const fn get(self, unit: Unit) -> u64 {
        let Self { observations, spans, items } = self;
        match unit {
            Unit::Observations => observations,
            Unit::Spans => spans,
            Unit::Items => items,
        }
    }

    /// Whether only observations are counted, or nothing.
    pub const fn is_observations_only(self) -> bool {
        matches!(self, Self { spans: 0, items: 0, observations: _ })
    }

    /// Computes the amount of each unit with `number`.
    pub fn of(number: impl Fn(Unit) -> u64) -> Self {
        Self { observations: number(Unit::Observations), spans: number(Unit::Spans), items: number(Unit::Items) }
    }

    /// The units with a non-zero amount.
    pub fn iter(self) -> impl Iterator<Item = (Unit, u64)> {
        Unit::ALL.into_iter().map(move |unit| (unit, self.get(unit))).filter(|(_, number)| *number > 0)
    }

    /// The sum of all units, for uses that need one number, such as a queue limit in `items`.
    pub fn total(self) -> u64 {
        self.iter().fold(0, |sum, (_, number)| sum.saturating_add(number))
    }

    /// The difference in each unit, at least zero.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }

    /// The absolute difference in each unit.
    #[must_use]
    pub fn abs_diff(self, other: Self) -> Self {
        self.zip(other, u64::abs_diff)
    }

    /// The smaller amount in each unit.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.zip(other, u64::min)
    }

    fn zip(self, other: Self, both: impl Fn(u64, u64) -> u64) -> Self {
        Self::of(|unit| both(self.get(unit), other.get(unit)))
    }
}

impl Add for Quantities {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }
}

impl AddAssign for Quantities {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Quantities {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::NONE, Add::add)
    }
}

impl fmt::Debug for Quantities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(unit, number)| (unit.as_str(), number))).finish()
    }
}

impl fmt::Display for Quantities {
    /// For example `12 observations, 1 item`; `0 observations` if all units are zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("0 observations");
        }
        for (position, (unit, number)) in self.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}{number} {}", unit.noun(number))?;
        }
        Ok(())
    }
}

/// Displays [`Quantities`] in a text that already mentions observations: `12`, but `12 observations, 1 item` if other
/// units are counted too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number(pub Quantities);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_observations_only() { self.0.observations.fmt(f) } else { self.0.fmt(f) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: units are computed separately, so a surplus in one never hides a shortage in another.
    #[test]
    fn units_do_not_mix() {
        let some = |observations, spans, items| Quantities { observations, spans, items };
        let (one, other) = (some(5, 1, 0), some(2, 3, 4));
        assert_eq!(one + other, some(7, 4, 4));
        assert_eq!(one.saturating_sub(other), Quantities::observations(3));
        assert_eq!(one.abs_diff(other), some(3, 2, 4));
        assert_eq!(one.min(other), some(2, 1, 0));
        assert_eq!([one, other].into_iter().sum::<Quantities>().total(), 15);
        assert!(Quantities::NONE.is_none() && !Quantities::items(1).is_none());
        let most = Quantities::observations(u64::MAX);
        assert_eq!(most + one, Quantities { spans: 1, ..most });
        assert!(most.is_observations_only() && Quantities::NONE.is_observations_only());
        assert!(!one.is_observations_only() && !Quantities::items(1).is_observations_only());
    }
}
