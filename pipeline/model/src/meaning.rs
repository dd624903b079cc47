//! How the numbers of a profile relate to time.
//!
//! OTLP expresses this by names: the type and unit of the values, and the type and unit of the period
//! (opentelemetry-proto `profiles.proto`, `Profile.sample_type` and `Profile.period_type`).

use crate::dictionary::Dictionary;
use crate::profiles::{Profile, Profiles, ValueType};

/// How the observations of a profile measure time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meaning {
    /// The nanoseconds of one unit of a value, or of one timestamp without a value.
    pub unit_nanos: u64,
    /// The period in nanoseconds; 0 if there is none or it is not a duration.
    pub period_nanos: u64,
    /// Whether each value is a duration, which may differ between observations.
    pub timed_values: bool,
    /// Whether waiting threads are sampled too.
    pub wall: bool,
    /// Whether the timestamp of an observation is the end of the time that it covers: the eBPF profiler reports a
    /// blocked thread when it runs again (open-telemetry/opentelemetry-ebpf-profiler `support/ebpf/off_cpu.ebpf.c`).
    pub ends_at_timestamp: bool,
}

/// The value types that are not durations ([`Reason::NoTimeUnit`](crate::Reason::NoTimeUnit)) and were already
/// reported, so that each is reported once.
#[derive(Debug, Clone, Default)]
pub struct TimelessTypes(Vec<String>);

impl TimelessTypes {
    /// The maximum number of distinguished types.
    const MOST: usize = 64;

    /// Returns the value types of a batch that are not durations and are new, as text with type and unit.
    pub fn look_at(&mut self, profiles: &Profiles) -> Vec<String> {
        let dictionary = profiles.dictionary();
        let mut new = Vec::new();
        for profile in profiles.profiles() {
            let is_time = Meaning::of(dictionary, profile).is_some();
            if is_time || profile.samples.is_empty() || self.0.len() >= Self::MOST {
                continue;
            }
            let short = |id| dictionary.string(id).chars().take(64).collect::<String>();
            let (kind, unit) = (short(profile.sample_type.kind), short(profile.sample_type.unit));
            let why = "only units of time, and counts of samples with a period in one, say where time goes";
            let words = format!("the values of type {kind:?} have the unit {unit:?}; {why}");
            if !self.0.contains(&words) {
                self.0.push(words.clone());
                new.push(words);
            }
        }
        new
    }
}

/// The kind of time that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Elapsed time, including waiting.
    Wall,
    /// Time on a CPU.
    Cpu,
    /// Time during which a thread was blocked.
    OffCpu,
    /// None of these, or unknown.
    Other,
}

impl Meaning {
    /// How a profile's numbers measure time; `None` if they do not: the values have no unit of time, and are not counts
    /// with a period that is a duration. Bytes never measure time, whatever the period: in a memory profile the period
    /// only says how often the profiler samples.
    pub fn of(dictionary: &Dictionary, profile: &Profile) -> Option<Self> {
        let unit = dictionary.string_bytes(profile.sample_type.unit);
        let value = unit_nanos(unit);
        let period = period_nanos(dictionary, profile);
        let unit_nanos = match value {
            Some(nanos) => nanos,
            None => period.filter(|_| is_count(unit))?,
        };
        let period_nanos = period.unwrap_or(0);
        let mode = Mode::of(dictionary, profile);
        let (wall, ends_at_timestamp) = (mode == Mode::Wall, mode == Mode::OffCpu);
        Some(Self { unit_nanos, period_nanos, timed_values: value.is_some(), wall, ends_at_timestamp })
    }
}

impl Mode {
    /// The mode according to the type of the values, or else to that of the period.
    pub fn of(dictionary: &Dictionary, profile: &Profile) -> Self {
        let name = |value: ValueType| dictionary.string(value.kind).to_ascii_lowercase();
        match Self::named(&name(profile.sample_type)) {
            Self::Other => Self::named(&name(profile.period_type)),
            known => known,
        }
    }

    /// Names of sample and period types: the eBPF profiler's (`samples`, `cpu`, `off_cpu`), those of Go's pprof (`cpu`,
    /// `delay`), async-profiler's (`cpu`, `wall`, `lock`), and their usual variants.
    fn named(name: &str) -> Self {
        match name {
            "wall" | "wall_time" | "wall-time" | "walltime" | "wallclock" | "wall_clock" | "real" => Self::Wall,
            "cpu" | "cpu_time" | "cpu-time" | "process_cpu" | "on_cpu" | "on-cpu" | "itimer" | "ctimer" => Self::Cpu,
            "off_cpu" | "off-cpu" | "offcpu" => Self::OffCpu,
            // Time during which threads waited for each other: it is blocked time and overlaps whatever else is
            // recorded.
            "delay" | "contention" | "contentions" | "lock" | "mutex" | "block" => Self::OffCpu,
            _ => Self::Other,
        }
    }
}

/// The period in nanoseconds, if it is a positive duration.
fn period_nanos(dictionary: &Dictionary, profile: &Profile) -> Option<u64> {
    let unit = unit_nanos(dictionary.string_bytes(profile.period_type.unit))?;
    let period = u64::try_from(profile.period).ok().filter(|&period| period > 0)?;
    Some(period.saturating_mul(unit))
}

/// The nanoseconds per unit, for units of time as UCUM or pprof write them.
pub fn unit_nanos(unit: &[u8]) -> Option<u64> {
    match unit {
        b"nanoseconds" | b"nanosecond" | b"ns" => Some(1),
        b"microseconds" | b"microsecond" | b"us" => Some(1_000),
        b"milliseconds" | b"millisecond" | b"ms" => Some(1_000_000),
        b"seconds" | b"second" | b"s" => Some(1_000_000_000),
        _ => None,
    }
}

/// Whether a unit counts samples, as UCUM (1, an annotation), pprof (`count`) or other profilers write it.
pub fn is_count(unit: &[u8]) -> bool {
    matches!(unit, b"" | b"1" | b"count" | b"counts" | b"sample" | b"samples" | b"{sample}" | b"{samples}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: units of time are distinguished from others (UCUM, and pprof's long forms).
    /// rule: otep-0239#unit
    #[test]
    fn units() {
        assert_eq!(unit_nanos(b"nanoseconds"), Some(1));
        assert_eq!(unit_nanos(b"ms"), Some(1_000_000));
        assert_eq!(unit_nanos(b"s"), Some(1_000_000_000));
        for other in [&b"count"[..], b"bytes", b"By", b"", b"hertz"] {
            assert_eq!(unit_nanos(other), None);
        }
    }

    /// Guarantees: units that count samples are distinguished from all others.
    #[test]
    fn counts() {
        for count in ["", "1", "count", "samples", "{sample}"] {
            assert!(is_count(count.as_bytes()), "{count}");
        }
        for other in ["bytes", "By", "hertz", "ns", "%", "objects", "Count "] {
            assert!(!is_count(other.as_bytes()), "{other}");
        }
    }

    /// Guarantees: a type that is not a duration is reported once, with its unit; durations and empty profiles are not.
    #[test]
    fn timeless_types_are_said_once() {
        let mut builder = crate::Builder::new();
        for (unit, samples) in [("bytes", 2), ("count", 1), ("By", 0)] {
            builder.resource(&[]);
            let sample_type = builder.value_type("alloc_space", unit);
            let period_type = builder.value_type("cpu", "nanoseconds");
            builder.profile(Profile { sample_type, period_type, period: 1, ..Profile::default() });
            (0..samples).for_each(|_| builder.sample(None, None, None, &[], &[3]));
        }
        let batch = builder.finish().unwrap();
        let mut types = TimelessTypes::default();
        let said = types.look_at(&batch);
        assert!(matches!(&*said, [one] if one.contains("\"alloc_space\" have the unit \"bytes\"")), "{said:?}");
        assert!(types.look_at(&batch).is_empty());
    }
}
