//! Random telemetry: small, valid, and with all shapes that make counting difficult.

use bytes::Bytes;
use profbridge_model::buffer::ByteRange;
use profbridge_model::dictionary::{Attribute, Value};
use profbridge_model::{
    Builder, Envelope, Item, ItemView, Profile, Profiles, Resource, ResourceProfiles, Scope, ScopeProfiles, Telemetry,
};

use profbridge_engine::component::Now;

/// A batch with up to `max_samples` samples, of random processes and stacks, around the time `now`. Samples have many
/// timestamps, one or none; some profiles have no samples.
///
/// # Panics
///
/// If the model refuses the batch, which is a bug in this helper.
pub fn profiles(random: &mut fastrand::Rng, max_samples: usize, now: Now) -> Profiles {
    let mut builder = Builder::new();
    let names: Vec<String> = (0..6).map(|n| format!("function_{n}")).collect();
    let frames: Vec<_> = names.iter().map(|name| builder.frame(name, "main.rs", 7)).collect();
    let mut left = random.usize(0..=max_samples);
    for _ in 0..random.usize(1..4) {
        let attributes = process_attributes(&mut builder, random);
        let resource = Resource { attributes, ..Resource::default() };
        builder.resource_profiles(ResourceProfiles { resource, ..ResourceProfiles::default() });
        builder.scope_profiles(ScopeProfiles { scope: Scope::default(), ..ScopeProfiles::default() });
        for _ in 0..random.usize(1..4) {
            builder.on_cpu(*random.choice(&[19, 20, 97, 101]).unwrap_or(&20));
            if let Some(profile) = builder.open_profile() {
                stamp(profile, random, now);
            }
            for _ in 0..random.usize(0..=left) {
                left -= 1;
                let depth = random.usize(0..5);
                let stack: Vec<_> = (0..depth).map(|_| frames[random.usize(0..frames.len())]).collect();
                let stack = builder.stack(&stack);
                let count = *random.choice(&[0, 1, 1, 2, 7]).unwrap_or(&1);
                let mut times: Vec<u64> = (0..count).map(|_| shortly_before(random, now)).collect();
                times.sort_unstable();
                let values: Vec<i64> = match (count, random.bool()) {
                    (0, _) => vec![random.i64(1..5)],
                    (_, true) => (0..count).map(|_| random.i64(1..5)).collect(),
                    (_, false) => Vec::new(),
                };
                builder.sample(stack, None, None, &times, &values);
            }
        }
    }
    match builder.finish() {
        Ok(profiles) => profiles,
        Err(error) => panic!("the random batch is not valid: {error}"),
    }
}

/// A batch like that of [`profiles`], or sometimes an envelope with such batches and with items without a view.
///
/// # Panics
///
/// Like [`profiles`].
pub fn telemetry(random: &mut fastrand::Rng, max_samples: usize, now: Now) -> Telemetry {
    if random.u8(0..8) > 0 {
        return profiles(random, max_samples, now).into();
    }
    let views: Vec<ItemView> =
        (0..random.usize(0..3)).map(|item| ItemView::profiles(item, profiles(random, max_samples, now))).collect();
    let item =
        |header: &'static str| Item { header: Bytes::from_static(header.as_bytes()), payload: Bytes::new().into() };
    let mut items = vec![item("{\"type\":\"profile_chunk\"}"); views.len()];
    items.resize(views.len() + random.usize(0..3), item("{\"type\":\"event\"}"));
    Envelope { items, views, ..Envelope::default() }.into()
}

fn process_attributes(builder: &mut Builder, random: &mut fastrand::Rng) -> Vec<Attribute> {
    let mut attributes = Vec::new();
    let host = format!("host-{}", random.u8(0..2));
    for (key, value) in [("host.name", host.as_str()), ("service.name", "checkout")] {
        // Sometimes the process is unknown.
        if random.u8(0..5) > 0 {
            let (key, value) = (builder.string(key), builder.string(value));
            attributes.push(Attribute { key, value: Value::String(value), unit: None });
        }
    }
    let key = builder.string("process.pid");
    attributes.push(Attribute { key, value: Value::Int(random.i64(1..4)), unit: None });
    attributes
}

fn stamp(profile: &mut Profile, random: &mut fastrand::Rng, now: Now) {
    if random.bool() {
        profile.time_unix_nano = shortly_before(random, now);
        profile.duration_nano = random.u64(0..10_000_000_000);
    }
    if random.bool() {
        profile.profile_id = Some(random.u128(..).to_be_bytes());
    }
    profile.original_payload = ByteRange::default();
}

fn shortly_before(random: &mut fastrand::Rng, now: Now) -> u64 {
    now.unix_nano.saturating_sub(random.u64(0..90_000_000_000))
}
