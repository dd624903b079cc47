//! Chooses the profiles that show where a process spent its time.
//!
//! A profiler may send the same time twice, as samples and as nanoseconds (pprof), or as CPU time and as wall time. On
//! one time line they would count double, so one type is chosen for a process and window: timestamped samples, or else
//! nanoseconds of CPU or wall time, or else samples times their period.

use profbridge_model::{Losses, Meaning, Mode, Profile, Profiles, Reason, Scope};

use super::settings::{Prefer, Settings};

/// A chosen profile, and the meaning of its values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen<'a> {
    pub(super) profile: &'a Profile,
    pub(super) meaning: Meaning,
}

/// The priority of a type; smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    shape: ProfileShape,
    mode: u8,
    counted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ProfileShape {
    Timestamped,
    Time,
    CountTimesPeriod,
}

/// One type of profile. Equal types of one scope form one stream, with or without timestamps.
#[derive(Debug, PartialEq, Eq)]
struct Type<'a> {
    rank: Rank,
    kind: &'a [u8],
    unit: &'a [u8],
    scope: &'a [u8],
    observations: u64,
}

impl Type<'_> {
    fn same(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.rank.mode, one.rank.counted);
        of(self) == of(other) && (self.kind, self.unit, self.scope) == (other.kind, other.unit, other.scope)
    }
}

/// Chooses the profiles to convert and counts the others.
pub(super) fn select<'a>(batch: &'a Profiles, settings: &Settings, losses: &mut Losses) -> Vec<Chosen<'a>> {
    let mut types: Vec<Type<'a>> = Vec::new();
    let mut candidates: Vec<(usize, Chosen<'a>)> = Vec::new();
    let mut chosen = Vec::new();
    let scopes = batch.resources().iter().flat_map(|resource| &resource.scopes);
    for (scope, profile) in scopes.flat_map(|scope| scope.profiles.iter().map(move |profile| (&scope.scope, profile))) {
        let observations = batch.observations_of(profile);
        if observations == 0 {
            continue;
        }
        let timestamped = batch.samples(profile).any(|sample| !sample.timestamps_bytes().is_empty());
        let mode = Mode::of(batch.dictionary(), profile);
        let Some(meaning) = Meaning::of(batch.dictionary(), profile) else {
            losses.add_observations(Reason::NoTimeUnit, observations);
            continue;
        };
        if mode == Mode::OffCpu {
            if settings.off_cpu && timestamped {
                chosen.push(Chosen { profile, meaning });
            } else {
                losses.add_observations(Reason::OffCpu, observations);
            }
            continue;
        }
        let found = describe(batch, scope, profile, rank(settings, mode, meaning, timestamped), observations);
        let index = types.iter().position(|known| known.same(&found)).unwrap_or(types.len());
        match types.get_mut(index) {
            Some(known) => {
                known.observations += observations;
                known.rank = known.rank.min(found.rank);
            }
            None => types.push(found),
        }
        candidates.push((index, Chosen { profile, meaning }));
    }
    // Among types of equal rank, the one with the most observations is chosen, or else the first one.
    let best = (0..types.len()).min_by_key(|&index| (types[index].rank, u64::MAX - types[index].observations, index));
    for (index, candidate) in candidates {
        if Some(index) == best {
            chosen.push(candidate);
        } else {
            losses.add_observations(Reason::RedundantType, batch.observations_of(candidate.profile));
        }
    }
    chosen
}

fn describe<'a>(batch: &'a Profiles, scope: &Scope, profile: &Profile, rank: Rank, observations: u64) -> Type<'a> {
    let dictionary = batch.dictionary();
    Type {
        rank,
        kind: dictionary.string_bytes(profile.sample_type.kind),
        unit: dictionary.string_bytes(profile.sample_type.unit),
        scope: dictionary.string_bytes(scope.name),
        observations,
    }
}

fn rank(settings: &Settings, mode: Mode, meaning: Meaning, timestamped: bool) -> Rank {
    let shape = match (timestamped, meaning.timed_values) {
        (true, _) => ProfileShape::Timestamped,
        (false, true) => ProfileShape::Time,
        (false, false) => ProfileShape::CountTimesPeriod,
    };
    let mode = match (mode, settings.prefer) {
        (Mode::Wall, Prefer::Wall) | (Mode::Cpu, Prefer::Cpu) => 0,
        (Mode::Wall | Mode::Cpu, _) => 1,
        (Mode::OffCpu | Mode::Other, _) => 2,
    };
    Rank { shape, mode, counted: !meaning.timed_values }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: timestamps take precedence over time, and time over counts; otherwise the preferred mode takes
    /// precedence.
    /// rule: otep-0239#type-order
    #[test]
    fn order() {
        let settings = Settings::default();
        let timed =
            Meaning { unit_nanos: 1, period_nanos: 0, timed_values: true, wall: false, ends_at_timestamp: false };
        let counted = Meaning { timed_values: false, ..timed };
        let order = [
            rank(&settings, Mode::Wall, counted, true),
            rank(&settings, Mode::Cpu, timed, true),
            rank(&settings, Mode::Cpu, counted, true),
            rank(&settings, Mode::Wall, timed, false),
            rank(&settings, Mode::Cpu, timed, false),
            rank(&settings, Mode::Other, timed, false),
            rank(&settings, Mode::Wall, counted, false),
            rank(&settings, Mode::Cpu, counted, false),
        ];
        assert!(order.is_sorted_by(|left, right| left < right), "{order:?}");
        let cpu = Settings { prefer: Prefer::Cpu, ..Settings::default() };
        assert!(rank(&cpu, Mode::Cpu, timed, true) < rank(&cpu, Mode::Wall, timed, true));
    }
}
