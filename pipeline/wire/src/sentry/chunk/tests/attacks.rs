//! Tests with hostile batches.

use profbridge_model::{Function, Line, Location};

use super::support::{BatchDraft, MS, START, convert};
use crate::sentry::chunk::limits::{MAX_STACK_FRAMES, MAX_STRING_BYTES};
use crate::sentry::chunk::{Collected, Converter, Settings};
use profbridge_relay_rules::validate_json;

/// Attack: one string of four megabytes that a thousand functions share.
/// Guarantees: the string is truncated at the limit and ends with an ellipsis, and every truncation is noted.
#[test]
fn huge_string() {
    let mut batch = BatchDraft::new().on_cpu(20);
    let name = batch.builder.string(&"é".repeat(2 << 20));
    let locations: Vec<_> = (0..1_000)
        .map(|line| {
            let function = batch.builder.function(Function { name, start_line: line, ..Function::default() });
            batch.builder.location(
                Location { address: line as u64, ..Location::default() },
                &[Line { function, line, column: 0 }],
            )
        })
        .collect();
    let stack = batch.builder.stack(&locations);
    batch.builder.sample(stack, None, None, &[START, START + 50 * MS], &[]);
    let converted = batch.convert();
    let frames = converted.frames();
    let longest = frames.iter().map(|frame| frame["function"].as_str().unwrap().len()).max();
    assert!(longest <= Some(MAX_STRING_BYTES) && frames[0]["function"].as_str().unwrap().ends_with("é…"));
    assert_eq!(converted.report.notes.truncated_strings, 1_000);
}

/// Attack: stacks of ten thousand locations, and locations of ten thousand inlined functions.
/// Guarantees: a stack is truncated at the limit, counted from its leaf, and the truncation is noted.
#[test]
fn deep_stacks() {
    for inlined in [false, true] {
        let mut batch = BatchDraft::new().on_cpu(20);
        let function = batch.builder.function(Function::default());
        let lines: Vec<Line> = (1..=10_000).map(|line| Line { function, line, column: 0 }).collect();
        let stack: Vec<_> = if inlined {
            vec![batch.builder.location(Location::default(), &lines); 2]
        } else {
            lines.iter().map(|&line| batch.builder.location(Location::default(), &[line])).collect()
        };
        let stack = batch.builder.stack(&stack);
        batch.builder.sample(stack, None, None, &[START, START + 50 * MS], &[]);
        let converted = batch.convert();
        assert_eq!(converted.chunk()["profile"]["stacks"][1].as_array().unwrap().len(), MAX_STACK_FRAMES);
        assert_eq!(converted.frames().len(), MAX_STACK_FRAMES);
        assert_eq!(converted.frames()[0]["lineno"], 1);
        assert_eq!(converted.report.notes.truncated_stacks, 1);
    }
}

/// Attack: a small batch whose stacks all expand to the limit through one location with many inlined functions.
/// Guarantees: the JSON is split into valid chunks of the target size, which also bounds the memory.
#[test]
fn amplified_stacks() {
    let mut batch = BatchDraft::new().on_cpu(20);
    let function = batch.builder.function(Function::default());
    let lines: Vec<Line> = (1..=1_000).map(|line| Line { function, line, column: 0 }).collect();
    let wide = batch.builder.location(Location::default(), &lines);
    for n in 0..2_000_u64 {
        let other = batch.builder.frame("f", "", n as i64);
        let stack = batch.builder.stack(&[other, wide]);
        batch.builder.sample(stack, None, None, &[START + n * 30 * MS], &[]);
    }
    let settings = Settings { target_bytes: 1 << 20, ..Settings::default() };
    let mut collected = Collected::default();
    let report = Converter::new(settings).convert(&batch.finish(), &mut collected);
    assert!(report.balanced() && report.losses.is_none());
    assert!(collected.chunks.len() > 5);
    for (json, _) in &collected.chunks {
        assert!(json.len() <= 1 << 20);
        assert_eq!(validate_json(json), Ok(()));
    }
}

/// Attack: names that contain all characters that JSON must escape.
/// Guarantees: they are preserved in functions, files, threads and the release.
#[test]
fn escapes() {
    let nasty = "\u{0}\u{1f}\"\\/\u{2028}\u{2029}\u{7f}\n\r\t</script>😀";
    let mut batch = BatchDraft::new();
    batch.builder.resource(&[("service.name", nasty.into())]);
    batch.builder.scope("test", "1");
    let mut batch = batch.on_cpu(20);
    let stack = [batch.builder.frame(nasty, nasty, 1)];
    let stack = batch.builder.stack(&stack);
    let thread = batch.builder.attributes(&[("thread.id", nasty.into()), ("thread.name", nasty.into())]);
    batch.builder.sample(stack, thread, None, &[START, START + 50 * MS], &[]);
    let batch = batch.finish();
    // A batch of one process has only that resource, so the first one, which has another name and no profiles, is
    // removed.
    let only = batch.with_resources(batch.resources()[1..].to_vec()).unwrap();
    let converted = convert(&only, Settings::default());
    let chunk = converted.chunk();
    assert_eq!((&chunk["release"], &converted.frames()[0]["function"]), (&nasty.into(), &nasty.into()));
    assert_eq!(chunk["profile"]["samples"][0]["thread_id"], nasty);
    assert_eq!(chunk["profile"]["thread_metadata"][nasty]["name"], nasty);
}

/// Attack: a window from the year 1970 to 2554, with times at both ends.
/// Guarantees: no overflow; the data is sent as far as possible, in chunks that Relay accepts.
#[test]
fn endless_window() {
    let mut batch = BatchDraft::new().on_cpu(20);
    batch.window.start_unix_nano = 0;
    batch.window.end_unix_nano = u64::MAX;
    let times = [0, 1, u64::MAX, u64::MAX - 1, 9_300_000_000_000_000_000];
    let batch = batch.nanos(Some(7), &["work"], &times, &[]).nanos(None, &["work"], &times, &[]).finish();
    let mut collected = Collected::default();
    let report = Converter::new(Settings::default()).convert(&batch, &mut collected);
    assert!(report.balanced() && report.losses.is_none(), "{report:?}");
    for (json, _) in &collected.chunks {
        assert_eq!(validate_json(json), Ok(()));
    }
}

/// Attack: a window that ends before it starts, or has no length.
/// Guarantees: no panic; observations at its start are converted.
#[test]
fn no_window() {
    for end in [START, START - 1, 0] {
        let mut batch = BatchDraft::new().on_cpu(20).at(7, &["work"], [0, 0, 1]);
        batch.window.end_unix_nano = end;
        let converted = batch.convert();
        assert_eq!(converted.report.losses.to_string(), "1 malformed");
    }
}

/// Attack: ten thousand threads, each with one observation.
/// Guarantees: one chunk with all of them.
#[test]
fn many_threads() {
    let mut batch = BatchDraft::new().on_cpu(20);
    for thread in 0..10_000 {
        batch = batch.nanos(Some(thread), &["work"], &[START + thread as u64 * MS], &[]);
    }
    let converted = batch.convert();
    assert_eq!((converted.chunks.len(), converted.report.samples), (1, 30_000));
}
