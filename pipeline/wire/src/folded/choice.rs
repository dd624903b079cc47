//! Which type of value of a scope's profiles is shown: folded, or drawn.

use profbridge_model::meaning::{is_count, unit_nanos};
use profbridge_model::{Profile, Profiles, ValueType};

/// One type of value.
#[derive(Debug, Clone)]
pub struct Choice {
    kind: String,
    unit: String,
    period_kind: String,
    period_unit: String,
}

impl Choice {
    fn of(batch: &Profiles, profile: &Profile) -> Self {
        let text = |id| batch.dictionary().string(id).to_owned();
        let ValueType { kind, unit } = profile.sample_type;
        let period = profile.period_type;
        Self { kind: text(kind), unit: text(unit), period_kind: text(period.kind), period_unit: text(period.unit) }
    }

    /// The most telling type among the profiles that have samples; `None` where none has.
    pub fn best<'a>(batch: &Profiles, profiles: impl IntoIterator<Item = &'a Profile>) -> Option<Self> {
        let mut best: Option<(u8, Self)> = None;
        for profile in profiles.into_iter().filter(|profile| !profile.samples.is_empty()) {
            if best.as_ref().is_some_and(|(_, choice)| choice.takes(batch, profile)) {
                continue;
            }
            let choice = Self::of(batch, profile);
            let rank = choice.rank(profile);
            if best.as_ref().is_none_or(|&(least, _)| rank < least) {
                best = Some((rank, choice));
            }
        }
        best.map(|(_, choice)| choice)
    }

    /// Whether a profile is of this type.
    pub fn takes(&self, batch: &Profiles, profile: &Profile) -> bool {
        let is = |id, text: &str| batch.dictionary().string(id) == text;
        is(profile.sample_type.kind, &self.kind)
            && is(profile.sample_type.unit, &self.unit)
            && is(profile.period_type.kind, &self.period_kind)
            && is(profile.period_type.unit, &self.period_unit)
    }

    /// Time on the wall says more than time on a processor, either more than what is no time. Off-CPU time is another
    /// story than all of them: it is told only where there is no other.
    fn rank(&self, profile: &Profile) -> u8 {
        let kind = self.kind.to_ascii_lowercase();
        if kind.contains("off") && kind.contains("cpu") {
            return 4;
        }
        match (self.nanoseconds(profile), kind.contains("wall")) {
            (Some(_), true) => 0,
            (Some(_), false) => 1,
            (None, _) if self.counts() => 2,
            (None, _) => 3,
        }
    }

    /// Whether a value is a number of bytes.
    pub fn is_bytes(&self) -> bool {
        matches!(self.unit.as_str(), "bytes" | "byte" | "By")
    }

    /// What the values of a profile are a number of.
    pub(super) fn measure(&self, profile: &Profile) -> Measure {
        if self.nanoseconds(profile).is_some() {
            Measure::Time
        } else if self.counts() {
            Measure::Samples
        } else {
            Measure::Of(if self.is_bytes() { "bytes" } else { &self.unit }.into())
        }
    }

    /// Whether a value is a number of samples.
    pub fn counts(&self) -> bool {
        is_count(self.unit.as_bytes())
    }

    /// The nanoseconds that one unit of value stands for; `None` where it stands for something else.
    pub fn nanoseconds(&self, profile: &Profile) -> Option<u64> {
        if let Some(scale) = unit_nanos(self.unit.as_bytes()) {
            return Some(scale);
        }
        let period = u64::try_from(profile.period).ok().filter(|&period| period > 0 && self.counts())?;
        unit_nanos(self.period_unit.as_bytes())?.checked_mul(period)
    }
}

/// What values are a number of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Measure {
    /// Some time.
    Time,
    /// Samples.
    Samples,
    /// A unit of their own.
    Of(Box<str>),
}
