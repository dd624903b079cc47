//! Clocks that are set, and wrong times, by less than the weeks that are always detected.

use profbridge_engine::component::{Now, Processor as _};
use profbridge_model::Profiles;
use profbridge_processor_link_spans::LinkSpans;

use crate::support::*;

const HOUR: u64 = 3600 * S;

/// The time this long after the start on the monotonic clock, and this long after [`T`] on the wall clock.
fn now(monotonic: u64, wall: u64) -> Now {
    Now { monotonic_nano: 5 * S + monotonic, unix_nano: T + wall }
}

/// Profiles of thread 12 from one time to another, on the profiler's clock.
fn observed(from: u64, to: u64) -> Profiles {
    let times: Vec<u64> = (from..to).step_by((50 * MS) as usize).collect();
    profiles(&web(7), &[(12, "worker", &times)])
}

/// Sends a span of that thread. Returns the thread in its link; `None` if it waits.
fn ask(processor: &mut LinkSpans, from: u64, to: u64, at: Now) -> Option<Link> {
    let asked = spans(&traced(7), vec![span(1, from, to, &native(12))]);
    links(&process(processor, asked, at)).pop().map(|(_, link)| link)
}

/// Guarantees: if a clock was set back by less than weeks, on all machines or on the sender alone, spans wait for the
/// profiles of their time as before, and newer observations are remembered; late profiles from before are linked as
/// well.
#[test]
fn a_clock_is_set_back() {
    for ours_too in [true, false] {
        let mut processor = link_spans("{}");
        let wall = |second: u64| if second >= 20 && ours_too { second * S } else { HOUR + second * S };
        for second in 0..20 {
            process(&mut processor, observed(HOUR + second * S, HOUR + second * S + S), now(second * S, wall(second)));
        }
        process(&mut processor, observed(20 * S, 21 * S), now(21 * S, wall(21)));
        let waits = ask(&mut processor, 20_500 * MS, 21_500 * MS, now(21 * S, wall(21)));
        assert_eq!(waits, None, "its end was not observed yet");
        process(&mut processor, observed(21 * S, 22 * S), now(22 * S, wall(22)));
        assert_eq!(links(&advance(&mut processor, now(23 * S, wall(23)))), [(1, linked("12"))]);
        for second in 22..60 {
            let batch = observed(second * S, second * S + S);
            process(&mut processor, batch, now(second * S + S, wall(second)));
        }
        assert_eq!(ask(&mut processor, 30 * S, 31 * S, now(60 * S, wall(60))), Some(linked("12")));
        assert_eq!(ask(&mut processor, 59_500 * MS, 60_500 * MS, now(60 * S, wall(60))), None);
        flush(&mut processor, now(60 * S, wall(60)));
        let before = ask(&mut processor, HOUR + 10 * S, HOUR + 11 * S, now(60 * S, wall(60)));
        assert_eq!(before, None, "nothing of that time came since");
        assert_eq!(links(&flush(&mut processor, now(60 * S, wall(60)))), [(1, linked("12"))]);
    }
}

/// Guarantees: threads that ended before a clock was set back are forgotten after the usual time, though on the new
/// clock the times of their observations are still in the future.
#[test]
fn what_was_before_a_clock_was_set_back_is_forgotten() {
    let mut processor = link_spans("{}");
    let ended: Vec<_> = (1000..3000).map(|id| (id, "", &[HOUR][..])).collect();
    process(&mut processor, profiles(&web(7), &ended), now(0, HOUR));
    let with_threads = processor.held().bytes;
    for second in 1..400 {
        process(&mut processor, observed(second * S, second * S + S), now(second * S, second * S));
    }
    assert!(processor.held().bytes < with_threads / 10, "{} of {with_threads}", processor.held().bytes);
}

/// Guarantees: a time far ahead of the others in its request is ignored and counted, whichever thread it belongs to and
/// whatever arrived before; the others count.
#[test]
fn a_time_ahead_of_its_request() {
    for (thread, comes_first) in [(12, false), (12, true), (13, false), (13, true)] {
        let mut processor = link_spans("{}");
        if comes_first {
            process(&mut processor, observed(0, S), at(S));
        }
        let times: Vec<u64> = (S..2 * S).step_by((50 * MS) as usize).collect();
        let ahead: &[u64] = &[2 * HOUR];
        let out = process(&mut processor, profiles(&web(7), &[(12, "worker", &times), (thread, "", ahead)]), at(2 * S));
        assert_eq!(note(&out, "profiled_times_left_out"), 1);
        assert_eq!(ask(&mut processor, 1500 * MS, 2500 * MS, at(2 * S)), None, "its end was not observed yet");
        process(&mut processor, observed(2 * S, 3 * S), at(3 * S));
        assert_eq!(links(&advance(&mut processor, at(4 * S))), [(1, linked("12"))]);
    }
}

/// Guarantees: a time far ahead that arrives alone counts until others arrive, and causes nothing to be forgotten; nor
/// does one far behind.
#[test]
fn a_wrong_time_that_comes_alone() {
    for wrong in [3 * HOUR, 0] {
        let mut processor = link_spans("{}");
        for second in 0..5 {
            process(&mut processor, observed(HOUR + second * S, HOUR + second * S + S), at(HOUR + second * S));
        }
        process(&mut processor, profiles(&web(7), &[(13, "", &[wrong])]), at(HOUR + 6 * S));
        // Old entries are forgotten in between.
        process(&mut processor, observed(HOUR + 15 * S, HOUR + 16 * S), at(HOUR + 16 * S));
        process(&mut processor, observed(HOUR + 26 * S, HOUR + 27 * S), at(HOUR + 27 * S));
        assert_eq!(ask(&mut processor, HOUR + S, HOUR + 2 * S, at(HOUR + 27 * S)), Some(linked("12")));
        let waits = ask(&mut processor, HOUR + 26_500 * MS, HOUR + 27_500 * MS, at(HOUR + 27 * S));
        assert_eq!(waits, None, "its end was not observed yet");
    }
}

/// Guarantees: repeated or late profiles do not affect newer data, whether the sender's clock is right or ahead, alone
/// or in one request with new profiles; spans wait at most until new profiles arrive again.
#[test]
fn what_is_sent_late() {
    for ahead in [0, HOUR, 2 * 24 * HOUR] {
        for together in [false, true] {
            let mut processor = link_spans("{}");
            let batch = |second: u64| observed(ahead + second * S, ahead + second * S + S);
            for second in 0..300 {
                let out = process(&mut processor, batch(second), at(second * S + S));
                assert_eq!(note(&out, "profiled_times_left_out"), 0);
            }
            for second in 300..400 {
                let (old, new) = (ahead + 100 * S, ahead + second * S);
                let out = if together {
                    let times: Vec<u64> =
                        [old, new].iter().flat_map(|from| (0..20).map(move |at| from + at * 50 * MS)).collect();
                    process(&mut processor, profiles(&web(7), &[(12, "worker", &times)]), at(second * S + S))
                } else {
                    process(&mut processor, batch(100), at(second * S + S));
                    process(&mut processor, batch(second), at(second * S + S))
                };
                assert_eq!(note(&out, "profiled_times_left_out"), 0);
                let asked = ask(&mut processor, new - 50 * S, new - 49 * S, at(second * S + S));
                assert_eq!(asked, Some(linked("12")), "{ahead} {together} {second}");
            }
            let waits = ask(&mut processor, ahead + 399_500 * MS, ahead + 400_500 * MS, at(400 * S));
            assert_eq!(waits, None, "its end was not observed yet");
        }
    }
}
