//! Which spans are linked, with what, and when.

use profbridge_engine::component::Processor as _;
use profbridge_model::Builder;

use crate::pointers::{ONE, OTHER};
use crate::samples_brute_force::observations;
use crate::support::*;

/// The resource of a process as sent by the eBPF profiler through a receiver that adds the host.
const PROFILED: [(&str, Any<'_>); 4] = [
    ("host.id", Any::Str("9f")),
    ("host.name", Any::Str("web")),
    ("process.pid", Any::Int(7)),
    ("container.id", Any::Str("c1")),
];

/// Guarantees: a span waits until its process was observed up to its end, then gets the profiler id of Sentry for the
/// process, and its thread by the key and name in the chunk; it is passed on as soon as these are known.
#[test]
fn a_span_gets_its_profiler() {
    let first = profiles(&PROFILED, &[(12, "worker", &ticks(0, 300))]);
    let rest = profiles(&PROFILED, &[(12, "worker", &ticks(350, 1000)), (8, "idle", &ticks(0, 10_000))]);
    let mut processor = link_spans("{}");
    let batch = spans(&traced_in("python", 7), vec![span(1, 100 * MS, 400 * MS, &native(12))]);
    assert!(process(&mut processor, batch, at(500 * MS)).telemetry.is_empty());
    assert_eq!(process(&mut processor, first.clone(), at(600 * MS)).telemetry.len(), 1);
    assert!(advance(&mut processor, at(2 * S)).telemetry.is_empty());
    process(&mut processor, rest, at(3 * S));
    let out = advance(&mut processor, at(4 * S));
    let [(1, Some(link))] = &profiler_links(&out)[..] else { panic!("{:?}", out.telemetry) };
    assert_eq!(link.profiler_id, profiler_of(&first, T));
    assert_eq!((link.thread_id.as_deref(), link.thread_name.as_deref()), (Some("12"), Some("worker")));
    assert_eq!(note(&out, "spans_linked_by_native_id"), 1);
}

/// Guarantees: the ways to find the thread of a span, best first, and later that of samples during it: the system's id,
/// Python's thread pointer, the ids of languages that use the system's, a unique name and, if asked for, the main
/// thread of a single-threaded runtime, unless the span names a thread. A language's own ids are not mistaken for the
/// system's or for pointers. A span with an unknown thread only gets the profiler.
#[test]
fn threads_are_found() {
    let asked = "{main_thread: true}";
    let id = |id: i64| ("thread.id", IntValue(id));
    let name = |name: &str| ("thread.name", text(name));
    let pointer = id(ONE);
    let [by_native_id, by_pointer, by_id, by_name, main, none] = [
        "spans_linked_by_native_id",
        "spans_linked_by_python_ident",
        "spans_linked_by_thread_id",
        "spans_linked_by_thread_name",
        "spans_linked_to_main_thread",
        "spans_linked_without_thread",
    ];
    let [native] = native(12);
    let [unknown] = crate::support::native(999);
    for (yaml, language, attributes, expected, counted) in [
        ("{}", "cpp", vec![id(12)], Some(12), by_id),
        ("{}", "java", vec![id(12)], None, none),
        ("{}", "java", vec![id(1), name("worker")], Some(12), by_name),
        // Several threads may have this cut name in the kernel, and this profiler only observes running ones.
        ("{}", "java", vec![name("a worker with a long name")], None, none),
        ("{}", "python", vec![native.clone(), name("idle")], Some(12), by_native_id),
        // An id of another namespace.
        ("{}", "python", vec![unknown.clone()], None, none),
        ("{}", "python", vec![pointer.clone()], Some(12), by_pointer),
        ("{}", "python", vec![("thread.id", text(&ONE.to_string()))], Some(12), by_pointer),
        ("{}", "python", vec![pointer.clone(), name("idle")], Some(12), by_pointer),
        ("{}", "python", vec![id(OTHER), native], Some(12), by_native_id),
        // An unknown pointer: of another program image, or of an unobserved thread.
        ("{}", "python", vec![id(ONE + 64)], None, none),
        // A number that looks like a system thread id is no pointer, and has no meaning in Python.
        ("{}", "python", vec![id(12)], None, none),
        ("{}", "java", vec![pointer], None, none),
        (asked, "nodejs", vec![], Some(7), main),
        (asked, "php", vec![], Some(7), main),
        (asked, "nodejs", vec![("thread.id", text("")), name("")], Some(7), main),
        (asked, "java", vec![], None, none),
        (asked, "ruby", vec![], None, none),
        ("{}", "nodejs", vec![], None, none),
        (asked, "nodejs", vec![unknown], None, none),
        (asked, "nodejs", vec![id(3)], None, none),
        (asked, "nodejs", vec![name("no thread")], None, none),
        (asked, "php", vec![id(999)], None, none),
    ] {
        let case = format!("{yaml} {language} {attributes:?}");
        let seen = |times: &[u64]| {
            let threads = [
                (7, "node", ONE + 640, times),
                (8, "idle", OTHER, times),
                (12, "worker", ONE, times),
                (13, "a worker with a", ONE + 1280, times),
            ];
            profiles_of_threads(&PROFILED, &threads)
        };
        let mut processor = link_spans(yaml);
        process(&mut processor, seen(&ticks(0, 1000)), at(2 * S));
        let batch = spans(&traced_in(language, 7), vec![span(1, 100 * MS, 200 * MS, &attributes)]);
        let out = process(&mut processor, batch, at(2 * S));
        assert_eq!(links(&out), [(1, Some(expected.map(|id: i64| id.to_string())))], "{case}");
        assert_eq!(note(&out, counted), 1, "{case}: {:?}", out.notes);
        let out = process(&mut processor, seen(&[150 * MS]), at(2 * S));
        let sampled = observations(&out).into_iter().filter(|(.., span)| *span == 1).map(|(_, thread, ..)| thread);
        assert_eq!(sampled.collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>(), "{case}");
        assert_eq!(note(&out, "observations_linked"), expected.map_or(0, |_| 1), "{case}");
    }
}

/// Guarantees: a thread has its latest name, within a request and across requests; a late batch does not rename it.
#[test]
fn the_latest_name_counts() {
    let renamed = |first: u64, then: u64| {
        let (app, worker) = (ticks(first, first + 500), ticks(then, then + 500));
        profiles(&PROFILED, &[(12, "app", &app), (12, "worker-1", &worker), (13, "app", &ticks(0, 2000))])
    };
    let named = |name, from: u64, to: u64| profiles(&PROFILED, &[(12, name, &ticks(from, to))]);
    for (batches, expected) in [
        (vec![named("app", 0, 500), named("worker-1", 550, 1000), named("worker-2", 1050, 2000)], "worker-2"),
        (vec![named("app", 0, 500), named("worker-1", 550, 1000), named("app", 1050, 2000)], "app"),
        (vec![named("worker-1", 1050, 2000), named("app", 0, 500)], "worker-1"),
        (vec![named("app", 0, 500), named("worker-1", 1050, 2000), named("", 2050, 2500)], "worker-1"),
        (vec![renamed(0, 1000), named("app", 0, 100)], "worker-1"),
        (vec![renamed(1000, 0), named("worker-1", 0, 100)], "app"),
    ] {
        let mut processor = link_spans("{span_wait: 0s}");
        batches.into_iter().for_each(|batch| drop(process(&mut processor, batch, at(3 * S))));
        let out = process(&mut processor, spans(&traced_in("java", 7), vec![span(1, 0, S, &native(12))]), at(3 * S));
        let [(1, Some(link))] = &profiler_links(&out)[..] else { panic!("{:?}", out.telemetry) };
        assert_eq!((link.thread_id.as_deref(), link.thread_name.as_deref()), (Some("12"), Some(expected)));
    }
}

/// Guarantees: the allowed gap between observations depends on their own process, whatever profiler another process in
/// the same request has.
#[test]
fn gaps_are_of_a_process() {
    let mut builder = Builder::new();
    for (pid, kind) in [(7, "cpu"), (8, "wall"), (9, "cpu")] {
        add_timed(&mut builder, &web(pid), "", kind, &[(1, "", &[0, 900, 1800], 0)]);
    }
    let mut processor = link_spans("{}");
    process(&mut processor, builder.finish().unwrap(), at(2 * S));
    for (pid, expected) in [(7, false), (8, true), (9, false)] {
        let out = process(&mut processor, spans(&traced(pid), vec![span(1, 300 * MS, 400 * MS, &[])]), at(2 * S));
        assert_eq!(links(&out)[0].1.is_some(), expected, "{pid}");
    }
}

/// Guarantees: attributes that a process sends after its first profiles also help its spans to find it, together with
/// the earlier ones; of different values the last counts. Different values each time take no additional memory.
#[test]
fn what_a_process_says_later() {
    let first = &PROFILED[1..3];
    fn with(instance: &str) -> [(&str, Any<'_>); 3] {
        [PROFILED[1], PROFILED[2], ("service.instance.id", Any::Str(instance))]
    }
    let batch = |resource: &[(&str, Any<'_>)]| profiles(resource, &[(12, "worker", &ticks(0, 1000))]);
    let mut processor = link_spans("{span_wait: 0s}");
    for (resource, instance) in [(first, ""), (&with("a"), "a"), (first, "a"), (&with("b"), "b")] {
        process(&mut processor, batch(resource), at(S));
        let mut is_found = |resource: &[(&str, Value)]| {
            links(&process(&mut processor, spans(resource, vec![span(1, 0, S, &[])]), at(2 * S)))[0].1.is_some()
        };
        assert!(is_found(&traced(7)));
        for known in ["a", "b"] {
            assert_eq!(is_found(&[("service.instance.id", text(known))]), known == instance, "{resource:?} {known}");
        }
    }
    let batches = |processor: &mut _, second: u64| {
        for number in 0..100 {
            process(processor, batch(&with(&format!("{second} {number}"))), at(second * S));
        }
    };
    batches(&mut processor, 15);
    process(&mut processor, batch(first), at(30 * S));
    let held = processor.held().bytes;
    for second in 4..9 {
        batches(&mut processor, second * 11);
    }
    process(&mut processor, batch(first), at(110 * S));
    assert_eq!(processor.held().bytes, held);
}

/// Guarantees: spans that are not linked, and the reasons: unknown process, thread not observed during the span, two
/// possible processes; spans without a process, or with a profiler, do not wait.
#[test]
fn what_is_not_linked() {
    let mut processor = link_spans("{}");
    let times = ticks(0, 10_000);
    process(&mut processor, profiles(&PROFILED, &[(12, "worker", &ticks(0, 100)), (8, "idle", &times)]), at(11 * S));
    let python = traced_in("python", 7);
    let profiler = [("sentry.profiler_id", text("00112233445546778899aabbccddeeff"))];
    for (resource, asked, counted) in [
        (&python[..], span(1, 5 * S, 6 * S, &native(12)), "spans_unlinked_unobserved"),
        (&[("service.name", text("shop"))], span(1, 0, MS, &[]), "spans_unlinked_unnamed_process"),
        (&python, span(1, 0, MS, &profiler), "spans_with_profiler"),
    ] {
        let out = process(&mut processor, spans(resource, vec![asked]), at(11 * S));
        assert_eq!((links(&out), note(&out, counted)), (vec![(1, None)], 1), "{counted}");
    }
    let other = [("host.name", text("other")), ("process.pid", IntValue(7))];
    assert!(process(&mut processor, spans(&other, vec![span(4, 0, MS, &[])]), at(11 * S)).telemetry.is_empty());
    assert!(advance(&mut processor, at(25 * S)).telemetry.is_empty());
    let out = advance(&mut processor, at(26 * S));
    assert_eq!((links(&out), note(&out, "spans_unlinked_no_profiles")), (vec![(4, None)], 1));

    // A second profiler of the process that does not know its container.
    let second = [PROFILED[1], PROFILED[2], ("k8s.pod.uid", Any::Str("p"))];
    process(&mut processor, profiles(&second, &[(12, "worker", &times)]), at(26 * S));
    let out = process(&mut processor, spans(&python, vec![span(5, 0, MS, &[])]), at(26 * S));
    assert_eq!((links(&out), note(&out, "spans_unlinked_ambiguous")), (vec![(5, None)], 1));
}

/// Guarantees: when a span has waited as long as allowed, or may not wait, the observations so far decide.
#[test]
fn a_span_does_not_wait_for_ever() {
    let asked = || spans(&traced(7), vec![span(1, 200 * MS, 900 * MS, &[]), span(2, 500 * MS, 900 * MS, &[])]);
    for (yaml, waits) in [("{span_wait: 2s}", true), ("{span_wait: 0s}", false)] {
        let mut processor = link_spans(yaml);
        process(&mut processor, profiles(&PROFILED, &[(12, "worker", &ticks(0, 300))]), at(S));
        let mut out = process(&mut processor, asked(), at(S));
        if waits {
            assert!(out.telemetry.is_empty());
            out = advance(&mut processor, at(3 * S));
        }
        assert_eq!(links(&out), [(1, Some(None)), (2, None)]);
        assert_eq!((note(&out, "spans_linked_without_thread"), note(&out, "spans_unlinked_not_in_time")), (1, 1));
    }
}

/// Guarantees: times that are weeks from their arrival are ignored and counted, whatever arrived first, and cause
/// nothing to be forgotten; after a clock was set, newer data counts.
#[test]
fn wrong_times() {
    const DAY: u64 = 86_400 * S;
    let seen = |thread: i64, times: &[u64]| {
        let mut builder = Builder::new();
        builder.resource(&PROFILED);
        builder.on_cpu(20);
        let frame = builder.frame("work", "main.rs", 1);
        let stack = builder.stack(&[frame]);
        let attributes = builder.attributes(&[("thread.id", thread.into())]);
        builder.sample(stack, attributes, None, times, &[]);
        builder.finish().unwrap()
    };
    let linked = |processor: &mut _, at_nanos: u64| {
        let asked = vec![span(1, at_nanos, at_nanos + 100 * MS, &[])];
        links(&process(processor, spans(&traced_in("java", 7), asked), at(at_nanos + S)))[0].1.is_some()
    };
    let wrong: [&[u64]; 4] = [&[0], &[T - 26 * DAY], &[T + 60 * DAY], &[0, T - 26 * DAY, T + 60 * DAY]];
    for wrong in wrong {
        for first in [false, true] {
            let mut processor = link_spans("{span_wait: 0s}");
            if first {
                process(&mut processor, seen(13, wrong), at(S));
            }
            process(&mut processor, seen(12, &[T + 50 * MS]), at(S));
            let out = process(&mut processor, seen(13, wrong), at(S));
            assert_eq!(note(&out, "profiled_times_left_out"), wrong.len() as u64);
            assert!(linked(&mut processor, 0), "{wrong:?} {first}");
            let both: Vec<u64> = wrong.iter().copied().chain([T + 5 * S]).collect();
            process(&mut processor, seen(12, &both), at(S));
            assert!(linked(&mut processor, 0) && linked(&mut processor, 5 * S), "{wrong:?} {first}");
        }
    }
    let mut processor = link_spans("{span_wait: 0s}");
    process(&mut processor, seen(12, &[T + 300 * DAY]), at(S));
    process(&mut processor, seen(12, &[T + 2 * S]), at(2 * S));
    assert!(linked(&mut processor, 2 * S), "the clock was set");
}
