//! What the numbers of a profile say about time.
//!
//! OTLP leaves it to names: the type and unit of the values, and what a period counts (opentelemetry-proto
//! `profiles.proto`, `Profile.sample_type` and `Profile.period_type`).

use crate::dictionary::Dictionary;
use crate::profiles::{Profile, Profiles, ValueType};

/// How the observations of a profile tell time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meaning {
    /// The nanoseconds of one unit of a value, or of one timestamp without a value.
    pub unit_nanos: u64,
    /// The period in nanoseconds; 0 where there is none or it is no time.
    pub period_nanos: u64,
    /// Whether a value is a time of its own, which may differ for each observation.
    pub timed_values: bool,
    /// Whether threads are sampled while they wait, too.
    pub wall: bool,
    /// Whether an observation's timestamp is the end of the time it stands for: the eBPF profiler reports a blocked
    /// thread when it runs again (open-telemetry/opentelemetry-ebpf-profiler `support/ebpf/off_cpu.ebpf.c`).
    pub ends_at_timestamp: bool,
}

/// The types of values that were found to be no time ([`Reason::NoTimeUnit`](crate::Reason::NoTimeUnit)), so that each
/// is said once.
#[derive(Debug, Clone, Default)]
pub struct TimelessTypes(Vec<String>);

impl TimelessTypes {
    /// So many are told apart.
    const MOST: usize = 64;

    /// Returns the types of a batch that are no time and were not met yet, in words that name type and unit.
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

/// What kind of time is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Time that passed, waiting included.
    Wall,
    /// Time on a processor.
    Cpu,
    /// Time in which a thread was blocked.
    OffCpu,
    /// None of these, or unknown.
    Other,
}

impl Meaning {
    /// What a profile's numbers mean; `None` where they are no time: the values have no unit of time, and they are no
    /// counts or the period that each of these stands for is no time. Bytes are none, whatever the period says: that of
    /// a profiler which records memory says how often it looks.
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
    /// By the type of the values, else by that of the period.
    pub fn of(dictionary: &Dictionary, profile: &Profile) -> Self {
        let name = |value: ValueType| dictionary.string(value.kind).to_ascii_lowercase();
        match Self::named(&name(profile.sample_type)) {
            Self::Other => Self::named(&name(profile.period_type)),
            known => known,
        }
    }

    /// Names of sample and period types: the eBPF profiler's (`samples`, `cpu`, `off_cpu`), pprof's of Go (`cpu`,
    /// `delay`), async-profiler's (`cpu`, `wall`, `lock`), and their usual variants.
    fn named(name: &str) -> Self {
        match name {
            "wall" | "wall_time" | "wall-time" | "walltime" | "wallclock" | "wall_clock" | "real" => Self::Wall,
            "cpu" | "cpu_time" | "cpu-time" | "process_cpu" | "on_cpu" | "on-cpu" | "itimer" | "ctimer" => Self::Cpu,
            "off_cpu" | "off-cpu" | "offcpu" => Self::OffCpu,
            // The time threads waited for each other: it is blocked time, and overlaps whatever else is recorded.
            "delay" | "contention" | "contentions" | "lock" | "mutex" | "block" => Self::OffCpu,
            _ => Self::Other,
        }
    }
}

/// The period in nanoseconds, where there is one and it is a time.
fn period_nanos(dictionary: &Dictionary, profile: &Profile) -> Option<u64> {
    let unit = unit_nanos(dictionary.string_bytes(profile.period_type.unit))?;
    let period = u64::try_from(profile.period).ok().filter(|&period| period > 0)?;
    Some(period.saturating_mul(unit))
}

/// The nanoseconds of a unit of time, as UCUM or pprof write it.
pub fn unit_nanos(unit: &[u8]) -> Option<u64> {
    match unit {
        b"nanoseconds" | b"nanosecond" | b"ns" => Some(1),
        b"microseconds" | b"microsecond" | b"us" => Some(1_000),
        b"milliseconds" | b"millisecond" | b"ms" => Some(1_000_000),
        b"seconds" | b"second" | b"s" => Some(1_000_000_000),
        _ => None,
    }
}

/// Whether a unit is that of counted samples, as UCUM (1, an annotation), pprof (`count`) or other profilers write it.
pub fn is_count(unit: &[u8]) -> bool {
    matches!(unit, b"" | b"1" | b"count" | b"counts" | b"sample" | b"samples" | b"{sample}" | b"{samples}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: units of time are told from others (UCUM, and pprof's long forms).
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

    /// Guarantees: what counts samples is told from what has a unit of its own.
    #[test]
    fn counts() {
        for count in ["", "1", "count", "samples", "{sample}"] {
            assert!(is_count(count.as_bytes()), "{count}");
        }
        for other in ["bytes", "By", "hertz", "ns", "%", "objects", "Count "] {
            assert!(!is_count(other.as_bytes()), "{other}");
        }
    }

    /// Guarantees: a type that is no time is said once, with its unit; what is time, or has nothing in it, is not.
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
