//! Tests of the time that Sentry attributes to observations.

use super::support::{BatchDraft, MS, START, attributed, samples};
use crate::sentry::chunk::{Collected, Converter, LoneSamples, Settings};

/// Guarantees: a run of samples about a period apart is unchanged, and closed a period after its last sample. Source:
/// `vroomrs` 0.1.24 attributes to a sample the time until the next one of its thread, and nothing to the last one.
/// rule: otlp-profiles#timestamps-only
#[test]
fn run_is_closed() {
    let converted = BatchDraft::new().on_cpu(20).at(7, &["work", "main"], [0, 50, 100]).convert();
    assert_eq!(converted.text(), "7: work@0 work@50 work@100 -@150");
    assert_eq!((converted.report.samples, converted.report.synthesized), (4, 1));
}

/// Guarantees: a gap of one and a half periods stays open; a longer one is closed a period after the preceding sample.
/// rule: differences#sample-time
#[test]
fn gaps() {
    let open = BatchDraft::new().on_cpu(20).at(7, &["work"], [0, 75]).convert();
    assert_eq!(open.text(), "7: work@0 work@75 -@125");
    let closed = BatchDraft::new().on_cpu(20).at(7, &["work"], [0, 76]).convert();
    assert_eq!(closed.text(), "7: work@0 -@50 work@76 -@126");
}

/// Guarantees: no sample is after the window's end, and one exactly at the end is kept.
#[test]
fn window_end() {
    let clipped = BatchDraft::new().window(1_000).on_cpu(20).at(7, &["work"], [930, 980]).convert();
    assert_eq!(clipped.text(), "7: work@930 work@980 -@1000");
    let at_end = BatchDraft::new().window(1_000).on_cpu(20).at(7, &["work"], [1_000]).convert();
    assert_eq!(at_end.text(), "7: work@1000 work@1000 -@1000");
}

/// Guarantees: observations outside of the window are counted, for all invalid times that senders use.
/// rule: otep-0239#timestamps-in-range
#[test]
fn outside_of_the_window() {
    let times = [0, START - 1, START + 60_000 * MS + 1, u64::MAX, START, START + 50 * MS];
    let converted = BatchDraft::new().on_cpu(20).nanos(Some(7), &["work"], &times, &[]).convert();
    assert_eq!(converted.text(), "7: work@0 work@50 -@100");
    assert_eq!(converted.report.losses.to_string(), "4 malformed");
}

/// Guarantees: samples are ordered by time, whatever their order on the wire. Samples with equal times on one thread
/// are kept; the time that the first of them cannot get is added to later ones.
/// rule: sample-format-v2#sample-timestamp
#[test]
fn order_and_equal_times() {
    let converted = BatchDraft::new().on_cpu(20).at(7, &["b"], [100, 0]).at(7, &["a"], [50, 50]).convert();
    assert_eq!(converted.text(), "7: b@0 a@50 a@50 b@100 -@200");
    assert_eq!(attributed(&converted.chunks).values().sum::<i64>(), 4 * 50_000);
}

/// Guarantees: a single observation becomes two samples that share its time, since Relay drops a thread with fewer
/// samples (getsentry/relay `relay-profiling/src/sample/v2.rs`).
/// rule: differences#two-samples
#[test]
fn lone_observation() {
    let batch = || BatchDraft::new().on_cpu(20).at(7, &["lone"], [100]).at(8, &["pair"], [0, 50]);
    let split = batch().convert();
    assert_eq!(split.text(), "7: lone@100 lone@125 -@150\n8: pair@0 pair@50 -@100");
    assert_eq!(split.report.synthesized, 3);
    let drop = batch().convert_with(Settings { lone_samples: LoneSamples::Drop, ..Settings::default() });
    assert_eq!(drop.text(), "8: pair@0 pair@50 -@100");
    assert_eq!(drop.report.losses.to_string(), "1 lone_sample");
}

/// Guarantees: an observation whose value is a time gets exactly that time (except for `off_cpu` and similar types),
/// although the distances of such events are almost the same: there is no timer, so no gap is attributed to jitter. If
/// each value equals the period, there is a timer.
#[test]
fn events_are_exact() {
    let times = [0, 24, 50, 74].map(|at| START + at * MS);
    let events = |values: &[i64]| {
        let timed = BatchDraft::new().profile("cpu", "milliseconds", 1_000).period("cpu", "milliseconds", 20);
        timed.nanos(Some(7), &["wait"], &times, values).convert()
    };
    assert_eq!(events(&[19, 21, 18, 17]).text(), "7: wait@0 -@19 wait@24 -@45 wait@50 -@68 wait@74 -@91");
    let no_period =
        BatchDraft::new().profile("wall", "milliseconds", 1_000).nanos(Some(7), &["wait"], &times, &[20; 4]);
    assert_eq!(no_period.convert().text(), "7: wait@0 -@20 wait@24 -@44 wait@50 -@70 wait@74 -@94");
    assert_eq!(events(&[20; 4]).text(), "7: wait@0 wait@24 wait@50 wait@74 -@94");
}

/// Guarantees: an observation that counts several samples gets several periods.
#[test]
fn counted_observation() {
    let converted =
        BatchDraft::new().on_cpu(20).nanos(Some(7), &["work"], &[START, START + 300 * MS], &[3, 1]).convert();
    assert_eq!(converted.text(), "7: work@0 -@150 work@300 -@350");
}

/// Guarantees: a period of a nanosecond or a century, or an overflow of values, causes neither a panic nor times
/// outside of the window.
/// rule: otep-0239#period
#[test]
fn absurd_periods() {
    for period in [1, i64::MAX] {
        let batch = BatchDraft::new().window(1_000).profile("samples", "count", 1_000).period("cpu", "seconds", period);
        let converted = batch.at(7, &["work"], [0, 100]).convert();
        let owned = attributed(&converted.chunks)["work"];
        assert!(owned <= 1_000_000, "{owned}");
    }
    let tiny = BatchDraft::new().profile("samples", "count", 1_000).period("cpu", "nanoseconds", 1);
    let converted = tiny.at(7, &["work"], [0, 100]).convert();
    assert_eq!(converted.text(), "7: work@0 -@0 work@100 -@100");
    let values = BatchDraft::new().profile("cpu", "seconds", 1_000);
    let converted = values.nanos(Some(7), &["work"], &[START, START + MS], &[i64::MIN, i64::MAX]).convert();
    assert_eq!(attributed(&converted.chunks)["work"], 59_999_000);
}

/// Guarantees: observations without a thread are distributed to as few threads as possible without overlaps; evenly
/// spaced ones go to a single thread.
/// rule: sample-format-v2#sample-thread-id
#[test]
fn unknown_threads() {
    let one = BatchDraft::new().on_cpu(20).nanos(None, &["a"], &[0, 48, 103].map(|at| START + at * MS), &[]).convert();
    assert_eq!(one.text(), "0: a@0 a@48 a@103 -@153");
    let two = BatchDraft::new()
        .on_cpu(20)
        .nanos(None, &["a"], &[0, 50, 100].map(|at| START + at * MS), &[])
        .nanos(None, &["b"], &[25, 75, 125].map(|at| START + at * MS), &[])
        .convert();
    assert_eq!(two.text(), "0: a@0 a@50 a@100 -@150\n1: b@25 b@75 b@125 -@175");
}

/// Guarantees: the ids of synthetic threads differ from those of real ones.
#[test]
fn synthetic_beside_real_threads() {
    let converted = BatchDraft::new().on_cpu(20).nanos(None, &["a"], &[START], &[]).at(0, &["b"], [0]).convert();
    assert_eq!(converted.text(), "0: b@0 b@25 -@50\n4294967296: a@0 a@25 -@50");
}

/// Guarantees: a stack without frames, which Sentry treats as idle time, is counted and not written.
/// rule: sample-format-v2#reject-no-data
#[test]
fn no_frames() {
    let mut batch = BatchDraft::new().on_cpu(20).at(7, &["work"], [0, 50]).at(7, &[], [100, 150]);
    let nothing = batch.builder.stack(&[None]);
    batch.builder.sample(nothing, None, None, &[START], &[]);
    let converted = batch.convert();
    assert_eq!(converted.text(), "7: work@0 work@50 -@100");
    assert_eq!(converted.report.losses.to_string(), "3 no_frames");
}

/// Guarantees: if a value is longer than the gap to the thread's next observation, or than the rest of the window, the
/// part that is not shown is counted; so is a thread's time beyond the duration of its profile.
#[test]
fn time_that_has_no_place_is_counted() {
    let wall = || BatchDraft::new().profile("wall", "milliseconds", 60_000);
    let times = [START, START + 46_000 * MS, START + 47_000 * MS];
    let next = wall().nanos(Some(7), &["wait", "main"], &times, &[90_000, 10, 10]).convert();
    // 30 s are beyond the window; of the other 60 s, the time after the next observation is clipped.
    assert_eq!((next.report.notes.clipped_nanos, next.report.clipped_seconds), (44_000 * MS, 44));
    let end = wall().nanos(Some(7), &["wait", "main"], &[START + 14_000 * MS], &[90_000]).convert();
    assert_eq!((end.text(), end.report.clipped_seconds), ("7: wait@14000 wait@37000 -@60000".to_owned(), 44));
    let sum = BatchDraft::new().profile("cpu", "seconds", 60_000).value(Some(7), &["a"], 80).value(Some(7), &["b"], 20);
    let sum = sum.convert();
    assert_eq!((sum.text(), sum.report.clipped_seconds), ("7: a@0 b@48000 -@60000".to_owned(), 40));
    let off_cpu = BatchDraft::new().profile("off_cpu", "milliseconds", 60_000);
    let off_cpu = off_cpu.nanos(Some(7), &["wait"], &[START + 2_000 * MS], &[5_000]);
    let off_cpu = off_cpu.convert_with(Settings { off_cpu: true, ..Settings::default() });
    assert_eq!((off_cpu.text(), off_cpu.report.clipped_seconds), ("7: wait@0 wait@1000 -@2000".to_owned(), 3));
}

/// Guarantees: small clipped times add up over the batches of a converter.
#[test]
fn clipped_time_adds_up() {
    let batch = || BatchDraft::new().window(1_000).on_cpu(20).at(7, &["work"], [900, 980]).finish();
    let mut converter = Converter::new(Settings::default());
    let mut convert = || converter.convert(&batch(), &mut Collected::default()).clipped_seconds;
    assert_eq!((0..100).map(|_| convert()).sum::<u64>(), 3);
}

/// Guarantees: the values of a profile with a start but no duration begin at that start. A thread's values have their
/// full length; values without a thread end at the next profile. Values that would not fit into the window begin
/// earlier.
#[test]
fn start_without_a_duration() {
    let at = |batch: BatchDraft, millis: u64| {
        let mut batch = batch.profile("cpu", "milliseconds", 0);
        batch.builder.open_profile().unwrap().time_unix_nano = START + millis * MS;
        batch
    };
    assert_eq!(
        at(BatchDraft::new(), 10_000).value(Some(7), &["a"], 500).convert().text(),
        "7: a@10000 a@10250 -@10500"
    );
    assert_eq!(
        at(BatchDraft::new(), 59_900).value(Some(7), &["a"], 500).convert().text(),
        "7: a@59500 a@59750 -@60000"
    );
    // The later profile is first in the batch.
    let first = at(BatchDraft::new(), 12_000).value(None, &["b"], 1_000);
    let converted = at(first, 10_000).value(None, &["a"], 2_000).value(None, &["a"], 2_000).convert();
    let times = attributed(&converted.chunks);
    assert_eq!((times["a"], times["b"]), (4_000_000, 1_000_000));
    let samples = samples(converted.chunk());
    let of =
        |name: &'static str| samples.iter().filter(move |sample| sample.stack == [name]).map(|sample| sample.micros);
    assert_eq!((of("a").min(), of("b").min()), (Some(10_000_000), Some(12_000_000)));
    assert!(of("a").all(|micros| micros < 12_000_000), "{}", converted.text());
}
