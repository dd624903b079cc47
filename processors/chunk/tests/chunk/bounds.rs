use profbridge_engine::component::{Outbox, Processor, flush_all};
use profbridge_model::{Builder, Profile, Profiles, Reason};
use profbridge_processor_chunk::{CLOSED_EARLY, ChunkProcessor};

use crate::support::*;

/// Guarantees: a profile larger than the limit of a window is split, between two timestamps if necessary, and never
/// dropped.
#[test]
fn large_profiles_are_split() {
    for identity in MODES {
        let times: Vec<_> = (0..25).map(|n| T + n).collect();
        let all = batches(&run(identity, "max_observations: 10", one(&process(1), &times)));
        assert_eq!(observations(&all), [10, 10, 5], "{identity}");
        let ids: std::collections::BTreeSet<_> =
            all.iter().map(|batch| batch.window.as_ref().unwrap().profiler_id).collect();
        assert_eq!(ids.len(), 1);
    }
}

/// Guarantees: a window that takes too much memory is closed early.
#[test]
fn large_windows_close_early() {
    let mut chunk = chunk("", "max_window_bytes: 4KiB");
    let mut closed = 0;
    for n in 0..200 {
        let times: Vec<_> = (0..20).map(|m| T + n * 1_000_003 + m * 777_777).collect();
        let out = process_one(&mut chunk, one(&process(1), &times), at(0));
        closed += noted(&out, CLOSED_EARLY);
        assert_eq!(noted(&out, CLOSED_EARLY), out.telemetry.len() as u64);
    }
    assert!(closed > 2, "{closed}");
}

/// Guarantees: at the maximum number of processes, another one closes the oldest window early.
#[test]
fn the_oldest_process_makes_room() {
    let mut chunk = chunk("", "max_processes: 2");
    for pid in [1, 2] {
        assert!(process_one(&mut chunk, one(&process(pid), &[T + pid as u64]), at(0)).telemetry.is_empty());
    }
    let out = process_one(&mut chunk, one(&process(3), &[T + 3]), at(0));
    assert_eq!(batches(&out).iter().flat_map(times).collect::<Vec<_>>(), [T + 1]);
    assert_eq!(noted(&out, CLOSED_EARLY), 1);
    // The number of windows is bounded as well: one process in many minutes.
    let minutes: Vec<_> = (0..10).map(|n| T + n * 61 * S).collect();
    let out = process_one(&mut chunk, one(&process(3), &minutes), at(0));
    assert!(noted(&out, CLOSED_EARLY) >= 7);
    assert_eq!(chunk.held().quantities.total() + batches(&out).iter().map(Profiles::observations).sum::<u64>(), 12);
}

/// Guarantees: a hundred thousand processes in one request become a hundred thousand batches, none of them with the
/// whole dictionary, and the number of windows stays within its bound.
#[test]
fn a_hundred_thousand_processes() {
    const PROCESSES: i64 = 100_000;
    let mut builder = Builder::new();
    let names: Vec<_> = (0..1000).map(|n| builder.frame(&format!("function_{n}"), "", 1)).collect();
    for pid in 0..PROCESSES {
        builder.resource(&process(pid));
        builder.on_cpu(20);
        let stack = builder.stack(&[names[pid as usize % names.len()]]);
        builder.sample(stack, None, None, &[T + pid as u64], &[]);
    }
    let batch = builder.finish().unwrap();
    for (identity, settings) in [("", "max_processes: 1000"), ("window: 0s", "")] {
        let mut chunk = chunk(identity, settings);
        let out = process_one(&mut chunk, batch.clone(), at(0));
        assert!(chunk.held().quantities.total() <= 2000);
        let mut all = batches(&out);
        all.extend(flush(&mut chunk));
        assert_eq!(all.len(), PROCESSES as usize, "{identity}");
        assert!(all.iter().all(|batch| batch.dictionary().tables().stacks.len() == 2));
    }
}

/// Guarantees: the total memory of all windows stays within its bound.
#[test]
fn memory_is_bounded() {
    let mut chunk = chunk("", "max_bytes: 128KiB\nmax_window_bytes: 128KiB");
    let mut closed = 0;
    for n in 0..400u64 {
        let times: Vec<_> = (0..200).map(|m| T + n * 999 + m * 99_991).collect();
        let out = process_one(&mut chunk, one(&process(n as i64 % 50), &times), at(n));
        closed += noted(&out, CLOSED_EARLY);
        assert!(chunk.held().bytes <= 128 << 10, "{:?}", chunk.held());
    }
    assert!(closed > 50, "{closed}");
}

/// Guarantees: the dictionary of held data is stored once for all processes of a sender, the memory of the request is
/// released, and all memory is released when the windows are closed.
#[test]
fn dictionaries_are_shared_and_freed() {
    let batch = |pid: i64| {
        let mut builder = Builder::new();
        builder.resource(&process(pid));
        let frames: Vec<_> =
            (0..1000).map(|n| builder.frame(&format!("a function of libc, number {n}"), "", 1)).collect();
        for frame in frames {
            let stack = builder.stack(&[frame]);
            builder.sample(stack, None, None, &[T], &[]);
        }
        builder.finish().unwrap()
    };
    let mut chunk = chunk("", "");
    let idle = chunk.held().bytes;
    let first = batch(1);
    process_one(&mut chunk, first.clone(), at(0));
    assert_eq!(std::sync::Arc::strong_count(first.dictionary()), 1);
    let one = chunk.held().bytes;
    for pid in 2..=11 {
        process_one(&mut chunk, batch(pid), at(0));
    }
    let ten_more = chunk.held().bytes - one;
    assert!(ten_more < one, "one process takes {one} bytes, ten more take {ten_more}");
    flush(&mut chunk);
    assert!(chunk.held().bytes <= idle + 64 * 1024, "{idle} {:?}", chunk.held());
}

/// Guarantees: the output of a small request is bounded: neither data that many processes share, nor many attributes of
/// a resource, nor scattered timestamps are multiplied beyond a budget. Output beyond the budget is dropped and
/// counted, and the rest is still sent.
#[test]
fn amplification_is_bounded() {
    let name = "x".repeat(1 << 20);
    let mut large_name = Builder::new();
    let frame = large_name.frame(&name, "", 1);
    let stack = large_name.stack(&[frame]);
    let keys: Vec<String> = (0..20_000).map(|n| format!("key {n}")).collect();
    let attributes: Vec<_> = keys.iter().map(|key| (key.as_str(), 1.into())).collect();
    let mut wide_resource = Builder::new();
    wide_resource.resource(&attributes);
    for pid in 0..1000 {
        large_name.resource(&process(pid));
        large_name.sample(stack, None, None, &[T], &[]);
        let attributes = wide_resource.attributes(&process(pid));
        wide_resource.sample(None, attributes, None, &[T], &[]);
    }
    let scattered: Vec<_> = (0..60_000).map(|n| T + n * 61 * S).collect();
    for (what, batch, expected) in [
        ("large name", large_name.finish().unwrap(), 60..300),
        ("wide resource", wide_resource.finish().unwrap(), 1..200),
        ("scattered times", one(&process(1), &scattered), 20_000..45_000),
    ] {
        for (identity, settings) in [("", "max_processes: 10"), ("window: 0s", "")] {
            let out = run(identity, settings, batch.clone());
            let sent: u64 = observations(&batches(&out)).iter().sum();
            let dropped = out.losses.get(Reason::LimitExceeded).total();
            assert_eq!((sent + dropped, out.losses.total().total()), (batch.observations(), dropped), "{what}");
            assert!(expected.contains(&sent), "{what}, {identity}: {sent}");
        }
    }
}

/// Guarantees: a sample whose timestamps alternate between two windows is split with the right value for each
/// timestamp, and in one pass: with a pass per timestamp this test would not end.
#[test]
fn interleaved_times_keep_their_values() {
    const TIMES: u64 = 100_000;
    let times: Vec<_> = (0..TIMES).map(|n| T + n % 2 * 90 * S + n).collect();
    let values: Vec<_> = (0..TIMES).map(|n| n as i64).collect();
    let mut builder = Builder::new();
    builder.resource(&process(1));
    // The values are events: only durations are split at window ends.
    let sample_type = builder.value_type("events", "count");
    builder.profile(Profile { sample_type, ..Profile::default() });
    builder.sample(None, None, None, &times, &values);
    let batch = builder.finish().unwrap();
    for identity in MODES {
        let mut seen = Vec::new();
        for batch in batches(&run(identity, "", batch.clone())) {
            for sample in batch.profiles().flat_map(|profile| batch.samples(profile)) {
                seen.extend(sample.timestamps().zip(sample.values()));
            }
        }
        seen.sort_unstable_by_key(|&(_, value)| value);
        assert!(seen.into_iter().eq(times.iter().copied().zip(values.iter().copied())), "{identity}");
    }
}

/// Guarantees: a call sends at most one window, whether windows are due, memory is short, or the pipeline ends.
#[test]
fn one_window_at_a_time() {
    type Call = fn(&mut ChunkProcessor, &mut Outbox) -> bool;
    let calls: [Call; 3] = [
        |chunk, out| {
            chunk.advance(at(3600 * S), out);
            chunk.due().is_some_and(|due| due <= at(3600 * S).monotonic_nano)
        },
        |chunk, out| chunk.on_memory_pressure(at(0), out),
        |chunk, out| chunk.flush(at(0), out),
    ];
    for (way, call) in calls.iter().enumerate() {
        let mut chunk = chunk("", "");
        for pid in 0..100 {
            process_one(&mut chunk, one(&process(pid), &[T]), at(0));
        }
        let mut sent = 0;
        loop {
            let before = chunk.held().quantities.total();
            let mut out = Outbox::default();
            let more = call(&mut chunk, &mut out);
            assert!(out.telemetry.len() <= 1, "{way}");
            assert_eq!(chunk.held().quantities.total() + out.telemetry.len() as u64, before);
            sent += out.telemetry.len();
            if !more {
                break;
            }
        }
        assert_eq!(sent as u64 + chunk.held().quantities.total(), 100, "{way}");
        assert!(if way == 1 { (20..=80).contains(&sent) } else { sent == 100 }, "{way}: {sent}");
    }
}

/// Guarantees: a request with many thousands of processes has only a bounded number of open windows, sends one at a
/// time, and is reported as unfinished until it is fully absorbed; its remaining observations count as held.
#[test]
fn large_requests_are_taken_in_piece_by_piece() {
    const PROCESSES: i64 = 20_000;
    let mut builder = Builder::new();
    for pid in 0..PROCESSES {
        builder.resource(&process(pid));
        builder.on_cpu(20);
        builder.sample(None, None, None, &[T + pid as u64], &[]);
    }
    let plain = builder.finish().unwrap();
    let mut builder = Builder::new();
    builder.resource(&[("host.id", "host".into())]);
    for pid in 0..PROCESSES {
        let attributes = builder.attributes(&[("process.pid", pid.into())]);
        builder.sample(None, attributes, None, &[T + pid as u64], &[]);
    }
    let on_samples = builder.finish().unwrap();
    let minutes: Vec<_> = (0..PROCESSES as u64).map(|n| T + n * 61 * S).collect();
    for (what, batch) in [("resources", plain), ("samples", on_samples), ("times", one(&process(1), &minutes))] {
        for (identity, settings) in [("", "max_processes: 100"), ("window: 0s", "")] {
            let place = format!("{what}, {identity}");
            let mut chunk = chunk(identity, settings);
            chunk.fit_memory(24 << 20);
            let (mut sent, mut calls, mut most) = (0, 0, 0);
            let mut out = Outbox::default();
            chunk.process(batch.clone().into(), at(0), &mut out);
            assert!(chunk.is_absorbing(), "{place}");
            while chunk.is_absorbing() {
                assert!(out.telemetry.len() <= 1, "{place}");
                sent += out.telemetry.len() as u64;
                assert_eq!(
                    (sent + chunk.held().quantities.total(), out.losses.total().total()),
                    (PROCESSES as u64, 0),
                    "{place}"
                );
                most = most.max(chunk.held().bytes);
                assert_eq!(chunk.due(), Some(0), "{place}");
                out = Outbox::default();
                chunk.advance(at(0), &mut out);
                calls += 1;
            }
            assert!(calls > PROCESSES / 2, "{place}: {calls}");
            // Without windows, the state of each sample exists until the request is cut, but only some of the processes
            // are examined at a time.
            let limit = match (identity, what) {
                ("window: 0s", "resources") => 6 << 20,
                ("window: 0s", _) => 24 << 20,
                _ => 12 << 20,
            };
            assert!(most < limit, "{place}: {most}");
        }
    }
}

/// Guarantees: stacks that a thousand real processes share are written for each of them, although much less is held,
/// and none is dropped.
#[test]
fn common_stacks_are_no_amplification() {
    let mut chunk = chunk("", "");
    chunk.fit_memory(24 << 20);
    let names: Vec<String> = (0..1000).map(|n| format!("{n} {}", "a long name of a function".repeat(8))).collect();
    let mut builder = Builder::new();
    let frames: Vec<_> = names.iter().map(|name| builder.frame(name, "a/file/somewhere.rs", 1)).collect();
    for pid in 0..1000 {
        builder.resource(&process(pid));
        builder.on_cpu(20);
        for stack in frames.chunks(100) {
            let stack = builder.stack(stack);
            builder.sample(stack, None, None, &[T], &[]);
        }
    }
    let mut out = process_one(&mut chunk, builder.finish().unwrap(), at(0));
    assert!(chunk.held().bytes < 4 << 20, "{:?}", chunk.held());
    flush_all(&mut chunk, at(0), &mut out);
    let sent: u64 = observations(&batches(&out)).iter().sum();
    assert_eq!((sent, out.losses.total().total()), (10_000, 0));
    assert!(batches(&out).iter().map(Profiles::size_bytes).sum::<u64>() > 200 << 20);
}
