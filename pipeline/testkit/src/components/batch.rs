//! A batch of a given size.

use profbridge_model::{Builder, Profiles};

/// A batch with this many observations in each of its profiles, all with one stack of two functions.
///
/// # Panics
///
/// Never: the batch is far below all limits.
#[allow(clippy::unwrap_used, reason = "it is for tests")]
pub fn batch(observations: &[u64]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[("service.name", "checkout".into())]);
    builder.scope("test", "1");
    let leaf = builder.frame("parse", "main.rs", 7);
    let root = builder.frame("main", "main.rs", 1);
    let stack = builder.stack(&[leaf, root]);
    for count in observations {
        builder.on_cpu(20);
        let times: Vec<u64> = (1..=*count).collect();
        if let Some(profile) = builder.open_profile() {
            (profile.time_unix_nano, profile.duration_nano) = (1, *count);
        }
        builder.sample(stack, None, None, &times, &[]);
    }
    builder.finish().unwrap()
}
