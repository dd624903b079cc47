//! Test helpers: builds profiles, and reads the output.

use profbridge_engine::component::Outbox;
use profbridge_engine::config::Section;
use profbridge_model::{Builder, Profile, Profiles};
use profbridge_processor_dedup::{Config, Dedup};
pub(crate) use profbridge_testkit::{SECOND as S, START_UNIX_NANO as T, at, process, sent_profiles as batches};

/// A processor configured in YAML.
pub(crate) fn dedup(yaml: &str) -> Dedup {
    let section = Section::from_yaml(yaml).unwrap();
    Dedup::new(section.extract::<Config>().unwrap().check(&section).unwrap())
}

/// A batch of one profile that starts at `start` and has these frames and times. With `turned`, the order of the tables
/// is different.
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

/// The number of sent observations.
pub(crate) fn observations(out: &Outbox) -> Vec<u64> {
    batches(out).iter().map(Profiles::observations).collect()
}
