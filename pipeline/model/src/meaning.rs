//! What the numbers of a profile say about time.
//!
//! OTLP leaves it to names: the type and unit of the values, and what a period counts (opentelemetry-proto
//! `profiles.proto`, `Profile.sample_type` and `Profile.period_type`).

use crate::dictionary::Dictionary;
use crate::profiles::{Profile, ValueType};

/// How the observations of a profile tell time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meaning {
    /// The nanoseconds of one unit of a value, or of one timestamp without a value.
    pub unit_nanos: u64,
    /// Whether a value is a time of its own, which may differ for each observation.
    pub timed_values: bool,
    /// Whether threads are sampled while they wait, too.
    pub wall: bool,
    /// Whether an observation's timestamp is the end of the time it stands for: the eBPF profiler reports a blocked
    /// thread when it runs again (open-telemetry/opentelemetry-ebpf-profiler `support/ebpf/off_cpu.ebpf.c`).
    pub ends_at_timestamp: bool,
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
    /// What a profile's numbers mean; `None` where they are no time: neither the values have a unit of time nor the
    /// period.
    pub fn of(dictionary: &Dictionary, profile: &Profile) -> Option<Self> {
        let value = unit_nanos(dictionary.string_bytes(profile.sample_type.unit));
        let unit_nanos = match value {
            Some(nanos) => nanos,
            None => period_nanos(dictionary, profile)?,
        };
        let mode = Mode::of(dictionary, profile);
        let (wall, ends_at_timestamp) = (mode == Mode::Wall, mode == Mode::OffCpu);
        Some(Self { unit_nanos, timed_values: value.is_some(), wall, ends_at_timestamp })
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
fn unit_nanos(unit: &[u8]) -> Option<u64> {
    match unit {
        b"nanoseconds" | b"nanosecond" | b"ns" => Some(1),
        b"microseconds" | b"microsecond" | b"us" => Some(1_000),
        b"milliseconds" | b"millisecond" | b"ms" => Some(1_000_000),
        b"seconds" | b"second" | b"s" => Some(1_000_000_000),
        _ => None,
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
}
