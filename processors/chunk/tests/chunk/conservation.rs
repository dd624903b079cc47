use fastrand::Rng;
use profbridge_engine::component::{Now, Outbox, Processor, flush_all, process_all};
use profbridge_model::builder::Any;
use profbridge_model::{Builder, Envelope, ItemView, Profile, Profiles, Telemetry};
use profbridge_testkit as testing;
use proptest::prelude::*;

use crate::support::*;

const SETTINGS: [(&str, &str); 6] = [
    ("", ""),
    ("window: 0s", ""),
    ("window: 0s", "max_observations: 3"),
    ("window: 7s, session: 30s", "lateness: 0s\nmax_observations: 4"),
    ("", "max_processes: 2\nmax_window_bytes: 4KiB\nmax_bytes: 8KiB"),
    ("window: 1s, attributes: [instance, container]", "max_dictionary_age: 1s\nmax_dictionary_bytes: 1"),
];

/// A batch with random contents: processes in resources and samples, times near and far, with and without values,
/// links, and profiles of every shape.
fn batch(random: &mut Rng, now: Now) -> Profiles {
    any_batch(random, now, true)
}

/// Like [`batch`]. Unless `long` is set, no observation and no profile is longer than a window.
fn any_batch(random: &mut Rng, now: Now, long: bool) -> Profiles {
    let mut builder = Builder::new();
    for _ in 0..random.usize(1..4) {
        let pid = random.i64(1..4);
        let mut resource: Vec<(&str, Any<'_>)> = vec![("service.name", ["a", "b"][random.usize(0..2)].into())];
        if random.bool() {
            resource.push(("host.name", ["x", "y"][random.usize(0..2)].into()));
        }
        if random.bool() {
            resource.push(("process.pid", pid.into()));
        }
        builder.resource(&resource);
        builder.scope(["s", "t"][random.usize(0..2)], "1");
        for _ in 0..random.usize(0..3) {
            let sample_type = builder.value_type(["cpu", "wall"][random.usize(0..2)], "nanoseconds");
            let time_unix_nano = if random.bool() { 0 } else { now.unix_nano - random.u64(0..90 * S) };
            let duration_nano = random.u64(0..if long { 70 * S } else { S });
            let period = random.i64(1..3);
            builder.profile(Profile { sample_type, time_unix_nano, duration_nano, period, ..Profile::default() });
            for _ in 0..random.usize(0..5) {
                let frames: Vec<_> = (0..random.usize(0..4))
                    .map(|_| builder.frame(["f", "g", "h"][random.usize(0..3)], "", 1))
                    .collect();
                let stack = builder.stack(&frames);
                let mut attributes: Vec<(&str, Any<'_>)> = vec![("thread.id", random.i64(1..3).into())];
                if random.bool() {
                    attributes.push(("process.pid", random.i64(1..4).into()));
                }
                if random.u8(0..4) == 0 {
                    attributes.push(("container.id", "c".into()));
                }
                let attributes = builder.attributes(&attributes);
                let link = if random.bool() { builder.link([random.u8(1..3); 16], [1; 8]) } else { None };
                let time = |random: &mut Rng| match random.u8(0..12) {
                    0 => random.u64(..),
                    1 => [0, u64::MAX][random.usize(0..2)],
                    _ => now.unix_nano - random.u64(0..100 * S),
                };
                let times: Vec<u64> = (0..random.usize(0..6)).map(|_| time(random)).collect();
                let count = if times.is_empty() { random.usize(1..3) } else { times.len() * random.usize(0..2) };
                let value = |random: &mut Rng| match random.u8(..) {
                    _ if !long => random.i64(..=1),
                    0 => random.i64(..),
                    1..16 => random.i64(-10..200 * S as i64),
                    _ => random.i64(-10..S as i64 / 10),
                };
                let values: Vec<i64> = (0..count).map(|_| value(random)).collect();
                builder.sample(stack, attributes, link, &times, &values);
            }
        }
    }
    let mut batch = builder.finish().unwrap();
    batch.peer = [None, Some("p".into()), Some("q".into())][random.usize(0..3)].clone();
    batch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Guarantees: every call accounts for every observation, whatever the data, the settings and the times, and
    /// nothing is due or held after a flush.
    #[test]
    fn conserves(seed in any::<u64>(), settings in 0..SETTINGS.len()) {
        let mut processor = chunk(SETTINGS[settings].0, SETTINGS[settings].1);
        testing::check_processor(&mut processor, seed, |random, now| {
            if random.u8(0..10) == 0 { testing::telemetry(random, 20, now) } else { batch(random, now).into() }
        });
        prop_assert!(processor.held().bytes < 4096, "{:?}", processor.held());
    }

    /// Guarantees: the output equals the input, observation by observation, with all properties; each batch has one
    /// process, is no longer than a minute, and lies within its window. (Data longer than a window is split, see the
    /// modules `long` and `owned`.)
    #[test]
    fn keeps_every_observation(seed in any::<u64>(), settings in 0..SETTINGS.len()) {
        let mut random = Rng::with_seed(seed);
        let mut processor = chunk(SETTINGS[settings].0, SETTINGS[settings].1);
        let mut out = Outbox::default();
        let mut expected = Vec::new();
        for step in 0..random.u64(1..12) {
            let now = at(200 * S + step * random.u64(1..20) * S);
            let batch = any_batch(&mut random, now, false);
            expected.extend(seen(&batch));
            process_all(&mut processor, batch.into(), now, &mut out);
            match random.u8(0..6) {
                0 => while processor.on_memory_pressure(now, &mut out) {},
                1 => processor.advance(now, &mut out),
                _ => {}
            }
        }
        flush_all(&mut processor, at(0), &mut out);
        let mut found = Vec::new();
        for batch in batches(&out) {
            let window = batch.window.clone().unwrap();
            prop_assert!(window.end_unix_nano - window.start_unix_nano <= 60 * S);
            let observations = seen(&batch);
            for seen in &observations {
                let time = seen.time.unwrap_or(window.start_unix_nano);
                prop_assert!(window.start_unix_nano <= time && time <= window.end_unix_nano);
            }
            let pids: std::collections::BTreeSet<_> = observations.iter().map(|seen| seen.attributes.get("process.pid")).collect();
            prop_assert_eq!(pids.len(), 1, "one process per batch");
            found.extend(observations);
        }
        expected.sort();
        found.sort();
        prop_assert_eq!(found, expected);
        prop_assert!(out.losses.is_none());
    }

    /// Guarantees: the same calls give the same batches in the same order.
    #[test]
    fn is_deterministic(seed in any::<u64>(), settings in 0..SETTINGS.len()) {
        let run = || {
            let mut random = Rng::with_seed(seed);
            let mut processor = chunk(SETTINGS[settings].0, SETTINGS[settings].1);
            let mut out = Outbox::default();
            for step in 0..8 {
                let now = at(100 * S + step * 9 * S);
                process_all(&mut processor, batch(&mut random, now).into(), now, &mut out);
                processor.advance(now, &mut out);
            }
            while processor.on_memory_pressure(at(200 * S), &mut out) {}
            flush_all(&mut processor, at(300 * S), &mut out);
            let window = |batch: &Profiles| batch.window.as_ref().map(|window| (window.profiler_id, window.start_unix_nano));
            let batches = batches(&out);
            batches.iter().map(|batch| (window(batch), seen(batch))).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}

/// Guarantees: an envelope passes unchanged.
#[test]
fn envelopes_pass() {
    for identity in MODES {
        let envelope = Envelope { views: vec![ItemView::profiles(0, one(&process(1), &[T]))], ..Envelope::default() };
        let out = process_one(&mut chunk(identity, ""), envelope, at(0));
        assert!(matches!(&out.telemetry[..], [Telemetry::Envelope(envelope)] if envelope.views.len() == 1));
    }
}
