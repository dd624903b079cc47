use profbridge_engine::component::{Outbox, Processor, flush_all};
use profbridge_model::whole_chunk::{CHUNK_SAMPLES, PROFILER_ID};
use profbridge_model::{Builder, Profile};
use profbridge_processor_dedup::{CLOSED_EARLY, PAYLOAD_REMOVED};

use crate::support::*;

/// Guarantees: merging twice as many requests takes at most twice the work, whether or not they repeat each other.
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

/// Guarantees: a window closes when its length has passed since its first request, and each peer has its own window.
/// Equal samples of the window's requests become one sample of one resource.
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
    let merged = &batches(&out)[0];
    assert_eq!((merged.peer.as_deref(), merged.resources().len(), merged.columns().len()), (Some("p"), 1, 1));
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

/// Guarantees: a profile whose payload is removed is counted once, at whatever point the steps of absorbing its request
/// end.
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
