//! How a profile's numbers measure time.

use opentelemetry_proto::tonic::profiles::v1development::{Profile, ProfilesDictionary, Sample, ValueType};

use super::attributes::string;

/// How a profile measures time. Among the profiles of a process, only those of the highest kind are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimeMeasure {
    /// Values count samples of a known period.
    CountTimesPeriod,
    /// Values are CPU time.
    CpuTime,
    /// Values are wall-clock time.
    WallTime,
    /// Samples have timestamps.
    Timestamped,
    /// Samples have timestamps and measure wall-clock time.
    TimestampedWall,
}

/// A profile's kind and the nanoseconds per unit of its values (or per timestamp, without values).
#[derive(Clone, Copy, Debug)]
pub(super) struct NaiveMeaning {
    pub(super) kind: TimeMeasure,
    unit: u64,
}

impl NaiveMeaning {
    /// The weight in nanoseconds of a sample's `position`-th observation.
    pub(super) fn weight(&self, sample: &Sample, position: usize) -> u64 {
        let value = sample.values.get(position).map_or(1, |&value| u64::try_from(value).unwrap_or(0));
        value.saturating_mul(self.unit)
    }
}

/// The meaning of `profile`; `None` if it measures no time, or off-CPU time although that is disabled.
pub(super) fn meaning(dictionary: &ProfilesDictionary, profile: &Profile, off_cpu: bool) -> Option<NaiveMeaning> {
    let (kind, unit) = names(dictionary, profile.sample_type.as_ref());
    if kind == "off_cpu" && !off_cpu {
        return None;
    }
    let counts = ["", "1", "count", "counts", "sample", "samples", "{sample}", "{samples}"].contains(&unit);
    let unit = nanoseconds(unit).or_else(|| counts.then(|| period(dictionary, profile))?)?;
    let wall = matches!(kind, "wall" | "off_cpu");
    let counted = nanoseconds(names(dictionary, profile.sample_type.as_ref()).1).is_none();
    let timestamped = profile.samples.iter().any(|sample| !sample.timestamps_unix_nano.is_empty());
    let kind = match (timestamped, wall, counted) {
        (true, true, _) => TimeMeasure::TimestampedWall,
        (true, false, _) => TimeMeasure::Timestamped,
        (false, _, true) => TimeMeasure::CountTimesPeriod,
        (false, true, false) => TimeMeasure::WallTime,
        (false, false, false) => TimeMeasure::CpuTime,
    };
    Some(NaiveMeaning { kind, unit })
}

/// The period in nanoseconds, if it is a duration.
fn period(dictionary: &ProfilesDictionary, profile: &Profile) -> Option<u64> {
    let unit = nanoseconds(names(dictionary, profile.period_type.as_ref()).1)?;
    let period = u64::try_from(profile.period).ok().filter(|&period| period > 0)?;
    period.checked_mul(unit)
}

fn names<'a>(dictionary: &'a ProfilesDictionary, kind: Option<&ValueType>) -> (&'a str, &'a str) {
    kind.map_or(("", ""), |kind| (string(dictionary, kind.type_strindex), string(dictionary, kind.unit_strindex)))
}

fn nanoseconds(unit: &str) -> Option<u64> {
    match unit {
        "nanoseconds" | "ns" => Some(1),
        "microseconds" | "us" => Some(1_000),
        "milliseconds" | "ms" => Some(1_000_000),
        "seconds" | "s" => Some(1_000_000_000),
        _ => None,
    }
}
