//! Chooses the type of value that is shown for profiles, in collapsed stacks or flame graphs.
//!
//! A profile has one type of value. The profiles of a scope usually show the same work in different types, so only one
//! of them is shown: pprof's default type, or else running time, or else the last type with a non-zero value, as
//! `go tool pprof` chooses (`inuse_space` of a heap profile). Blocked time is independent of that: one of its types may
//! be shown in addition. Values other than time keep the name and the unit of their type, and are never added to values
//! of other types.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use profbridge_model::meaning::{Mode, is_count, unit_nanos};
use profbridge_model::{Profile, Profiles, ScopeProfiles, Value};

/// The scope attribute with pprof's default type.
const DEFAULT: &str = "pprof.scope.default_sample_type";

/// The type of a profile's values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShownType {
    /// The name, such as `inuse_space`; may be empty.
    pub kind: Box<str>,
    /// The unit: `nanoseconds`, `bytes`, `count`, or any other.
    pub unit: Box<str>,
}

impl ShownType {
    /// The type of a profile's values, and the factor from the profile's unit to the type's unit.
    pub fn of(batch: &Profiles, profile: &Profile) -> (Self, u64) {
        let text = |id| batch.dictionary().string(id);
        let (kind, unit) = (text(profile.sample_type.kind).into(), text(profile.sample_type.unit));
        let (unit, scale) = match (unit_nanos(unit.as_bytes()), unit) {
            (Some(scale), _) => ("nanoseconds", scale),
            (None, "bytes" | "byte" | "By") => ("bytes", 1),
            (None, unit) if is_count(unit.as_bytes()) => ("count", 1),
            (None, unit) => (unit, 1),
        };
        (Self { kind, unit: unit.into() }, scale)
    }

    /// The noun for the values, such as `objects`: for counts, the last word of the type's name.
    pub fn counted(&self) -> &str {
        match (&*self.unit, self.kind.rsplit(['_', ' ']).next().unwrap_or_default()) {
            ("count", "") => "samples",
            ("count", word) => word,
            (unit, _) => unit,
        }
    }
}

impl Display for ShownType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = if self.kind.is_empty() { "values without a name" } else { &self.kind };
        write!(f, "{} ({})", kind.escape_debug(), self.unit.escape_debug())
    }
}

/// How a profile is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The type, or `None` for the time of threads.
    pub own: Option<ShownType>,
    /// The factor from a value to nanoseconds, or to the type's unit.
    pub scale: u64,
    /// Whether this profile is shown if only one type can be.
    pub is_chosen: bool,
}

/// How each profile of a scope is shown. With `blocked_apart`, one type of blocked time is chosen in addition to one of
/// the other types; without it, blocked time is only chosen if there is no other type.
pub fn shown(batch: &Profiles, scope: &ScopeProfiles, blocked_apart: bool) -> Vec<Shown> {
    let default = match batch.find(&scope.scope.attributes, DEFAULT) {
        Some(Value::String(name)) => batch.dictionary().string(*name),
        _ => "",
    };
    let is_blocked = |profile: &Profile| Mode::of(batch.dictionary(), profile) == Mode::OffCpu;
    let rank = |profile: &Profile| {
        let own = batch.dictionary().string(profile.sample_type.kind);
        let is_wall = own.to_ascii_lowercase().contains("wall");
        match nanoseconds(batch, profile) {
            _ if !default.is_empty() && own == default => 0,
            _ if !blocked_apart && is_blocked(profile) => 4,
            Some(_) if is_wall => 1,
            Some(_) => 2,
            None => 3,
        }
    };
    let chosen = |blocked: bool| {
        let of = scope.profiles.iter().filter(|profile| (blocked_apart && is_blocked(profile)) == blocked);
        let of = of.enumerate().filter(|(_, profile)| has_values(batch, profile));
        let key = |at: usize, profile| match rank(profile) {
            3 => (3, usize::MAX - at),
            rank => (rank, at),
        };
        of.min_by_key(|&(at, profile)| key(at, profile)).map(|(_, profile)| profile)
    };
    let chosen = [false, true].map(chosen);
    let show = |profile: &Profile| {
        let is_equal = |of: &&Profile| {
            [of.sample_type, of.period_type] == [profile.sample_type, profile.period_type]
                && (ShownType::of(batch, of), nanoseconds(batch, of).is_some())
                    == (ShownType::of(batch, profile), nanoseconds(batch, profile).is_some())
        };
        let is_chosen = chosen.iter().flatten().any(is_equal);
        match nanoseconds(batch, profile).filter(|_| is_chosen) {
            Some(scale) => Shown { own: None, scale, is_chosen },
            None => {
                let (own, scale) = ShownType::of(batch, profile);
                Shown { own: Some(own), scale, is_chosen }
            }
        }
    };
    scope.profiles.iter().map(show).collect()
}

/// The nanoseconds per unit of value; `None` if the values are not time.
pub fn nanoseconds(batch: &Profiles, profile: &Profile) -> Option<u64> {
    let text = |id| batch.dictionary().string_bytes(id);
    if let Some(scale) = unit_nanos(text(profile.sample_type.unit)) {
        return Some(scale);
    }
    let counts = is_count(text(profile.sample_type.unit));
    let period = u64::try_from(profile.period).ok().filter(|&period| period > 0 && counts)?;
    unit_nanos(text(profile.period_type.unit))?.checked_mul(period)
}

/// Whether any value is non-zero.
fn has_values(batch: &Profiles, profile: &Profile) -> bool {
    batch.samples(profile).any(|sample| sample.values_bytes().is_empty() || sample.values().any(|value| value != 0))
}

/// Types that are not shown because another one is, with their numbers of observations.
#[derive(Debug, Clone, Default)]
pub struct NotShown(BTreeMap<ShownType, u64>);

impl NotShown {
    /// Maximum number of types listed by name.
    const MOST: usize = 64;

    /// Counts a profile that is not shown, unless all of its values are zero. Returns its number of observations.
    pub fn add(&mut self, batch: &Profiles, profile: &Profile) -> u64 {
        if !has_values(batch, profile) {
            return 0;
        }
        let observations = batch.observations_of(profile);
        let (own, _) = ShownType::of(batch, profile);
        if observations > 0 && (self.0.len() < Self::MOST || self.0.contains_key(&own)) {
            *self.0.entry(own).or_default() += observations;
        }
        observations
    }

    /// Describes each type in words.
    pub fn in_words(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|(own, observations)| {
            let noun = if *observations == 1 { "observation" } else { "observations" };
            format!("{own}, {observations} {noun}")
        })
    }
}
