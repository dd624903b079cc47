//! Tests each rule of the control: a wrong oracle is worse than none.

use super::*;
use crate::{Frame, RequestBuilder, T0, fixture, ms};

fn only_chunk(builder: RequestBuilder) -> Chunk {
    let mut chunks = convert(&builder.build(), &Options::default());
    assert_eq!(chunks.len(), 1);
    chunks.remove(0)
}

/// The times in milliseconds after `T0`, and whether the thread is idle from then on.
fn marks(chunk: &Chunk) -> Vec<(i64, bool)> {
    let start = (T0 / 1_000) as i64;
    canonical(chunk).iter().map(|sample| ((sample.timestamp_us - start) / 1_000, sample.stack.is_empty())).collect()
}

/// Guarantees: gaps up to one and a half weights stay open; longer gaps and the end are closed after one weight.
#[test]
fn gaps_are_closed() {
    let chunk = only_chunk(RequestBuilder::new().process("a", 1).on_cpu(20).sample(&["f"], 7, &ms([0, 75, 151])));
    assert_eq!(marks(&chunk), [(0, false), (75, false), (125, true), (151, false), (201, true)]);
}

/// Guarantees: no sample is after the end of the window.
#[test]
fn the_window_clips() {
    let chunk = only_chunk(RequestBuilder::new().process("a", 1).on_cpu(20).sample(&["f"], 7, &ms([4_930, 4_980])));
    assert_eq!(marks(&chunk), [(4_930, false), (4_980, false), (5_000, true)]);
}

/// Guarantees: a single observation is written twice and closed, and lasts for its weight.
#[test]
fn a_lone_observation_is_split() {
    let chunk = only_chunk(RequestBuilder::new().process("a", 1).on_cpu(20).sample(&["f"], 7, &ms([100])));
    assert_eq!(marks(&chunk), [(100, false), (125, false), (150, true)]);
    assert_eq!(attributed_us(&chunk), BTreeMap::from([("7".to_owned(), 50_000)]));
}

/// Guarantees: frames are leaf first, one per line, inlined functions innermost first, with the fields of the text
/// form.
#[test]
fn frames_are_spelled_out() {
    let stack = [
        Frame::inlined(["inner@/a.rs:1", "outer@b.rs:2"]).kind("rust").mapping("app", 0x1500),
        Frame::from("native!libc.so.6+0x2000"),
        Frame::from("kernel!schedule").mapping("vmlinux", 0x10),
    ];
    let chunk = only_chunk(RequestBuilder::new().process("a", 1).on_cpu(20).sample(&stack, 7, &ms([0, 50])));
    let frames = &chunk.profile.frames;
    let names: Vec<_> = frames.iter().map(|frame| frame.function.as_deref().unwrap()).collect();
    assert_eq!(names, ["inner", "outer", "[libc.so.6]+0x2000", "schedule"]);
    assert_eq!(chunk.profile.stacks[0], [0, 1, 2, 3]);
    assert_eq!((frames[0].abs_path.as_deref(), frames[1].abs_path.as_deref()), (Some("/a.rs"), None));
    assert_eq!((frames[0].lineno, frames[2].lineno), (Some(1), None));
    let own: Vec<_> = frames.iter().map(|frame| frame.in_app.unwrap()).collect();
    assert_eq!(own, [true, true, false, false]);
    assert_eq!(chunk.platform, "native");
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    // The kernel's mapping has no range, so it has no image.
    assert_eq!(chunk.debug_meta.images.len(), 2);
    assert_eq!(frames[3].instruction_addr, None);
    for (frame, image) in [(&frames[0], 0), (&frames[2], 1)] {
        let image = &chunk.debug_meta.images[image];
        let address = number(frame.instruction_addr.as_deref().unwrap());
        let begin = number(&image.image_addr);
        assert!((begin..begin + image.image_size).contains(&address), "{address:#x} in {image:?}");
    }
}

/// Guarantees: Java's class and method are split in both producers' notations, and a bytecode index is not an address.
#[test]
fn java_names_are_taken_apart() {
    let stack = [
        Frame::from("jvm!void java.lang.Thread.run()@Thread.java:840").address(17),
        Frame::from("jvm!com.acme.Main.main"),
        Frame::from("jvm!StubRoutines (1) [call_stub]"),
    ];
    let chunk = only_chunk(RequestBuilder::new().process("a", 1).on_cpu(20).sample(&stack, 7, &ms([0, 50])));
    let frames: Vec<_> = chunk
        .profile
        .frames
        .iter()
        .map(|frame| (frame.module.as_deref(), frame.function.as_deref().unwrap(), frame.in_app.unwrap()))
        .collect();
    assert_eq!(frames[0], (Some("java.lang.Thread"), "run", false));
    assert_eq!(frames[1], (Some("com.acme.Main"), "main", true));
    assert_eq!(frames[2], (None, "StubRoutines (1) [call_stub]", false));
    assert_eq!(chunk.platform, "java");
    assert!(chunk.profile.frames.iter().all(|frame| frame.instruction_addr.is_none() && frame.platform.is_none()));
}

/// Guarantees: the GNU build id becomes Sentry's debug id in little-endian field order (getsentry/relay's test vector),
/// and short ids are padded.
#[test]
fn build_ids_become_debug_ids() {
    let id = images::debug_id("b03e4a7f5e884c8da04b05fa32cc4cbd69faff51");
    assert_eq!(id.as_deref(), Some("7f4a3eb0-885e-8d4c-a04b-05fa32cc4cbd"));
    assert_eq!(images::debug_id("b03e4a7f").as_deref(), Some("7f4a3eb0-0000-0000-0000-000000000000"));
    assert_eq!(images::debug_id("not hex"), None);
}

/// Guarantees: processes named by samples are separated; samples of one process under two resources go into one chunk.
#[test]
fn one_chunk_per_process() {
    let request = RequestBuilder::new()
        .resource()
        .attr("container.id", "c")
        .on_cpu(20)
        .sample(&["f"], 1, &ms([0, 50]))
        .attr("process.pid", 1)
        .sample(&["g"], 2, &ms([0, 50]))
        .attr("process.pid", 2)
        .resource()
        .attr("container.id", "c")
        .attr("process.pid", 1)
        .on_cpu(20)
        .sample(&["h"], 3, &ms([0, 50]))
        .build();
    let chunks = convert(&request, &Options::default());
    let threads: Vec<Vec<_>> = chunks.iter().map(|chunk| chunk.profile.thread_metadata.keys().collect()).collect();
    assert_eq!(threads, [vec!["1", "3"], vec!["2"]]);
    assert_ne!(chunks[0].profiler_id, chunks[1].profiler_id);
}

/// Guarantees: if there are both counts and nanoseconds, only the nanoseconds count, and lanes contain all of them
/// without overlap.
#[test]
fn values_are_laid_on_lanes() {
    let chunk = only_chunk(
        RequestBuilder::new()
            .process("a", 1)
            .profile("samples", "count")
            .period("cpu", "nanoseconds", 10_000_000)
            .value(&["f"], 99)
            .profile("cpu", "nanoseconds")
            .value(&["f"], 7_000_000_000)
            .value(&["g"], 2_000_000_000),
    );
    let attributed = attributed_us(&chunk);
    assert_eq!(attributed, BTreeMap::from([("0".to_owned(), 5_000_000), ("1".to_owned(), 4_000_000)]));
}

/// Guarantees: off-CPU time is left out by default; if enabled, its samples last for their values.
#[test]
fn off_cpu_is_off() {
    let request = RequestBuilder::new().process("a", 1).off_cpu().blocked(&["f"], 7, &[(T0, 30_000_000)]).build();
    assert_eq!(convert(&request, &Options::default()), []);
    let chunks = convert(&request, &Options { off_cpu: true, ..Options::default() });
    assert_eq!(attributed_us(&chunks[0]), BTreeMap::from([("7".to_owned(), 30_000)]));
}

/// Guarantees: the time that Sentry assigns to the fixture equals the measured time, within 2 % per process.
#[test]
fn the_fixture_keeps_its_time() {
    let chunks = convert(&fixture::request(), &Options::default());
    assert_eq!(chunks.len(), 11);
    let platforms: Vec<_> = chunks.iter().map(|chunk| chunk.platform.as_str()).collect();
    assert_eq!(
        platforms,
        ["native", "native", "python", "node", "java", "go", "ruby", "php", "csharp", "native", "java"]
    );
    let seconds = |chunk: &Chunk| attributed_us(chunk).values().sum::<i64>() as f64 / 1e6;
    let measured = [2.5, 0.25, 3.3, 3.3, 3.3, 3.3, 3.3, 3.3, 3.3, 10.68, 1.95];
    for (chunk, measured) in chunks.iter().zip(measured) {
        let ratio = seconds(chunk) / measured;
        assert!((0.98..=1.02).contains(&ratio), "{}: {} s of {measured} s", chunk.platform, seconds(chunk));
    }
}

/// Guarantees: chunks are unchanged by a JSON round trip, and `difference` detects a changed sample and nothing else.
#[test]
fn chunks_are_comparable() {
    let mut chunks = convert(&fixture::request(), &Options::default());
    let parsed: Chunk = serde_json::from_slice(&json(&chunks[2]).unwrap()).unwrap();
    assert_eq!(parsed, chunks[2]);
    assert_eq!(difference(&parsed, &chunks[2]), None);
    chunks[2].profile.samples[0].thread_id.push('x');
    assert!(difference(&parsed, &chunks[2]).is_some());
}
