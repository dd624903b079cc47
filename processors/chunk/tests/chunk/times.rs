use profbridge_engine::component::Processor;
use profbridge_model::{Builder, Profile, Profiles};
use profbridge_processor_chunk::ChunkProcessor;

use crate::support::*;

fn advance(chunk: &mut ChunkProcessor, nanos: u64) -> Vec<Profiles> {
    batches(&profbridge_testkit::advance(chunk, at(nanos)))
}

/// The start of the first window of a process that begins at or after [`T`].
fn start_of(identity: &str, pid: i64) -> u64 {
    batches(&run(identity, "", one(&process(pid), &[T + 60 * S])))[0].window.as_ref().unwrap().start_unix_nano
}

/// Guarantees: windows of processes start at different times, so that they do not all close at once, and at multiples
/// of half a second, at which the receiver `ptrace` splits longer observations.
#[test]
fn windows_are_shifted() {
    let starts: std::collections::BTreeSet<_> = (0..50).map(|pid| start_of("", pid)).collect();
    assert!(starts.len() > 35, "{starts:?}");
    assert!(starts.iter().all(|start| start.is_multiple_of(S / 2)), "{starts:?}");
    assert!(starts.iter().all(|start| (T..=T + 60 * S).contains(start)));
}

/// Guarantees: a window closes when its length plus the lateness has passed since its first arrival, and not before.
#[test]
fn windows_close_by_age() {
    let mut chunk = chunk("window: 10s", "lateness: 2s");
    assert_eq!(chunk.due(), None);
    process_one(&mut chunk, one(&process(1), &[T]), at(3 * S));
    process_one(&mut chunk, one(&process(1), &[T + 1]), at(9 * S));
    assert_eq!(chunk.due(), Some(at(15 * S).monotonic_nano));
    assert!(advance(&mut chunk, 15 * S - 1).is_empty());
    let out = advance(&mut chunk, 15 * S);
    assert_eq!(out.iter().map(times).collect::<Vec<_>>(), [[T, T + 1]]);
    assert_eq!(chunk.due(), None);
}

/// Guarantees: data that arrives after its window was closed opens another one with the same id and times.
#[test]
fn late_data_opens_another_window() {
    let mut chunk = chunk("", "");
    process_one(&mut chunk, one(&process(1), &[T]), at(0));
    let first = advance(&mut chunk, 70 * S);
    process_one(&mut chunk, one(&process(1), &[T + 1]), at(71 * S));
    let second = flush(&mut chunk);
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_eq!(first[0].window, second[0].window);
    assert_eq!(times(&second[0]), [T + 1]);
}

/// Guarantees: a window closes once the time of its process is past the window's end by more than the lateness, even if
/// little real time has passed, so that a backlog does not accumulate.
#[test]
fn windows_close_when_their_time_has_passed() {
    let mut chunk = chunk("window: 10s", "lateness: 2s");
    let start = start_of("window: 10s", 1);
    let send = |chunk: &mut ChunkProcessor, time| -> Vec<u64> {
        batches(&process_one(chunk, one(&process(1), &[time]), at(0))).iter().flat_map(times).collect()
    };
    assert_eq!(send(&mut chunk, start), [0; 0]);
    assert_eq!(send(&mut chunk, start + 12 * S - 1), [0; 0]);
    assert_eq!(send(&mut chunk, start + 12 * S), [start]);
    // Another process is not affected, and a clock that is wrong by an hour closes nothing.
    process_one(&mut chunk, one(&process(2), &[T]), at(0));
    let out = process_one(&mut chunk, one(&process(2), &[T + 3600 * S]), at(0));
    assert!(out.telemetry.is_empty());
}

/// Guarantees: the range of a profile determines the window of samples without timestamps: the window that contains the
/// range, or a separate one that starts with it; a profile without a time counts as arriving now.
#[test]
fn ranges_have_windows() {
    let start = start_of("", 1);
    let window = |batch| {
        let mut chunk = chunk("", "");
        process_one(&mut chunk, batch, at(30 * S));
        let out = flush(&mut chunk);
        assert_eq!(out.len(), 1);
        let window = out[0].window.clone().unwrap();
        (window.start_unix_nano, window.end_unix_nano)
    };
    assert_eq!(window(ranged(1, start + 10 * S, 5 * S)), (start, start + 60 * S));
    assert_eq!(window(ranged(1, start + 58 * S, 5 * S)), (start + 58 * S, start + 63 * S));
    assert_eq!(window(ranged(1, start + 10 * S, 300 * S)), (start + 10 * S, start + 70 * S));
    let (from, to) = window(ranged(1, 0, 0));
    assert!((from..to).contains(&(T + 30 * S)));
}

/// Guarantees: a profile that extends over several windows covers in each only its part inside; samples without
/// timestamps keep the range of their profile.
#[test]
fn profiles_are_clipped_to_their_window() {
    let start = start_of("", 1);
    let mut builder = Builder::new();
    builder.resource(&process(1));
    let (time_unix_nano, duration_nano) = (start + 55 * S, 10 * S);
    builder.profile(Profile { time_unix_nano, duration_nano, ..Default::default() });
    builder.sample(None, None, None, &[start + 56 * S, start + 61 * S], &[]);
    builder.sample(None, None, None, &[], &[3]);
    let mut chunk = chunk("", "");
    process_one(&mut chunk, builder.finish().unwrap(), at(70 * S));
    let range = |batch: &Profiles| {
        let profile = batch.profiles().next().unwrap();
        (profile.time_unix_nano, profile.duration_nano)
    };
    let out = flush(&mut chunk);
    let ranges: Vec<_> = out.iter().map(range).collect();
    assert_eq!(ranges, [(start + 55 * S, 5 * S), (start + 60 * S, 5 * S), (start + 55 * S, 10 * S)]);
}

/// Guarantees: a profile with a time but no duration keeps its time.
#[test]
fn moments_keep_their_time() {
    let mut builder = Builder::new();
    builder.resource(&process(1));
    builder.profile(Profile { time_unix_nano: T, ..Default::default() });
    builder.sample(None, None, None, &[T, T + 1], &[]);
    let batch = builder.finish().unwrap();
    for identity in MODES {
        let sent = batches(&run(identity, "", batch.clone()));
        let profile = sent[0].profiles().next().unwrap();
        assert_eq!((profile.time_unix_nano, profile.duration_nano), (T, 0), "{identity}");
    }
}
