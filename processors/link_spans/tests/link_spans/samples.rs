//! Which samples are linked with which spans, why others are not, and when.

use std::collections::BTreeMap;

use profbridge_engine::component::{Outbox, Processor as _};
use profbridge_model::dictionary::{Function, Line, Location, Mapping};
use profbridge_model::{Builder, Profiles};

use crate::samples_brute_force::{GeneratedSample, GeneratedSpan, observations, request};
use crate::support::*;

fn of_web(samples: &[GeneratedSample]) -> Profiles {
    request(samples, &mut 1, &mut Vec::new())
}

fn ran(id: u8, parent: u8, [from, to]: [u64; 2]) -> GeneratedSpan {
    GeneratedSpan { id, pid: 1, thread: 1, trace: 1, parent, from, to }
}

/// The span of each observation, by its time in milliseconds.
fn by_time(out: &Outbox) -> BTreeMap<u64, u8> {
    observations(out).into_iter().map(|(_, _, time, _, link)| (time / MS, link)).collect()
}

/// Guarantees: once spans of different traces overlapped on a thread, as in an event loop, none of its samples is
/// linked by time any more, because unsampled spans may have run; other threads are linked as before.
#[test]
fn event_loops() {
    let mut processor = link_spans("{}");
    let of = |id: u8, trace: u8, thread: i64, times: [u64; 2]| GeneratedSpan { trace, thread, ..ran(id, 0, times) };
    let sampled = |thread: i64, time: u64| of_web(&[(1, thread, vec![time], true, false)]);
    process(&mut processor, of(1, 1, 1, [10, 100]).request(), at(S));
    assert_eq!(by_time(&process(&mut processor, sampled(1, 50), at(S))), [(50, 1)].into());
    for made in [of(2, 2, 1, [90, 200]), of(3, 3, 1, [500, 600]), of(4, 3, 2, [500, 600])] {
        process(&mut processor, made.request(), at(S));
    }
    for (thread, time, expected, ambiguous) in [(1, 95, 0, 1), (1, 150, 0, 1), (1, 550, 0, 1), (2, 550, 4, 0)] {
        let out = process(&mut processor, sampled(thread, time), at(S));
        assert_eq!(by_time(&out), [(time, expected)].into(), "{thread} {time}");
        assert_eq!(note(&out, "observations_unlinked_ambiguous"), ambiguous, "{thread} {time}");
    }
}

/// Samples of a thread of [`ran`]'s process at these times, each with a stack of frames, innermost first: function,
/// file (the mapped file for native code) and frame type.
fn with_stacks(thread: i64, samples: &[(u64, &[[&str; 3]])]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&web(1));
    builder.on_cpu(20);
    let attributes = builder.attributes(&[("thread.id", thread.into())]);
    for (time, frames) in samples {
        let frames: Vec<_> = frames
            .iter()
            .map(|[name, file, frame_type]| {
                let attributes = builder.attributes(&[("profile.frame.type", Any::Str(frame_type))]);
                let (name, filename) = (builder.string(name), builder.string(file));
                if *frame_type == "native" {
                    let mapping = builder.mapping(Mapping { filename, ..Mapping::default() });
                    return builder.location(Location { mapping, attributes, ..Location::default() }, &[]);
                }
                let function = builder.function(Function { name, filename, ..Function::default() });
                let location = Location { attributes, ..Location::default() };
                builder.location(location, &[Line { function, line: 1, column: 0 }])
            })
            .collect();
        let stack = builder.stack(&frames);
        builder.sample(stack, attributes, None, &[T + time * MS], &[]);
    }
    builder.finish().unwrap()
}

/// Guarantees: on a thread whose stacks show an event loop no sample is linked by time, though none of its spans
/// overlap, and though some of its stacks do not show it; other threads are linked as before.
#[test]
fn event_loops_that_stacks_show() {
    let plain = ["work", "shop.py", "cpython"];
    let loops = [
        ["_run_once", "/usr/lib/python3.12/asyncio/base_events.py", "cpython"],
        ["handler", "shop.js", "v8js"],
        ["", "/usr/bin/node", "native"],
        ["", "/venv/lib/python3.12/site-packages/uvloop/loop.cpython-312-x86_64-linux-gnu.so", "native"],
        ["io.netty.channel.nio.NioEventLoop.run", "NioEventLoop.java", "jvm"],
    ];
    for shows in loops {
        let mut processor = link_spans("{}");
        for thread in [1, 2] {
            process(&mut processor, GeneratedSpan { thread, ..ran(thread as u8, 0, [0, 1000]) }.request(), at(S));
        }
        let out = process(&mut processor, with_stacks(1, &[(10, &[plain]), (20, &[plain, shows])]), at(S));
        assert_eq!(by_time(&out), [(10, 0), (20, 0)].into(), "{shows:?}");
        assert_eq!(note(&out, "observations_unlinked_ambiguous"), 2, "{shows:?}");
        let later = |thread, time: u64| with_stacks(thread, &[(time, &[plain])]);
        assert_eq!(by_time(&process(&mut processor, later(1, 30), at(S))), [(30, 0)].into());
        assert_eq!(by_time(&process(&mut processor, later(2, 30), at(S))), [(30, 2)].into());
    }
}

/// Guarantees: overlapping spans show that a thread runs spans in turns, even if no profiles of their time arrived
/// since.
#[test]
fn overlaps_that_no_profile_shows() {
    for (second, expected) in [([90, 200], 0), ([100, 200], 3)] {
        let mut processor = link_spans("{}");
        for (id, times) in [(1, [10, 100]), (2, second), (3, [500, 600])] {
            process(&mut processor, GeneratedSpan { trace: id, ..ran(id, 0, times) }.request(), at(S));
        }
        let out = process(&mut processor, of_web(&[(1, 1, vec![550], true, false)]), at(S));
        assert_eq!(by_time(&out), [(550, expected)].into());
    }
}

/// Guarantees: samples without thread, process or time are not linked, and counted; a sample without times is linked if
/// its thread ran a single span during the whole profile.
#[test]
fn what_cannot_be_linked() {
    let mut processor = link_spans("{}");
    process(&mut processor, ran(1, 0, [0, 1000]).request(), at(S));
    let batch = |resource: &[(&str, Any<'_>)], thread: Option<i64>, time: &[u64], range: [u64; 2]| {
        let mut builder = Builder::new();
        builder.resource(resource);
        builder.on_cpu(20);
        let profile = builder.open_profile().unwrap();
        (profile.time_unix_nano, profile.duration_nano) = (T + range[0] * MS, range[1] * MS);
        let attributes = thread.and_then(|thread| builder.attributes(&[("thread.id", thread.into())]));
        let times: Vec<u64> = time.iter().map(|time| T + time * MS).collect();
        builder.sample(None, attributes, None, &times, if time.is_empty() { &[3] } else { &[] });
        builder.finish().unwrap()
    };
    let web = web(1);
    let weak = [("service.name", Any::Str("shop"))];
    for (batch, name) in [
        (batch(&web, None, &[100], [0, 500]), "observations_unlinked_no_thread"),
        (batch(&weak, Some(1), &[100], [0, 500]), "observations_unlinked_unnamed_process"),
        (batch(&web, Some(1), &[], [100, 500]), "observations_linked"),
        (batch(&web, Some(1), &[], [100, 5000]), "observations_unlinked_no_time"),
        (batch(&web, Some(1), &[], [2000, 10]), "observations_unlinked_no_span"),
    ] {
        let out = process(&mut processor, batch, at(S));
        assert_eq!(note(&out, name), 1, "{name}: {:?}", out.notes);
        let all = out.notes.iter().filter(|(name, _)| name.starts_with("observations_"));
        assert_eq!(all.map(|(_, count)| count).sum::<u64>(), 1, "{:?}", out.notes);
    }
}

/// Guarantees: a span that names its profiler and thread, like those of Sentry's SDKs, is linked with the samples of
/// that profiler's chunks, in every language; also within one envelope.
#[test]
fn spans_that_name_their_profiler() {
    const ID: &str = "00112233445546778899aabbccddeeff";
    let chunk = || {
        let mut builder = Builder::new();
        builder.resource(&[("sentry.profiler_id", Any::Str(ID))]);
        builder.on_cpu(100);
        let attributes = builder.attributes(&[("thread.id", "140011".into())]);
        builder.sample(None, attributes, None, &[T + 5 * MS, T + 50 * MS], &[]);
        builder.finish().unwrap()
    };
    let resource = [("telemetry.sdk.language", text("python"))];
    let named = || span(9, 0, 10 * MS, &[("sentry.profiler_id", text(ID)), ("thread.id", text("140011"))]);
    let mut processor = link_spans("{}");
    process(&mut processor, spans(&resource, vec![named()]), at(S));
    let out = process(&mut processor, chunk(), at(S));
    assert_eq!(by_time(&out), [(5, 9), (50, 0)].into());
    let mut processor = link_spans("{profile_wait: 5s}");
    let views = vec![
        profbridge_model::ItemView::profiles(0, chunk()),
        profbridge_model::ItemView::spans(1, spans(&resource, vec![named()])),
    ];
    let out = process(&mut processor, profbridge_model::Envelope { views, ..Default::default() }, at(S));
    assert_eq!((by_time(&out), note(&out, "spans_with_profiler")), ([(5, 9), (50, 0)].into(), 1));
}

/// Guarantees: profiles wait for `profile_wait` and at most a quarter longer; a request that enters a window late waits
/// as long as the first.
#[test]
fn everybody_waits_long_enough() {
    let mut processor = link_spans("{profile_wait: 8s}");
    for second in 0..12 {
        // In half seconds, so that cells begin between requests.
        let out = process(&mut processor, of_web(&[(1, 1, vec![second], false, false)]), at(second * S / 2));
        assert!(observations(&out).is_empty());
    }
    let mut left = BTreeMap::new();
    for quarter in 0..80 {
        let now = at(quarter * S / 4);
        for (time, _) in by_time(&advance(&mut processor, now)) {
            left.insert(time, quarter * S / 4);
        }
    }
    assert_eq!(left.len(), 12);
    for (second, when) in left {
        let waited = when - second * S / 2;
        assert!((8 * S..=10 * S + S / 4).contains(&waited), "{second} waited {waited}");
    }
}

/// Guarantees: if no exporter sends links, samples get none and do not wait, and no span is remembered for them; spans
/// are still linked.
#[test]
fn nobody_sends_links() {
    let mut processor = link_spans("{profile_wait: 8s}");
    assert!(processor.goes_to(&["sentry"], true).is_none());
    let before = processor.held().bytes;
    let sent = process(&mut processor, ran(1, 0, [0, 1000]).request(), at(S));
    assert!(sent.telemetry.is_empty(), "spans wait for profiles");
    let out = process(&mut processor, of_web(&[(1, 1, vec![15, 500, 1000], true, false)]), at(S));
    assert_eq!(by_time(&out), [(15, 0), (500, 0), (1000, 0)].into());
    assert_eq!(out.notes.iter().filter(|(name, _)| name.starts_with("observations_")).count(), 0);
    let out = advance(&mut processor, at(30 * S));
    assert_eq!(links(&out), [(1, Some(Some("1".to_owned())))]);
    drop(advance(&mut processor, at(60 * S)));
    assert!(processor.held().bytes < before + 2048, "{}", processor.held().bytes);
}
