//! Tests of the choice of one profile type for a process and window.

use super::support::{BatchDraft, MS, START, attributed};
use crate::sentry::chunk::{Prefer, Settings};

/// Guarantees: one of several types is shown (`select::order` tests which), and the others are counted.
/// rule: otep-0239#unsampled-values, otep-0239#sample-type, otep-0239#type-order, otep-0239#default-sample-type
#[test]
fn shapes() {
    let batch = BatchDraft::new()
        .profile("samples", "count", 1_000)
        .period("cpu", "milliseconds", 10)
        .value(None, &["counted"], 3)
        .profile("cpu", "nanoseconds", 1_000)
        .value(None, &["timed"], 30_000_000);
    let pprof = batch.convert();
    assert_eq!(pprof.text(), "0: timed@0 timed@15 -@30");
    assert_eq!(pprof.report.losses.to_string(), "1 redundant_type");
}

/// Guarantees: samples with and without timestamps of one type form one stream, in one profile or in two; those without
/// timestamps fill the remaining time of their thread, and nothing is lost.
#[test]
fn with_and_without_timestamps() {
    let first = || BatchDraft::new().profile("wall", "milliseconds", 1_000);
    let stamped = [START + 100 * MS, START + 600 * MS];
    let one = first().nanos(Some(7), &["stamped"], &stamped, &[200, 300]).value(Some(7), &["timed"], 500);
    let two = first().value(Some(7), &["timed"], 500).profile("wall", "milliseconds", 1_000);
    let two = two.nanos(Some(7), &["stamped"], &stamped, &[200, 300]);
    for converted in [one.convert(), two.convert()] {
        let text = "7: timed@0 stamped@100 timed@300 stamped@600 timed@900 -@1000";
        assert_eq!((converted.text(), converted.report.losses.to_string()), (text.to_owned(), String::new()));
    }
}

/// Guarantees: several profiles of one type form one stream (a profiler reports every five seconds).
#[test]
fn several_reports() {
    let converted =
        BatchDraft::new().on_cpu(20).at(7, &["work"], [0, 50]).on_cpu(20).at(7, &["work"], [100, 150]).convert();
    assert_eq!(converted.text(), "7: work@0 work@50 work@100 work@150 -@200");
}

/// Guarantees: profiles of two profilers of one process are not added up; the one with more observations is shown.
#[test]
fn two_profilers() {
    let mut batch = BatchDraft::new().on_cpu(20).at(7, &["first"], [0, 50]);
    batch.builder.scope("another profiler", "1");
    let converted = batch.on_cpu(20).at(7, &["second"], [0, 50, 100]).convert();
    assert_eq!(converted.text(), "7: second@0 second@50 second@100 -@150");
    assert_eq!(converted.report.losses.to_string(), "2 redundant_type");
}

/// Guarantees: wall time takes precedence over CPU time, unless the operator prefers CPU time.
#[test]
fn wall_or_cpu() {
    let batch = || {
        let wall = BatchDraft::new().profile("wall", "nanoseconds", 1_000).value(Some(7), &["wall"], 40_000_000);
        wall.profile("cpu", "nanoseconds", 1_000).value(Some(7), &["cpu"], 20_000_000)
    };
    assert_eq!(batch().convert().text(), "7: wall@0 wall@20 -@40");
    let cpu = batch().convert_with(Settings { prefer: Prefer::Cpu, ..Settings::default() });
    assert_eq!(cpu.text(), "7: cpu@0 cpu@10 -@20");
}

/// Guarantees: only counted samples are multiplied by a period. Values in another unit are not time, whatever the
/// period, with and without timestamps; they are counted as lost.
#[test]
fn only_counts_are_multiplied() {
    let memory = |unit| BatchDraft::new().profile("alloc_space", unit, 1_000).period("cpu", "nanoseconds", 10_000_000);
    for unit in ["bytes", "By", "objects", "hertz"] {
        for batch in [memory(unit).value(None, &["heap"], 3), memory(unit).at(7, &["heap"], [0])] {
            let converted = batch.convert();
            assert_eq!(converted.report.losses.to_string(), "1 no_time_unit", "{unit}");
            assert!(converted.chunks.is_empty());
        }
    }
    for unit in ["count", "1", "{sample}", "samples", ""] {
        let converted = memory(unit).value(None, &["work"], 3).convert();
        assert_eq!(converted.text(), "0: work@0 work@15 -@30", "{unit}");
    }
}

/// Guarantees: a profile with neither a period nor a unit of time is counted as lost (memory, events, goroutines).
#[test]
fn no_time() {
    let converted = BatchDraft::new()
        .profile("inuse_space", "bytes", 1_000)
        .period("space", "bytes", 524_288)
        .value(None, &["heap"], 4_096)
        .profile("events", "count", 1_000)
        .at(7, &["event"], [0, 10])
        .profile("samples", "count", 1_000)
        .period("cpu", "nanoseconds", 0)
        .at(7, &["no period"], [0, 10])
        .convert();
    assert_eq!(converted.report.losses.to_string(), "5 no_time_unit");
    assert!(converted.chunks.is_empty());
}

/// Guarantees: off-CPU time is counted as lost if the option is off. If it is on, the time is shown between the samples
/// where it occurred: the eBPF profiler's timestamp is its end (`support/ebpf/off_cpu.ebpf.c`).
#[test]
fn off_cpu() {
    let batch = || {
        let on = BatchDraft::new().on_cpu(20).at(7, &["work"], [0, 200]);
        on.profile("off_cpu", "nanoseconds", 1_000)
            .nanos(Some(7), &["read"], &[START + 180 * MS], &[130_000_000])
            .profile("delay", "nanoseconds", 1_000)
            .value(None, &["mutex"], 1_000_000)
    };
    let off = batch().convert();
    assert_eq!(off.text(), "7: work@0 -@50 work@200 -@250");
    assert_eq!(off.report.losses.to_string(), "2 off_cpu");
    let on = batch().convert_with(Settings { off_cpu: true, ..Settings::default() });
    assert_eq!(on.text(), "7: work@0 read@50 -@180 work@200 -@250");
    assert_eq!(on.report.losses.to_string(), "1 off_cpu");
}

/// Guarantees: in wall mode a waiting thread is written at the start and the end of its run; the attributed time is
/// unchanged, and the omitted samples are counted as coalesced.
#[test]
fn wall_runs() {
    let wall = || BatchDraft::new().profile("wall", "count", 60_000).period("wall", "milliseconds", 10);
    let converted = wall().at(7, &["wait"], [0, 10, 20, 30, 40]).at(7, &["work"], [50]).convert();
    assert_eq!(converted.text(), "7: wait@0 wait@40 work@50 -@60");
    assert_eq!(converted.report.coalesced, 3);
    assert_eq!(attributed(&converted.chunks)["wait"], 50_000);
    let two_runs = wall().at(7, &["wait"], [0, 10, 20, 100, 110, 120]).convert();
    assert_eq!(two_runs.text(), "7: wait@0 wait@20 -@30 wait@100 wait@120 -@130");
}

/// Guarantees: values without timestamps are placed one after the other from the profile's start, and eight busy cores
/// become eight threads; a value that needs several threads is divided, but counted once.
#[test]
fn values_fill_threads() {
    let batch = BatchDraft::new().profile("cpu", "milliseconds", 1_000);
    let converted = batch.value(None, &["a"], 400).value(None, &["b"], 1_200).value(None, &["c"], 100).convert();
    assert_eq!(converted.text(), "0: a@0 b@400 -@1000\n1: b@0 c@600 -@700");
    let sum: i64 = attributed(&converted.chunks).values().sum();
    assert_eq!(sum, 1_700_000);
    assert_eq!(converted.report.observations, 3);
    assert_eq!((converted.report.samples, converted.report.synthesized), (6, 3));
}

/// Guarantees: a thread's values are placed on that thread, and shortened if their sum is longer than the profile.
#[test]
fn values_of_a_thread() {
    let fitting = BatchDraft::new().profile("cpu", "milliseconds", 1_000).value(Some(7), &["a"], 100);
    assert_eq!(fitting.value(Some(7), &["b"], 200).convert().text(), "7: a@0 b@100 -@300");
    let long = BatchDraft::new().profile("cpu", "milliseconds", 1_000).value(Some(7), &["a"], 1_000);
    assert_eq!(long.value(Some(7), &["b"], 1_000).convert().text(), "7: a@0 b@500 -@1000");
}

/// Guarantees: several values without timestamps are one observation with the sum of their durations.
/// rule: otlp-profiles#one-value
#[test]
fn several_values_are_one_observation() {
    let batch = BatchDraft::new().profile("cpu", "milliseconds", 1_000).nanos(Some(7), &["a"], &[], &[100, 200]);
    let converted = batch.convert();
    assert_eq!(converted.text(), "7: a@0 a@150 -@300");
    assert_eq!(converted.report.observations, 1);
}

/// Guarantees: profiles of successive times are placed one after the other, each from its own start.
#[test]
fn values_of_successive_profiles() {
    let mut batch = BatchDraft::new().profile("cpu", "milliseconds", 1_000).value(None, &["a"], 100);
    batch = batch.profile("cpu", "milliseconds", 1_000);
    batch.builder.open_profile().unwrap().time_unix_nano = START + 1_000 * MS;
    let converted = batch.value(None, &["b"], 100).convert();
    assert_eq!(converted.text(), "0: a@0 -@100 b@1000 -@1100");
}

/// Guarantees: values of zero or below are not time; they are counted as lost.
#[test]
fn values_of_nothing() {
    let batch = BatchDraft::new().profile("cpu", "nanoseconds", 1_000).value(None, &["none"], 0);
    let converted = batch.value(None, &["less"], -5).value(None, &["some"], 2_000_000).convert();
    assert_eq!(converted.text(), "0: some@0 some@1 -@2");
    assert_eq!(converted.report.losses.to_string(), "2 no_time_unit");
}

/// Guarantees: a value that needs more threads than a host has cores is truncated, and the truncation is noted.
#[test]
fn values_beyond_all_threads() {
    let batch = BatchDraft::new().window(10).profile("cpu", "seconds", 10).value(None, &["huge"], i64::MAX);
    let converted = batch.convert();
    assert_eq!(converted.report.observations, 1);
    assert!(converted.report.notes.clipped_nanos > 0);
    assert_eq!(converted.chunk()["profile"]["thread_metadata"].as_object().unwrap().len(), 1024);
}

/// Guarantees: if a profile without threads has values with and without timestamps, they are placed on different
/// threads, so that neither takes the time of the other.
#[test]
fn values_beside_timestamps() {
    let times = [100, 150, 200].map(|at| START + at * MS);
    let batch =
        BatchDraft::new().on_cpu(20).value(None, &["value", "main"], 8).nanos(None, &["timed", "main"], &times, &[]);
    let converted = batch.convert();
    assert!(converted.report.losses.is_none());
    let owned = attributed(&converted.chunks);
    assert_eq!((owned["value"], owned["timed"]), (400_000, 150_000));
}
