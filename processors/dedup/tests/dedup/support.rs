//! Test helpers: builds profiles, and reads the output.

use profbridge_engine::component::{Now, Outbox, process_all};
use profbridge_engine::config::Section;
use profbridge_model::{Builder, Profile, Profiles, Telemetry};
use profbridge_processor_dedup::{Config, Dedup};

/// A second in nanoseconds.
pub(crate) const S: u64 = 1_000_000_000;
/// When the tests take place.
pub(crate) const T: u64 = 1_767_225_600 * S;

/// A processor configured in YAML.
pub(crate) fn dedup(yaml: &str) -> Dedup {
    let section = Section::from_yaml(yaml).unwrap();
    Dedup::new(section.extract::<Config>().unwrap().check(&section).unwrap())
}

/// The time, so many nanoseconds after [`T`].
pub(crate) fn at(nanos: u64) -> Now {
    Now { monotonic_nano: 5 * S + nanos, unix_nano: T + nanos }
}

/// A batch of one profile that starts at `start` and has these frames and times. With `turned`, the tables have another
/// order.
pub(crate) fn batch(start: u64, frames: &[&str], times: &[u64], turned: bool) -> Profiles {
    let mut builder = Builder::new();
    if turned {
        for frame in frames.iter().rev() {
            builder.frame(frame, "main.rs", 1);
        }
    }
    builder.resource(&[("service.name", "a".into()), ("process.pid", 1.into())]);
    let sample_type = builder.value_type("samples", "count");
    builder.profile(Profile { sample_type, time_unix_nano: start, ..Profile::default() });
    let locations: Vec<_> = frames.iter().map(|frame| builder.frame(frame, "main.rs", 1)).collect();
    let stack = builder.stack(&locations);
    builder.sample(stack, None, None, times, &[]);
    builder.finish().unwrap()
}

/// Passes telemetry to a processor.
pub(crate) fn process(dedup: &mut Dedup, batch: impl Into<Telemetry>, now: Now) -> Outbox {
    let mut out = Outbox::default();
    process_all(dedup, batch.into(), now, &mut out);
    out
}

/// The output, in order.
pub(crate) fn batches(out: &Outbox) -> Vec<Profiles> {
    let profiles = |telemetry: &Telemetry| match telemetry {
        Telemetry::Profiles(profiles) => Some(profiles.clone()),
        Telemetry::Spans(_) | Telemetry::Envelope(_) => None,
    };
    out.telemetry.iter().filter_map(profiles).collect()
}

/// The number of sent observations.
pub(crate) fn observations(out: &Outbox) -> Vec<u64> {
    batches(out).iter().map(Profiles::observations).collect()
}
