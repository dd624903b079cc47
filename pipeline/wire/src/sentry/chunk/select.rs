//! Rule 6: which of a process's profiles say where its time went.
//!
//! A profiler may send the same time twice, as samples and as nanoseconds (pprof), or as CPU time and as wall time.
//! Shown together on one time line they would count double, so one type is chosen for a process and window:
//! timestamped samples, else nanoseconds of CPU or wall time, else samples times their period.

use profbridge_model::{Losses, Profile, Profiles, Reason, Scope, ValueType};

use super::settings::{Prefer, Settings};

/// A profile that is converted, and what its numbers mean.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen<'a> {
    pub(super) profile: &'a Profile,
    pub(super) meaning: Meaning,
}

/// How the observations of a profile tell time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meaning {
    /// The nanoseconds of one unit of a value, or of one timestamp without a value.
    pub(super) unit_nanos: u64,
    /// Whether a value is a time of its own, which may differ for each observation.
    pub(super) timed_values: bool,
    /// Whether threads are sampled while they wait, too.
    pub(super) wall: bool,
    /// Whether an observation's timestamp is the end of the time it stands for: the eBPF profiler reports a blocked
    /// thread when it runs again (open-telemetry/opentelemetry-ebpf-profiler `support/ebpf/off_cpu.ebpf.c`).
    pub(super) ends_at_timestamp: bool,
}

/// Smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    shape: Shape,
    mode: u8,
    counted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    Timestamped,
    Time,
    CountTimesPeriod,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Wall,
    Cpu,
    OffCpu,
    Other,
}

/// One type of profile: equal types of one scope are parts of one stream.
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
        (self.rank, self.kind, self.unit, self.scope) == (other.rank, other.kind, other.unit, other.scope)
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
        let mode = mode(batch, profile);
        let Some(meaning) = meaning(batch, profile, mode) else {
            losses.add(Reason::NoTimeUnit, observations);
            continue;
        };
        if mode == Mode::OffCpu {
            if settings.off_cpu && timestamped {
                chosen.push(Chosen { profile, meaning });
            } else {
                losses.add(Reason::OffCpu, observations);
            }
            continue;
        }
        let found = describe(batch, scope, profile, rank(settings, mode, meaning, timestamped), observations);
        let index = types.iter().position(|known| known.same(&found)).unwrap_or(types.len());
        match types.get_mut(index) {
            Some(known) => known.observations += observations,
            None => types.push(found),
        }
        candidates.push((index, Chosen { profile, meaning }));
    }
    // The most observations decide between equals, and the first of those.
    let best = (0..types.len()).min_by_key(|&index| (types[index].rank, u64::MAX - types[index].observations, index));
    for (index, candidate) in candidates {
        if Some(index) == best {
            chosen.push(candidate);
        } else {
            losses.add(Reason::RedundantType, batch.observations_of(candidate.profile));
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
        (true, _) => Shape::Timestamped,
        (false, true) => Shape::Time,
        (false, false) => Shape::CountTimesPeriod,
    };
    let mode = match (mode, settings.prefer) {
        (Mode::Wall, Prefer::Wall) | (Mode::Cpu, Prefer::Cpu) => 0,
        (Mode::Wall | Mode::Cpu, _) => 1,
        (Mode::OffCpu | Mode::Other, _) => 2,
    };
    Rank { shape, mode, counted: !meaning.timed_values }
}

/// What a profile's numbers mean; `None` where they are no time.
fn meaning(batch: &Profiles, profile: &Profile, mode: Mode) -> Option<Meaning> {
    let value = unit_nanos(batch.dictionary().string_bytes(profile.sample_type.unit));
    let unit_nanos = match value {
        Some(nanos) => nanos,
        None => period_nanos(batch, profile)?,
    };
    let off_cpu = mode == Mode::OffCpu;
    Some(Meaning { unit_nanos, timed_values: value.is_some(), wall: mode == Mode::Wall, ends_at_timestamp: off_cpu })
}

/// The period in nanoseconds, where there is one and it is a time.
fn period_nanos(batch: &Profiles, profile: &Profile) -> Option<u64> {
    let unit = unit_nanos(batch.dictionary().string_bytes(profile.period_type.unit))?;
    let period = u64::try_from(profile.period).ok().filter(|&period| period > 0)?;
    Some(period.saturating_mul(unit))
}

/// The nanoseconds of a unit of time, as UCUM or pprof write it.
fn unit_nanos(unit: &[u8]) -> Option<u64> {
    match unit {
        b"nanoseconds" | b"nanosecond" | b"ns" => Some(1),
        b"microseconds" | b"microsecond" | b"us" => Some(1_000),
        b"milliseconds" | b"millisecond" | b"ms" => Some(1_000_000),
        b"seconds" | b"second" | b"s" => Some(1_000_000_000),
        _ => None,
    }
}

fn mode(batch: &Profiles, profile: &Profile) -> Mode {
    let name = |value: ValueType| batch.dictionary().string(value.kind).to_ascii_lowercase();
    match mode_of(&name(profile.sample_type)) {
        Mode::Other => mode_of(&name(profile.period_type)),
        known => known,
    }
}

/// Names of sample and period types: the eBPF profiler's (`samples`, `cpu`, `off_cpu`), pprof's of Go (`cpu`,
/// `delay`), async-profiler's (`cpu`, `wall`, `lock`), and their usual variants.
fn mode_of(name: &str) -> Mode {
    match name {
        "wall" | "wall_time" | "wall-time" | "walltime" | "wallclock" | "wall_clock" | "real" => Mode::Wall,
        "cpu" | "cpu_time" | "cpu-time" | "process_cpu" | "on_cpu" | "on-cpu" | "itimer" | "ctimer" => Mode::Cpu,
        "off_cpu" | "off-cpu" | "offcpu" => Mode::OffCpu,
        // The time threads waited for each other: it is blocked time, and overlaps whatever else is recorded.
        "delay" | "contention" | "contentions" | "lock" | "mutex" | "block" => Mode::OffCpu,
        _ => Mode::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: units of time are told from others (UCUM, and pprof's long forms).
    #[test]
    fn units() {
        assert_eq!(unit_nanos(b"nanoseconds"), Some(1));
        assert_eq!(unit_nanos(b"ms"), Some(1_000_000));
        assert_eq!(unit_nanos(b"s"), Some(1_000_000_000));
        for other in [&b"count"[..], b"bytes", b"By", b"", b"hertz"] {
            assert_eq!(unit_nanos(other), None);
        }
    }

    /// Guarantees: a timestamp beats time, time beats counts; within a shape the preferred mode wins.
    #[test]
    fn order() {
        let settings = Settings::default();
        let timed = Meaning { unit_nanos: 1, timed_values: true, wall: false, ends_at_timestamp: false };
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
