//! Tests of the time that Sentry attributes to each function, from the request through windows to finished chunks, by
//! brute force (`profbridge_testkit::owned`).

use bytes::Bytes;
use fastrand::Rng;
use profbridge_engine::component::{Now, flush_all};
use profbridge_relay_rules::validate_json;
use profbridge_testkit::naive::NaiveChunk;
use profbridge_testkit::{ExportProfilesServiceRequest, Frame, RequestBuilder, T0, owned};
use profbridge_wire::otlp::{self, Limits};
use profbridge_wire::sentry::chunk::{Collected, Converter, Settings};
use proptest::prelude::*;
use prost::Message;

use crate::support::*;

const WINDOWS: [&str; 3] = ["", "window: 0s", "window: 7s"];

/// The chunks of a request, including the time in which threads were blocked, and the nanoseconds counted as not shown.
fn chunks(identity: &str, request: &ExportProfilesServiceRequest) -> (Vec<NaiveChunk>, u64) {
    let decoded = otlp::decode(Bytes::from(request.encode_to_vec()), &Limits::default()).unwrap();
    let mut processor = chunk(identity, "");
    let now = Now { monotonic_nano: S, unix_nano: T0 + 300 * S };
    let mut out = process_one(&mut processor, decoded.profiles, now);
    flush_all(&mut processor, now, &mut out);
    assert!(out.losses.is_none(), "{}", out.losses);
    let mut converter = Converter::new(Settings { off_cpu: true, ..Settings::default() });
    let mut collected = Collected::default();
    let mut clipped = 0;
    for batch in batches(&out) {
        let report = converter.convert(&batch, &mut collected);
        assert!(report.balanced() && report.losses.is_none(), "{report:?}");
        clipped += report.notes.clipped_nanos;
    }
    let parse = |(json, _): &(Vec<u8>, _)| {
        assert_eq!(validate_json(json), Ok(()));
        serde_json::from_slice(json).unwrap()
    };
    (collected.chunks.iter().map(parse).collect(), clipped)
}

fn check(identity: &str, request: &ExportProfilesServiceRequest) -> Result<u64, TestCaseError> {
    let (chunks, clipped) = chunks(identity, request);
    let sampled = owned::sampled(request);
    let difference = owned::compare(&sampled, &owned::shown(&chunks, &sampled), clipped);
    prop_assert_eq!(difference, Ok(()), "{}", identity);
    for chunk in &chunks {
        prop_assert!(owned::unlisted(chunk).is_empty(), "{identity}: {:?}", owned::unlisted(chunk));
    }
    Ok(clipped)
}

/// A random function, usually one of a few.
fn stack(random: &mut Rng) -> [Frame; 2] {
    let function = random.u32(0..6).min(random.u32(0..60));
    [Frame::from(&format!("cpython!f{function}@/app/f.py:{function}")), Frame::from("cpython!main@/app/main.py:1")]
}

/// The times, in nanoseconds after [`T0`], at which a timer of this period samples a thread that runs intermittently:
/// stretched by `spacing`, with jitter and pauses, sometimes only once.
fn schedule(random: &mut Rng, period: u64, length: u64) -> Vec<u64> {
    let spacing = [1.0, 1.0, 1.01, 1.1, 1.4, 1.45][random.usize(0..6)];
    let jitter = period * random.u64(1..40) / 100;
    let mut at = random.u64(0..5 * S) as f64;
    let mut times = Vec::new();
    while at < length as f64 {
        let run = if random.bool() { random.u64(1..4) } else { random.u64(1..400) };
        times.extend((0..run).map(|n| (at + n as f64 * period as f64 * spacing) as u64 + random.u64(0..jitter)));
        at += run as f64 * period as f64 * spacing;
        at +=
            if random.u8(0..5) == 0 { random.u64(0..20 * S) } else { random.u64(0..5) * period } as f64 + period as f64;
    }
    times.retain(|&time| time < length);
    times.iter().map(|time| T0 + time).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Guarantees: with jittered timestamps, late timers, single samples, pauses and several threads, named or not,
    /// Sentry attributes to each function of each thread the sampled time and lists each function, wherever windows
    /// end.
    /// rule: differences#sample-time
    #[test]
    fn timestamps(seed in any::<u64>(), mode in 0..WINDOWS.len()) {
        let mut random = Rng::with_seed(seed);
        let hertz = [20, 101][random.usize(0..2)];
        let length = random.u64(1..150) * S;
        let mut builder = RequestBuilder::new().process("shop", 7).on_cpu(hertz).range(T0, length);
        for thread in 0..random.i64(1..4) {
            let is_named = random.u8(0..4) > 0;
            for time in schedule(&mut random, S / hertz as u64, length) {
                let stack = stack(&mut random);
                builder = if is_named { builder.sample(&stack, thread + 1_000, &[time]) } else { builder.raw_sample(&stack, &[], &[time]) };
            }
        }
        check(WINDOWS[mode], &builder.build())?;
    }

    /// Guarantees: the same holds for values without timestamps, however long their profile is, and no time is clipped.
    #[test]
    fn values(seed in any::<u64>(), mode in 0..WINDOWS.len()) {
        let mut random = Rng::with_seed(seed);
        let length = random.u64(1..200) * S;
        let mut builder = RequestBuilder::new().process("shop", 7).profile("cpu", "nanoseconds").range(T0 + 1, length);
        for thread in 0..random.i64(1..4) {
            let mut left = random.u64(1..=length);
            let is_named = random.u8(0..3) > 0;
            if !is_named { left *= random.u64(1..9); }
            while left > 0 {
                let value = random.u64(1..=left).min(random.u64(1..=3 * S));
                left = if random.u8(0..100) == 0 { 0 } else { left - value };
                builder = builder.value(&stack(&mut random), value as i64);
                if is_named { builder = builder.attr("thread.id", thread + 1_000); }
            }
        }
        prop_assert_eq!(check(WINDOWS[mode], &builder.build())?, 0);
    }

    /// Guarantees: the same holds for a thread that alternately waits and runs, each for as long as its value, across
    /// windows, and no time is clipped.
    #[test]
    fn waiting(seed in any::<u64>(), mode in 0..WINDOWS.len()) {
        let mut random = Rng::with_seed(seed);
        let length = random.u64(1..200) * S;
        let mut builder = RequestBuilder::new().process("shop", 7).profile("wall", "nanoseconds").range(T0, length);
        for thread in 0..random.i64(1..4) {
            let mut at = random.u64(0..S);
            while at < length {
                let value = if random.u8(0..8) == 0 { random.u64(1..100 * S) } else { S / 100 };
                builder = builder.blocked(&stack(&mut random), thread + 1_000, &[(T0 + at, value as i64)]);
                at += value + if random.u8(0..4) == 0 { random.u64(0..8 * S) } else { 0 };
            }
        }
        prop_assert_eq!(check(WINDOWS[mode], &builder.build())?, 0);
    }

    /// Guarantees: the same holds for threads that alternately run and are blocked, with the data of the eBPF profiler:
    /// the ticks at which a thread ran, and the end and the length of each blocked time.
    #[test]
    fn blocked(seed in any::<u64>(), mode in 0..WINDOWS.len()) {
        let mut random = Rng::with_seed(seed);
        let length = random.u64(1..150) * S;
        let (mut running, mut blocked) = (Vec::new(), Vec::new());
        for thread in 0..random.i64(1..4) {
            let mut at = random.u64(0..S);
            while at < length {
                for _ in 0..random.u64(1..20) {
                    running.push((stack(&mut random), thread + 1_000, T0 + at));
                    at += S / 20;
                }
                let longest = if random.u8(0..8) == 0 { 90 * S } else { S };
                let value = random.u64(1..longest);
                at += value;
                blocked.push((stack(&mut random), thread + 1_000, (T0 + at, value as i64)));
            }
        }
        let mut builder = RequestBuilder::new().process("shop", 7).on_cpu(20).range(T0, length);
        for (stack, thread, time) in running { builder = builder.sample(&stack, thread, &[time]); }
        builder = builder.off_cpu().range(T0, length);
        for (stack, thread, observation) in blocked { builder = builder.blocked(&stack, thread, &[observation]); }
        check(WINDOWS[mode], &builder.build())?;
    }
}
