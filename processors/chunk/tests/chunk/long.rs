//! Tests of data longer than a window, which continues in the next one.

use profbridge_engine::component::{Outbox, Processor, flush_all};
use profbridge_model::builder::Any;
use profbridge_model::{Builder, Profile, Profiles};

use crate::support::*;

/// A sample: thread, function, timestamps and values in seconds.
type SampleInSeconds<'a> = (Option<i64>, &'a str, &'a [u64], &'a [i64]);

/// A process with one profile of this type, which starts at [`T`] and has these samples.
fn batch(kind: &str, duration: u64, samples: &[SampleInSeconds<'_>]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&process(1));
    let sample_type = builder.value_type(kind, "seconds");
    let (time_unix_nano, duration_nano) = (T, duration * S);
    builder.profile(Profile { sample_type, time_unix_nano, duration_nano, ..Profile::default() });
    for (thread, function, times, values) in samples {
        let frame = builder.frame(function, "", 0);
        let stack = builder.stack(&[frame]);
        let thread = thread.and_then(|id| builder.attributes(&[("thread.id", Any::Int(id))]));
        let times: Vec<u64> = times.iter().map(|time| T + time * S).collect();
        builder.sample(stack, thread, None, &times, values);
    }
    builder.finish().unwrap()
}

/// The windows of a batch: start and end in seconds after [`T`], and for each observation the function, its timestamp
/// or its profile's range, and its values. The second result is the number of synthesized observations.
fn cut(identity: &str, batch: Profiles) -> (String, u64) {
    let mut chunk = chunk(identity, "");
    let observations = batch.observations();
    let mut out = process_one(&mut chunk, batch, at(0));
    assert_eq!(chunk.held().quantities.total() + sent(&out), observations + out.synthesized.total());
    flush_all(&mut chunk, at(0), &mut out);
    assert_eq!((out.losses.total().total(), sent(&out)), (0, observations + out.synthesized.total()));
    let seconds = |time: u64| (time as i64 - T as i64) / S as i64;
    let mut windows: Vec<(u64, String)> = Vec::new();
    for batch in batches(&out) {
        let window = batch.window.clone().unwrap();
        let mut text = format!("{}..{}:", seconds(window.start_unix_nano), seconds(window.end_unix_nano));
        for seen in seen(&batch) {
            let when = match (seen.time, seen.range) {
                (Some(time), _) => format!("{}", seconds(time)),
                (None, Some((start, duration))) => format!("{}+{}", seconds(start), duration / S),
                (None, None) => String::new(),
            };
            text += &format!(" {}@{when}={:?}", seen.frames[0], seen.values);
        }
        windows.push((window.start_unix_nano, text));
    }
    windows.sort();
    (windows.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n"), out.synthesized.total())
}

fn sent(out: &Outbox) -> u64 {
    batches(out).iter().map(Profiles::observations).sum()
}

/// Guarantees: the values of a profile of 120 s are divided between two windows. Those of each thread are placed one
/// after the other from the start. A value that crosses the border is split, and counted once as an observation and
/// once as synthesized.
/// rule: otep-0239#duration
#[test]
fn values_of_two_minutes() {
    let batch = || {
        let samples: [SampleInSeconds<'_>; 4] = [
            (Some(7), "a", &[], &[50]),
            (Some(7), "b", &[], &[20, 10]),
            (Some(8), "c", &[], &[60]),
            (Some(7), "d", &[], &[20]),
        ];
        batch("cpu", 120, &samples)
    };
    let expected = "0..60: a@0+60=[50] b@0+60=[10] c@0+60=[60]\n60..120: b@60+60=[20] d@60+60=[20]";
    for identity in ["", "window: 0s"] {
        assert_eq!(cut(identity, batch()), (expected.to_owned(), 1), "{identity}");
    }
    let (text, synthesized) = cut("window: 30s", batch());
    assert_eq!(text.lines().count(), 4, "{text}");
    assert_eq!(synthesized, 4);
}

/// Guarantees: values without a thread fill as many parallel lanes of the profile's length as needed, and each window
/// gets its part of every lane.
#[test]
fn values_without_threads() {
    let batch = batch("cpu", 120, &[(None, "a", &[], &[200]), (None, "b", &[], &[150])]);
    // The values fill three lanes: 120 s of a; 80 s of a and 40 s of b; 110 s of b.
    let expected = "0..60: a@0+60=[120] b@0+60=[60]\n60..120: a@60+60=[80] b@60+60=[90]";
    assert_eq!(cut("", batch), (expected.to_owned(), 2));
}

/// Guarantees: a thread with more time than its profile gets the same share in every window; a profile without a
/// duration is as long as the longest of its threads.
#[test]
fn values_of_a_wrong_length() {
    let long = batch("cpu", 120, &[(Some(7), "a", &[], &[120]), (Some(7), "b", &[], &[120])]);
    assert_eq!(cut("", long), ("0..60: a@0+60=[120]\n60..120: b@60+60=[120]".to_owned(), 0));
    let unknown = batch("cpu", 0, &[(Some(7), "a", &[], &[100]), (Some(8), "b", &[], &[10])]);
    let expected = "0..60: a@0+60=[60] b@0+60=[10]\n60..100: a@60+40=[40]";
    assert_eq!(cut("window: 0s", unknown), (expected.to_owned(), 1));
    let short = batch("cpu", 0, &[(Some(7), "a", &[], &[50]), (None, "b", &[], &[100])]);
    assert_eq!(cut("window: 0s", short), ("0..60: a@0+0=[50] b@0+0=[100]".to_owned(), 0));
}

/// Guarantees: a wait of 90 s is split at the end of its window, and the observations before and after it are not
/// split.
#[test]
fn timed_values() {
    let batch = || batch("wall", 200, &[(Some(7), "w", &[1, 14, 104], &[13, 90, 5])]);
    let expected = "1..61: w@1=[13] w@14=[47]\n61..121: w@104=[5] w@61=[43]";
    let (text, synthesized) = cut("window: 0s", batch());
    assert_eq!((text.replace("w@61=[43] w@104=[5]", "w@104=[5] w@61=[43]"), synthesized), (expected.to_owned(), 1));
    let (text, synthesized) = cut("", batch());
    let sum = |text: &str| {
        text.split('[').skip(1).filter_map(|rest| rest.split(']').next()?.parse::<i64>().ok()).sum::<i64>()
    };
    assert_eq!((sum(&text), text.lines().count() as u64), (108, 2 + synthesized / 2), "{text}");
}

/// Guarantees: an observation whose timestamp is its end (off-CPU time) is split towards the past.
#[test]
fn values_that_end_at_their_timestamp() {
    let batch = batch("off_cpu", 200, &[(Some(7), "w", &[0, 100], &[0, 70])]);
    assert_eq!(cut("window: 0s", batch), ("0..60: w@0=[0] w@60=[30]\n60..120: w@100=[40]".to_owned(), 1));
}

/// Guarantees: a part in a future window does not close the current window.
#[test]
fn parts_close_nothing() {
    let mut chunk = chunk("window: 10s", "lateness: 1s");
    let out = process_one(&mut chunk, batch("wall", 100, &[(Some(7), "w", &[5], &[90])]), at(0));
    assert!(out.telemetry.is_empty() && out.synthesized.total() >= 8, "{}", out.synthesized.total());
}

/// Guarantees: absurd values fill at most an hour of windows, and an absurd number of values adds at most the parts
/// that a request may add; no time is lost, and nothing overflows.
#[test]
fn absurd_values() {
    for identity in ["window: 1s", "window: 0s"] {
        for (kind, duration) in [("wall", 100), ("off_cpu", 100), ("cpu", 1 << 33), ("cpu", 0)] {
            let samples: [SampleInSeconds<'_>; 2] =
                [(Some(7), "a", &[0, 1], &[i64::MAX, i64::MIN]), (Some(8), "b", &[], &[i64::MAX])];
            let (text, synthesized) = cut(identity, batch(kind, duration, &samples));
            assert!(synthesized <= 120, "{synthesized} for {kind}: {text}");
        }
    }
    let many: Vec<SampleInSeconds<'_>> = vec![(None, "a", &[], &[1 << 40]); 2_000];
    let mut chunk = chunk("", "");
    let out = process_one(&mut chunk, batch("cpu", 3_600, &many), at(0));
    assert!(out.synthesized.total() <= 2_000 + (1 << 16), "{}", out.synthesized.total());
}
