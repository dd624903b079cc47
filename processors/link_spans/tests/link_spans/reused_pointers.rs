//! Thread pointers used by several threads of a process one after the other: a new thread reuses the memory of an ended
//! one.

use profbridge_model::Spans;
use profbridge_processor_link_spans::LinkSpans;

use crate::pointers::{ONE, OTHER};
use crate::samples_brute_force::observations;
use crate::support::*;

/// A thread: its id, its pointer, and the milliseconds between which it was observed.
type ThreadWithPointer = (i64, i64, u64, u64);

/// A processor that observed these threads of one process, and its main thread for two seconds.
fn seen(threads: &[ThreadWithPointer]) -> LinkSpans {
    seen_by("cpu", threads)
}

/// The same with profiles of `cpu` or `wall` time.
fn seen_by(kind: &str, threads: &[ThreadWithPointer]) -> LinkSpans {
    let mut processor = link_spans("{}");
    let times = |from: u64, to: u64| (from..=to).step_by(5).map(|milli| milli * MS).collect();
    let all: Vec<(i64, i64, Vec<u64>)> =
        threads.iter().chain(&[(7, OTHER, 0, 2000)]).map(|(id, at, from, to)| (*id, *at, times(*from, *to))).collect();
    let all: Vec<(i64, &str, i64, &[u64])> = all.iter().map(|(id, at, times)| (*id, "", *at, &times[..])).collect();
    process(&mut processor, profiles_of_time(kind, &web(7), &all), at(2 * S));
    processor
}

/// A span with the pointer, in milliseconds. `is_named`: it names its process; otherwise only the pointer identifies
/// it.
fn on_pointer(from: u64, to: u64, is_named: bool) -> Spans {
    let mut resource = vec![("telemetry.sdk.language", text("python")), ("host.name", text("web"))];
    resource.extend(is_named.then_some(("process.pid", IntValue(7))));
    let by_pointer = [("thread.id", IntValue(ONE)), ("thread.name", text("MainThread"))];
    spans(&resource, vec![span(1, from * MS, to * MS, &by_pointer)])
}

/// The result for such a span, and whether it was counted as `counted`.
fn asked(threads: &[ThreadWithPointer], from: u64, to: u64, is_named: bool, counted: &str) -> (Link, bool) {
    let out = process(&mut seen(threads), on_pointer(from, to, is_named), at(2 * S));
    (links(&out)[0].1.clone(), note(&out, counted) == 1)
}

/// Guarantees: of several threads that had a span's pointer one after the other, the one observed for most of the span
/// counts; if two were for equally long, the span is counted as ambiguous; if none was, one shortly before or after
/// proves nothing. The same holds if only the pointer identifies the process.
#[test]
fn the_one_that_was_observed_for_most_of_it() {
    let by = |is_named: bool| match is_named {
        true => "spans_linked_by_python_ident",
        false => "spans_linked_by_python_ident_on_host",
    };
    let three = [(12, ONE, 0, 990), (13, ONE, 1000, 1030), (14, ONE, 1040, 2000)];
    for is_named in [true, false] {
        for (threads, from, to, expected, counted) in [
            (&three[..], 1002, 1028, linked("13"), by(is_named)),
            (&three, 980, 1028, linked("13"), by(is_named)),
            (&three, 940, 1005, linked("12"), by(is_named)),
            (&three, 985, 1035, linked("13"), by(is_named)),
            (&three, 1020, 1050, None, "spans_unlinked_ambiguous"),
            // The thread in between was too short to be observed.
            (&[three[0], three[2]], 1002, 1028, None, "spans_unlinked_unobserved"),
            (&[three[0], (14, ONE, 1500, 2000)], 1000, 1020, None, "spans_unlinked_unobserved"),
        ] {
            let is = asked(threads, from, to, is_named, counted);
            assert_eq!(is, (expected, true), "{threads:?} {from} {to} {is_named} {counted}");
        }
    }
}

/// Guarantees: the only thread with a span's pointer, observed shortly before, is used, since clocks may differ; but
/// not if another thread with an unknown pointer was observed during the span.
#[test]
fn one_that_was_near() {
    let one = (12, ONE, 0, 990);
    for is_named in [true, false] {
        let near = |threads: &[ThreadWithPointer]| asked(threads, 1000, 1020, is_named, "spans_unlinked_unobserved");
        assert_eq!(near(&[one]), (linked("12"), false), "{is_named}");
        assert_eq!(near(&[one, (13, 0, 500, 980)]), (linked("12"), false), "{is_named}");
        assert_eq!(near(&[one, (13, 0, 1005, 1100)]), (None, true), "{is_named}");
    }
}

/// Guarantees: being near proves nothing if the profiler observes waiting threads as well: it would have observed the
/// thread during the span, which ran on a thread that it did not notice.
#[test]
fn one_that_was_near_and_would_have_been_observed() {
    for (kind, expected) in [("wall", None), ("cpu", linked("12"))] {
        for is_named in [true, false] {
            let mut processor = seen_by(kind, &[(12, ONE, 0, 990)]);
            let out = process(&mut processor, on_pointer(1000, 1500, is_named), at(2 * S));
            assert_eq!(links(&out)[0].1, expected, "{kind} {is_named}");
        }
    }
}

/// Guarantees: samples of a thread are not linked with a span that another thread with the same pointer ran, nor with
/// one that either may have run.
#[test]
fn samples_of_threads_that_have_one_pointer() {
    let (first, second) = ((12, ONE, 0, 990), (13, ONE, 1040, 2000));
    for (from, to, expected) in [(900, 985, Some(12)), (960, 1200, Some(13)), (1000, 1030, None), (965, 1065, None)] {
        let mut processor = seen(&[first, second]);
        process(&mut processor, on_pointer(from, to, false), at(2 * S));
        let threads: [(i64, &str, i64, &[u64]); 2] =
            [(12, "", ONE, &[970 * MS, 980 * MS]), (13, "", ONE, &[1050 * MS, 1060 * MS])];
        let out = process(&mut processor, profiles_of_threads(&web(7), &threads), at(2 * S));
        let linked = observations(&out).into_iter().filter(|(.., span)| *span == 1).map(|(_, thread, ..)| thread);
        assert_eq!(
            linked.collect::<Vec<_>>(),
            vec![expected; 2].into_iter().flatten().collect::<Vec<_>>(),
            "{from} {to}"
        );
    }
}
