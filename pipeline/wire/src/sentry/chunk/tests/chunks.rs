//! Tests of how a window is split, and of chunks that cannot be written.

use std::io;
use std::time::Duration;

use super::support::{BatchDraft, MS, START, attributed, samples};
use crate::sentry::chunk::{ChunkHead, ChunkSink, ChunkSummary, Collected, Converter, LoneSamples, Settings};

/// Guarantees: a window is split where the whole process is idle for longer than `max_gap`, since Sentry bills from a
/// chunk's first to its last sample (getsentry/sentry `src/sentry/profiles/task.py`).
#[test]
fn idle_is_cut() {
    let batch =
        || BatchDraft::new().on_cpu(20).at(7, &["work"], [0, 50, 10_000, 10_050]).at(8, &["work"], [4_000, 10_000]);
    let converted = batch().convert();
    assert_eq!(
        converted.text(),
        "7: work@0 work@50 -@100\n8: work@4000 work@4025 -@4050\n/\n\
         7: work@10000 work@10050 -@10100\n8: work@10000 work@10025 -@10050"
    );
    assert_eq!(converted.report.billed_nanos, (4_050 + 100) * MS);
    let patient = batch().convert_with(Settings { max_gap: Duration::from_secs(6), ..Settings::default() });
    assert_eq!(patient.report.billed_nanos, 10_100 * MS);
}

/// Guarantees: a gap of exactly `max_gap` does not split the window; a gap of one more nanosecond does.
#[test]
fn idle_boundary() {
    for (extra, chunks) in [(0, 1), (1, 2)] {
        let later = START + 50 * MS + 5_000 * MS + extra;
        let converted = BatchDraft::new().on_cpu(20).nanos(Some(7), &["work"], &[START, later], &[]).convert();
        assert_eq!(converted.chunks.len(), chunks);
    }
}

/// Guarantees: if single observations are dropped, no split creates one.
#[test]
fn cut_makes_no_lone_observation() {
    let settings = Settings { lone_samples: LoneSamples::Drop, ..Settings::default() };
    let batch = BatchDraft::new().on_cpu(20).at(7, &["work"], [0, 50, 10_000]).at(8, &["work"], [10_000, 10_050]);
    let converted = batch.convert_with(settings);
    assert_eq!(converted.chunks.len(), 1);
    assert!(converted.report.losses.is_none());
}

/// Guarantees: a process with less active time than configured is not sent, but counted.
#[test]
fn min_active_time() {
    let batch = || BatchDraft::new().on_cpu(20).at(7, &["work"], [0, 50]);
    let settings = |millis| Settings { min_active_time: Duration::from_millis(millis), ..Settings::default() };
    assert_eq!(batch().convert_with(settings(100)).chunks.len(), 1);
    let short = batch().convert_with(settings(101));
    assert_eq!((short.chunks.len(), short.report.losses.to_string()), (0, "2 min_active_time".to_owned()));
}

/// Guarantees: a window longer than Relay accepts becomes several chunks that it accepts (66 s), with all their time.
#[test]
fn long_window() {
    let mut batch = BatchDraft::new().window(200_000).on_cpu(20);
    let times: Vec<u64> = (0..3_900).map(|n| START + n * 50 * MS).collect();
    batch = batch.nanos(Some(7), &["work"], &times, &[]);
    let converted = batch.convert();
    assert_eq!(converted.chunks.len(), 4);
    assert_eq!(attributed(&converted.chunks)["work"], 195_000_000);
}

/// Guarantees: a window with JSON above the target size is split in time, every sample is in one of its chunks, and
/// each chunk is within the target.
/// rule: sample-format-v2#reject-size, profiles-sdk#v2-reject-size
#[test]
fn size_is_cut() {
    let mut batch = BatchDraft::new().on_cpu(100);
    for n in 0..2_000_u64 {
        let name = format!("a function with a rather long name and number {n}");
        batch = batch.nanos(Some(7 + n as i64 % 3), &[&name, "main"], &[START + n * 10 * MS], &[]);
    }
    let settings = Settings { target_bytes: 100_000, ..Settings::default() };
    let converted = batch.convert_with(settings);
    assert!(converted.chunks.len() >= 3, "{}", converted.chunks.len());
    assert!(converted.collected.chunks.iter().all(|(json, _)| json.len() <= 100_000));
    let busy = converted.chunks.iter().flat_map(samples).filter(|sample| !sample.stack.is_empty());
    let functions: std::collections::BTreeSet<String> = busy.map(|sample| sample.stack[0].clone()).collect();
    assert_eq!(functions.len(), 2_000);
    assert!(converted.report.losses.is_none());
}

/// Guarantees: many threads at one instant, which cannot be split in time, are split by threads.
/// rule: sample-format-v2#reject-size
#[test]
fn size_is_cut_by_threads() {
    let mut batch = BatchDraft::new().on_cpu(100);
    for thread in 0..500 {
        batch = batch.nanos(Some(thread + 1), &["work"], &[START], &[]);
    }
    let converted = batch.convert_with(Settings { target_bytes: 20_000, ..Settings::default() });
    assert!(converted.chunks.len() > 1);
    assert_eq!((converted.report.losses.total().total(), converted.report.samples), (0, 1_500));
}

/// A sink that fails at the given step.
struct FailingSink {
    step: &'static str,
    collected: Collected,
    abandoned: bool,
}

impl FailingSink {
    fn check(&self, step: &str) -> io::Result<()> {
        if self.step == step { Err(io::Error::other("broken")) } else { Ok(()) }
    }
}

impl ChunkSink for FailingSink {
    fn begin(&mut self, head: &ChunkHead<'_>) -> io::Result<()> {
        self.check("begin").and_then(|()| self.collected.begin(head))
    }

    fn write(&mut self, json: &[u8]) -> io::Result<()> {
        self.check("write").and_then(|()| self.collected.write(json))
    }

    fn finish(&mut self, summary: &ChunkSummary) -> io::Result<()> {
        self.check("finish").and_then(|()| self.collected.finish(summary))
    }

    fn abandon(&mut self) {
        self.abandoned = true;
    }
}

/// Guarantees: if a sink fails at any step, its chunk is counted as lost, and the sink gets no more calls.
#[test]
fn broken_sink() {
    for step in ["begin", "write", "finish"] {
        let batch = BatchDraft::new().on_cpu(20).at(7, &["work"], [0, 50, 20_000, 20_050, 40_000]).finish();
        let mut sink = FailingSink { step, collected: Collected::default(), abandoned: false };
        let report = Converter::new(Settings::default()).convert(&batch, &mut sink);
        assert!(report.balanced());
        assert_eq!((report.chunks, report.losses.to_string()), (0, "5 write_failed".to_owned()), "{step}");
        assert_eq!(report.error.unwrap().to_string(), "broken");
        assert_eq!(sink.abandoned, step == "write");
    }
}

/// Guarantees: a converter has no state between batches: the same batch gives the same bytes, even after others.
#[test]
fn reuse() {
    let one = BatchDraft::new().on_cpu(20).at(7, &["a", "b"], [0, 50]).nanos(None, &["c"], &[START], &[]).finish();
    let two = BatchDraft::new().profile("cpu", "milliseconds", 1_000).value(None, &["x", "y", "z"], 5_000).finish();
    let mut converter = Converter::new(Settings::default());
    let mut convert = |batch| {
        let mut collected = Collected::default();
        converter.convert(batch, &mut collected);
        collected.chunks.remove(0).0
    };
    let (first, other) = (convert(&one), convert(&two));
    assert_eq!(convert(&one), first);
    assert_eq!(convert(&two), other);
}

/// Guarantees: an empty batch gives neither a chunk nor a loss.
/// rule: sample-format-v2#reject-no-data, profiles-sdk#v2-reject-no-data
#[test]
fn nothing() {
    let converted = BatchDraft::new().on_cpu(20).convert();
    assert_eq!((converted.report.observations, converted.chunks.len()), (0, 0));
}
