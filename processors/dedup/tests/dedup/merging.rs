use std::collections::BTreeMap;

use profbridge_engine::component::{Outbox, Processor, flush_all};
use profbridge_model::whole_chunk::{CHUNK_SAMPLES, PROFILER_ID};
use profbridge_model::{Builder, Profile, Profiles};
use profbridge_processor_dedup::{CLOSED_EARLY, PAYLOAD_REMOVED};
use proptest::prelude::*;

use crate::support::*;

/// (service, kind, frames, link) and the observations there, in order.
type Observed = BTreeMap<(String, String, Vec<String>, Option<u8>), Vec<(u64, i64)>>;

/// (service, kind, frames, link, observations): one sample as it is sent.
type Sent = (u8, u8, Vec<u8>, Option<u8>, Vec<(u64, i64)>);

fn request(samples: &[Sent]) -> Profiles {
    let mut builder = Builder::new();
    for (service, kind, frames, link, observations) in samples {
        builder.resource(&[("service.name", (&format!("service {service}")).into())]);
        let sample_type = builder.value_type(&format!("kind {kind}"), "count");
        builder.profile(Profile { sample_type, ..Profile::default() });
        let locations: Vec<_> = frames.iter().map(|frame| builder.frame(&format!("f{frame}"), "", 1)).collect();
        let stack = builder.stack(&locations);
        let link = link.and_then(|link| builder.link([link; 16], [link; 8]));
        let (times, values): (Vec<_>, Vec<_>) = observations.iter().copied().unzip();
        builder.sample(stack, None, link, &times, &values);
    }
    builder.finish().unwrap()
}

fn observed(batch: &Profiles, all: &mut Observed) -> usize {
    let dictionary = batch.dictionary();
    let mut samples = 0;
    for resource in batch.resources() {
        let service = match batch.find(&resource.resource.attributes, "service.name") {
            Some(profbridge_model::Value::String(id)) => dictionary.string(*id).to_owned(),
            other => panic!("{other:?}"),
        };
        for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
            let kind = dictionary.string(profile.sample_type.kind).to_owned();
            for sample in batch.samples(profile) {
                let frames = dictionary.stack(sample.stack).map(|id| {
                    let line = dictionary.lines(dictionary.location(id.unwrap()))[0];
                    dictionary.string(dictionary.function(line.function.unwrap()).name).to_owned()
                });
                let link = sample.link.map(|id| dictionary.link(id).span_id[0]);
                let key = (service.clone(), kind.clone(), frames.collect(), link);
                all.entry(key).or_default().extend(sample.timestamps().zip(sample.values()));
                samples += 1;
            }
        }
    }
    samples
}

proptest! {
    /// Guarantees: the merged data equals a plain map: every observation at its identity, in order of arrival, in one
    /// sample per identity, in one batch whose dictionary has no duplicates.
    /// rule: otep-0239#aggregation
    #[test]
    fn merges_as_a_map_does(requests in prop::collection::vec(prop::collection::vec(
        (0u8..2, 0u8..2, prop::collection::vec(0u8..3, 0..4), prop::option::of(1u8..3), prop::collection::vec((any::<u64>(), any::<i64>()), 1..4)), 0..6), 1..6))
    {
        let mut dedup = dedup("window: 5s");
        let mut expected = Observed::new();
        for samples in &requests {
            let batch = request(samples);
            observed(&batch, &mut expected);
            prop_assert!(process(&mut dedup, batch, at(0)).telemetry.is_empty());
        }
        let mut out = Outbox::default();
        flush_all(&mut dedup, at(0), &mut out);
        let mut found = Observed::new();
        let merged = batches(&out);
        prop_assert!(merged.len() <= 1);
        for batch in &merged {
            prop_assert_eq!(observed(batch, &mut found), expected.len());
            let tables = batch.dictionary().tables();
            let mut strings: Vec<_> = tables.strings.iter().map(|&span| batch.dictionary().bytes(span)).collect();
            strings.sort_unstable();
            let count = strings.len();
            strings.dedup();
            prop_assert_eq!(strings.len(), count);
            prop_assert_eq!(batch.resources().len(), expected.keys().map(|key| &key.0).collect::<std::collections::BTreeSet<_>>().len());
        }
        prop_assert_eq!(found, expected);
    }
}

/// Guarantees: merging twice as many requests is at most twice the work, whether or not they repeat each other.
#[test]
fn merging_is_linear() {
    let work = |requests: u64, distinct: bool| {
        let mut dedup = dedup("window: 5s");
        for n in 0..requests {
            let mut builder = Builder::new();
            builder.resource(&[("service.name", "a".into())]);
            for frame in 0..200 {
                let name = if distinct { format!("f{n} {frame}") } else { format!("f{frame}") };
                let location = builder.frame(&name, "main.rs", 1);
                let stack = builder.stack(&[location]);
                builder.sample(stack, None, None, &[T + n], &[]);
            }
            process(&mut dedup, builder.finish().unwrap(), at(0));
        }
        dedup.work()
    };
    for distinct in [false, true] {
        let (one, two) = (work(32, distinct), work(64, distinct));
        assert!(two.lookups <= 2 * one.lookups, "{one:?} {two:?}");
        assert!(two.comparisons <= two.lookups + two.lookups / 4, "{two:?}");
    }
}

/// Guarantees: requests relayed for several machines are not merged, since equal resources may be of different
/// machines.
#[test]
fn relayed_requests_are_not_merged() {
    let mut dedup = dedup("window: 10s");
    let mut relayed = batch(T, &["f"], &[T], false);
    relayed.relayed = true;
    let out = process(&mut dedup, relayed, at(0));
    assert_eq!(observations(&out), [1]);
    assert!(batches(&out)[0].relayed);
    assert_eq!(dedup.due(), None);
}

/// Guarantees: a request that contains a Sentry chunk is passed on unchanged.
/// rule: round-trip#whole
#[test]
fn chunks_are_not_merged() {
    let mut builder = Builder::new();
    builder.resource(&[(PROFILER_ID, "00112233445546778899aabbccddeeff".into())]);
    let attributes = builder.attributes(&[(CHUNK_SAMPLES, 1.into())]);
    builder.profile(Profile { attributes, ..Profile::default() });
    builder.sample(None, None, None, &[T], &[]);
    let out = process(&mut dedup("window: 10s"), builder.finish().unwrap(), at(0));
    assert_eq!(observations(&out), [1]);
}

/// Guarantees: a window closes when its length has passed since its first request, and each peer has its own.
#[test]
fn windows_close_by_age() {
    let mut dedup = dedup("window: 10s");
    let from = |peer: &str, time| {
        let mut batch = batch(T, &["f"], &[time], false);
        batch.peer = Some(peer.into());
        batch
    };
    process(&mut dedup, from("p", T), at(0));
    process(&mut dedup, from("q", T), at(3 * S));
    process(&mut dedup, from("p", T + 1), at(9 * S));
    assert_eq!(dedup.due(), Some(at(10 * S).monotonic_nano));
    let mut out = Outbox::default();
    dedup.advance(at(10 * S), &mut out);
    assert_eq!(observations(&out), [2]);
    assert_eq!(batches(&out)[0].peer.as_deref(), Some("p"));
    dedup.advance(at(13 * S), &mut out);
    assert_eq!(observations(&out), [2, 1]);
    assert_eq!(dedup.due(), None);
}

/// Guarantees: a window closes early at its limits, splitting a sample if necessary, and nothing is lost.
#[test]
fn windows_close_early() {
    let mut by_count = dedup("window: 10s\nmax_observations: 10");
    let times: Vec<_> = (0..25).map(|n| T + n).collect();
    let mut out = process(&mut by_count, batch(T, &["f"], &times, false), at(0));
    flush_all(&mut by_count, at(0), &mut out);
    assert_eq!(observations(&out), [10, 10, 5]);
    assert_eq!(out.notes, [(CLOSED_EARLY, 2)]);

    let mut by_size = dedup("window: 10s\nmax_bytes: 64KiB\nresends: keep");
    let mut left = 0;
    for n in 0..2000u64 {
        let out = process(&mut by_size, batch(T, &[&format!("a function, number {n}")], &[T + n], false), at(0));
        left += observations(&out).iter().sum::<u64>();
        assert!(by_size.held().bytes <= 80 << 10, "{:?}", by_size.held());
    }
    assert_eq!(left + by_size.held().quantities.total(), 2000);
    assert!(left > 0);
}

/// Guarantees: under memory pressure, the largest window is closed first.
#[test]
fn relief_closes_the_largest_window() {
    let mut dedup = dedup("window: 10s");
    for (peer, count) in [("p", 10), ("q", 10_000), ("r", 10)] {
        let times: Vec<_> = (0..count).map(|n| T + n * 999_983).collect();
        let mut batch = batch(T, &["f"], &times, false);
        batch.peer = Some(peer.into());
        process(&mut dedup, batch, at(0));
    }
    let mut out = Outbox::default();
    while dedup.on_memory_pressure(at(0), &mut out) {}
    assert_eq!(observations(&out), [10_000]);
    assert_eq!(dedup.held().quantities.total(), 20);
}

/// Guarantees: a profile whose payload is removed is counted once, wherever the steps of accepting its request end.
#[test]
fn payloads_are_counted_once() {
    let mut dedup = dedup("window: 10s");
    let mut builder = Builder::new();
    let payload = builder.bytes(b"the profiler's own file");
    // A step ends after the samples of the first profile.
    for samples in [8192, 1] {
        builder.profile(Profile { original_payload: payload, time_unix_nano: T, ..Profile::default() });
        for n in 0..samples {
            builder.sample(None, None, None, &[T + n], &[]);
        }
    }
    let out = process(&mut dedup, builder.finish().unwrap(), at(0));
    assert_eq!(out.notes, [(PAYLOAD_REMOVED, 2)]);
}
