//! Which spans are linked, with what, and when.

use profbridge_engine::component::Processor as _;
use profbridge_model::builder::Any;
use profbridge_model::{Profiles, Telemetry};

use crate::support::*;

/// The resource of a process as sent by the eBPF profiler through a receiver that adds the host, and as sent by an
/// OpenTelemetry SDK.
const PROFILED: [(&str, Any<'_>); 4] = [
    ("host.id", Any::Str("9f")),
    ("host.name", Any::Str("web")),
    ("process.pid", Any::Int(7)),
    ("container.id", Any::Str("c1")),
];

fn traced(language: &str) -> Vec<(&'static str, opentelemetry_proto::tonic::common::v1::any_value::Value)> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    vec![
        ("service.name", text("shop")),
        ("telemetry.sdk.language", text(language)),
        ("host.name", text("web")),
        ("process.pid", Value::IntValue(7)),
    ]
}

fn ticks(from: u64, to: u64) -> Vec<u64> {
    (from..=to).step_by(50).map(|at| at * MS).collect()
}

fn observed(thread: i64, from: u64, to: u64) -> Profiles {
    profiles(&PROFILED, &[(thread, "worker", &ticks(from, to)), (8, "idle", &ticks(0, 10_000))])
}

/// Guarantees: a span waits until its process was observed up to its end, then gets the profiler id of Sentry for the
/// process, and its thread by the key and name in the chunk; it is passed on as soon as these are known.
#[test]
fn a_span_gets_its_profiler() {
    let mut processor = link_spans("{}");
    let native = opentelemetry_proto::tonic::common::v1::any_value::Value::IntValue(12);
    let batch = spans(&traced("python"), vec![span(1, 100 * MS, 400 * MS, &[("thread.native_id", native)])]);
    let out = process(&mut processor, batch, at(500 * MS));
    assert!(out.telemetry.is_empty());
    let first = observed(12, 0, 300);
    let early = profiles(&PROFILED, &[(12, "worker", &ticks(0, 300))]);
    assert_eq!(process(&mut processor, early, at(600 * MS)).telemetry.len(), 1);
    assert!(advance(&mut processor, at(2 * S)).telemetry.is_empty());
    process(&mut processor, observed(12, 350, 1000), at(3 * S));
    let out = advance(&mut processor, at(4 * S));
    let [Telemetry::Spans(left)] = &out.telemetry[..] else { panic!("{:?}", out.telemetry) };
    let link = left.spans()[0].changes.as_ref().unwrap().profiler.as_ref().unwrap();
    assert_eq!(link.profiler_id, profiler_of(&first, T));
    assert_eq!((link.thread_id.as_deref(), link.thread_name.as_deref()), (Some("12"), Some("worker")));
    assert_eq!(note(&out, "spans_linked_by_native_id"), 1);
}

/// Guarantees: the ways to find a thread, best first; a language's own thread ids are not mistaken for the system's,
/// and a span with an unknown thread only gets the profiler.
#[test]
fn threads_are_found() {
    use opentelemetry_proto::tonic::common::v1::any_value::Value::IntValue;
    for (language, attributes, expected, counted) in [
        ("cpp", vec![("thread.id", IntValue(12))], Some("12"), "spans_linked_by_thread_id"),
        ("java", vec![("thread.id", IntValue(12))], None, "spans_linked_without_thread"),
        (
            "java",
            vec![("thread.id", IntValue(1)), ("thread.name", text("worker"))],
            Some("12"),
            "spans_linked_by_thread_name",
        ),
        // Several threads may have this cut name in the kernel, and this profiler only observes running ones.
        ("java", vec![("thread.name", text("a worker with a long name"))], None, "spans_linked_without_thread"),
        (
            "python",
            vec![("thread.native_id", IntValue(12)), ("thread.name", text("idle"))],
            Some("12"),
            "spans_linked_by_native_id",
        ),
        // An id of another namespace.
        ("python", vec![("thread.native_id", IntValue(999))], None, "spans_linked_without_thread"),
        ("nodejs", vec![], None, "spans_linked_without_thread"),
    ] {
        let mut processor = link_spans("{}");
        let all = ticks(0, 1000);
        let threads: [(i64, &str, &[u64]); 3] =
            [(12, "worker", &all), (13, "a worker with a", &all), (8, "idle", &all)];
        process(&mut processor, profiles(&PROFILED, &threads), at(2 * S));
        let out = process(
            &mut processor,
            spans(&traced(language), vec![span(1, 100 * MS, 200 * MS, &attributes)]),
            at(2 * S),
        );
        assert_eq!(links(&out), [(1, Some(expected.map(str::to_owned)))], "{language} {attributes:?}");
        assert_eq!(note(&out, counted), 1, "{language} {attributes:?}: {:?}", out.notes);
    }
}

/// Guarantees: with that option, a span of a single-threaded runtime counts as run on the main thread, unless it names
/// a thread: one that is not found is not the main thread. The same holds for samples.
#[test]
fn the_main_thread_where_asked_for() {
    use opentelemetry_proto::tonic::common::v1::any_value::Value::IntValue;
    let all = ticks(50, 1000);
    let asked = "{main_thread: true}";
    for (yaml, language, attributes, expected) in [
        (asked, "nodejs", vec![], Some("7")),
        (asked, "php", vec![], Some("7")),
        (asked, "java", vec![], None),
        ("{}", "nodejs", vec![], None),
        (asked, "nodejs", vec![("thread.native_id", IntValue(999))], None),
        (asked, "nodejs", vec![("thread.id", IntValue(3))], None),
        (asked, "nodejs", vec![("thread.name", text("worker"))], None),
        (asked, "php", vec![("thread.id", IntValue(999))], None),
        (asked, "nodejs", vec![("thread.id", text("")), ("thread.name", text(""))], Some("7")),
    ] {
        let mut processor = link_spans(yaml);
        process(&mut processor, profiles(&PROFILED, &[(7, "node", &all)]), at(2 * S));
        let batch = || spans(&traced(language), vec![span(1, 0, 200 * MS, &attributes)]);
        let out = process(&mut processor, batch(), at(2 * S));
        assert_eq!(links(&out), [(1, Some(expected.map(str::to_owned)))], "{yaml} {language} {attributes:?}");
        let out = process(&mut processor, profiles(&PROFILED, &[(7, "node", &[100 * MS])]), at(2 * S));
        let linked = u64::from(expected.is_some());
        assert_eq!(note(&out, "observations_linked"), linked, "{yaml} {language} {attributes:?}");
    }
}

/// Guarantees: a thread has its latest name, within a request and across requests; a late batch does not rename it.
#[test]
fn the_latest_name_counts() {
    let renamed = |first: u64, then: u64| {
        let (app, worker) = (ticks(first, first + 500), ticks(then, then + 500));
        profiles(&PROFILED, &[(12, "app", &app), (12, "worker-1", &worker), (13, "app", &ticks(0, 2000))])
    };
    let of = |name, from: u64, to: u64| profiles(&PROFILED, &[(12, name, &ticks(from, to))]);
    for (batches, expected) in [
        (vec![of("app", 0, 500), of("worker-1", 550, 1000), of("worker-2", 1050, 2000)], Some("worker-2")),
        (vec![of("app", 0, 500), of("worker-1", 550, 1000), of("app", 1050, 2000)], Some("app")),
        (vec![of("worker-1", 1050, 2000), of("app", 0, 500)], Some("worker-1")),
        (vec![of("app", 0, 500), of("worker-1", 1050, 2000), of("", 2050, 2500)], Some("worker-1")),
        (vec![renamed(0, 1000), of("app", 0, 100)], Some("worker-1")),
        (vec![renamed(1000, 0), of("worker-1", 0, 100)], Some("app")),
    ] {
        let mut processor = link_spans("{span_wait: 0s}");
        batches.into_iter().for_each(|batch| drop(process(&mut processor, batch, at(3 * S))));
        let native = [("thread.native_id", opentelemetry_proto::tonic::common::v1::any_value::Value::IntValue(12))];
        let out = process(&mut processor, spans(&traced("java"), vec![span(1, 0, S, &native)]), at(3 * S));
        let [Telemetry::Spans(left)] = &out.telemetry[..] else { panic!("{:?}", out.telemetry) };
        let link = left.spans()[0].changes.as_ref().unwrap().profiler.as_ref().unwrap();
        assert_eq!((link.thread_id.as_deref(), link.thread_name.as_deref()), (Some("12"), expected));
    }
    let mut processor = link_spans("{span_wait: 0s}");
    for batch in [of("app", 0, 500), of("worker-1", 550, 1000)] {
        process(&mut processor, batch, at(S));
    }
    for (name, expected) in [("worker-1", Some("12")), ("app", None)] {
        let asked = vec![span(1, 1005 * MS, 1040 * MS, &[("thread.name", text(name))])];
        let out = process(&mut processor, spans(&traced("java"), asked), at(S));
        assert_eq!(links(&out), [(1, Some(expected.map(str::to_owned)))], "{name}");
    }
}

/// Guarantees: the allowed gap between observations depends on their own process, whatever profiler another process in
/// the same request has.
#[test]
fn gaps_are_of_a_process() {
    use opentelemetry_proto::tonic::common::v1::any_value::Value::IntValue;
    let mut builder = profbridge_model::Builder::new();
    for (pid, kind) in [(7, "cpu"), (8, "wall"), (9, "cpu")] {
        builder.resource(&[("host.name", Any::Str("web")), ("process.pid", Any::Int(pid))]);
        let (stack, period) = timed_profile(&mut builder, kind);
        let attributes = builder.attributes(&[("thread.id", 1.into())]);
        let times = [T, T + 900 * MS, T + 1800 * MS];
        builder.sample(stack, attributes, None, &times, &[period; 3]);
    }
    let mut processor = link_spans("{}");
    process(&mut processor, builder.finish().unwrap(), at(2 * S));
    for (pid, expected) in [(7, false), (8, true), (9, false)] {
        let resource = [("host.name", text("web")), ("process.pid", IntValue(pid))];
        let out = process(&mut processor, spans(&resource, vec![span(1, 300 * MS, 400 * MS, &[])]), at(2 * S));
        assert_eq!(links(&out)[0].1.is_some(), expected, "{pid}");
    }
}

/// Guarantees: attributes that a process sends after its first profiles also help its spans to find it, together with
/// the earlier ones; of different values the last counts.
#[test]
fn what_a_process_says_later() {
    use opentelemetry_proto::tonic::common::v1::any_value::Value::IntValue;
    let first = &PROFILED[1..3];
    fn with(instance: &str) -> [(&str, Any<'_>); 3] {
        [PROFILED[1], PROFILED[2], ("service.instance.id", Any::Str(instance))]
    }
    fn batch(resource: &[(&str, Any<'_>)]) -> Profiles {
        profiles(resource, &[(12, "worker", &ticks(0, 1000))])
    }
    let by_instance = |instance| vec![("service.instance.id", text(instance))];
    let by_host = vec![("host.name", text("web")), ("process.pid", IntValue(7))];
    let mut processor = link_spans("{span_wait: 0s}");
    let is_found = |processor: &mut _, resource: &[_]| {
        links(&process(processor, spans(resource, vec![span(1, 0, S, &[])]), at(2 * S)))[0].1.is_some()
    };
    process(&mut processor, batch(first), at(S));
    assert!(!is_found(&mut processor, &by_instance("a")) && is_found(&mut processor, &by_host));
    process(&mut processor, batch(&with("a")), at(S));
    assert!(is_found(&mut processor, &by_instance("a")) && is_found(&mut processor, &by_host));
    process(&mut processor, batch(first), at(S));
    assert!(is_found(&mut processor, &by_instance("a")), "it is said no more");
    process(&mut processor, batch(&with("b")), at(S));
    assert!(is_found(&mut processor, &by_instance("b")) && !is_found(&mut processor, &by_instance("a")));
    // Different values each time take no additional memory.
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
    use opentelemetry_proto::tonic::common::v1::any_value::Value::IntValue;
    let mut processor = link_spans("{}");
    process(&mut processor, observed(12, 0, 100), at(11 * S));
    let late = vec![span(1, 5 * S, 6 * S, &[("thread.native_id", IntValue(12))])];
    let out = process(&mut processor, spans(&traced("python"), late), at(11 * S));
    assert_eq!((links(&out), note(&out, "spans_unlinked_unobserved")), (vec![(1, None)], 1));

    let nameless = [("service.name", text("shop"))];
    let out = process(&mut processor, spans(&nameless, vec![span(2, 0, MS, &[])]), at(11 * S));
    assert_eq!((links(&out), note(&out, "spans_unlinked_unnamed_process")), (vec![(2, None)], 1));

    let id = "00112233445546778899aabbccddeeff";
    let linked = vec![span(3, 0, MS, &[("sentry.profiler_id", text(id))])];
    let out = process(&mut processor, spans(&traced("python"), linked), at(11 * S));
    assert_eq!((links(&out), note(&out, "spans_with_profiler")), (vec![(3, None)], 1));

    let other = [("host.name", text("other")), ("process.pid", IntValue(7))];
    assert!(process(&mut processor, spans(&other, vec![span(4, 0, MS, &[])]), at(11 * S)).telemetry.is_empty());
    assert!(advance(&mut processor, at(25 * S)).telemetry.is_empty());
    let out = advance(&mut processor, at(26 * S));
    assert_eq!((links(&out), note(&out, "spans_unlinked_no_profiles")), (vec![(4, None)], 1));

    // A second profiler of the process that does not know its container.
    let second = [("host.name", Any::Str("web")), ("process.pid", Any::Int(7)), ("k8s.pod.uid", Any::Str("p"))];
    process(&mut processor, profiles(&second, &[(12, "worker", &ticks(0, 10_000))]), at(26 * S));
    let out = process(&mut processor, spans(&traced("python"), vec![span(5, 0, MS, &[])]), at(26 * S));
    assert_eq!((links(&out), note(&out, "spans_unlinked_ambiguous")), (vec![(5, None)], 1));
}

/// Guarantees: when a span has waited as long as allowed, the observations so far decide.
#[test]
fn a_span_does_not_wait_for_ever() {
    let mut processor = link_spans("{span_wait: 2s}");
    process(&mut processor, profiles(&PROFILED, &[(12, "worker", &ticks(0, 300))]), at(S));
    let batch = spans(&traced("java"), vec![span(1, 200 * MS, 900 * MS, &[]), span(2, 500 * MS, 900 * MS, &[])]);
    assert!(process(&mut processor, batch, at(S)).telemetry.is_empty());
    let out = advance(&mut processor, at(3 * S));
    assert_eq!(links(&out), [(1, Some(None)), (2, None)]);
    assert_eq!((note(&out, "spans_linked_without_thread"), note(&out, "spans_unlinked_not_in_time")), (1, 1));
    // Without a wait, the observations so far decide at once.
    let mut processor = link_spans("{span_wait: 0s}");
    let out = process(&mut processor, spans(&traced("java"), vec![span(1, 0, MS, &[])]), at(S));
    assert_eq!(links(&out), [(1, None)]);
}

/// Guarantees: if clocks differ, a span's thread is found even if profiles of the time after the span arrive in the
/// next batch.
#[test]
fn the_time_behind_a_span_is_waited_for() {
    use opentelemetry_proto::tonic::common::v1::any_value::Value::IntValue;
    let seen = |of: [u64; 2], other: &[u64]| {
        let of: Vec<u64> = of.map(|milli| milli * MS).to_vec();
        let other: Vec<u64> = other.iter().map(|milli| milli * MS).collect();
        profiles(&PROFILED, &[(12, "worker", &of), (13, "other", &other)])
    };
    let mut processor = link_spans("{}");
    process(&mut processor, seen([100, 100], &[100, 1010]), at(S));
    let asked = vec![span(1, 900 * MS, S, &[("thread.native_id", IntValue(12))])];
    assert!(process(&mut processor, spans(&traced("python"), asked), at(S)).telemetry.is_empty());
    process(&mut processor, seen([1030, 1500], &[1500]), at(2 * S));
    assert_eq!(links(&advance(&mut processor, at(3 * S))), [(1, Some(Some("12".to_owned())))]);
}

/// Guarantees: times that are weeks from their arrival are ignored and counted, whatever arrived first, and cause
/// nothing to be forgotten; after a clock was set, newer data counts.
#[test]
fn wrong_times() {
    const DAY: u64 = 86_400 * S;
    let seen = |thread: i64, times: &[u64]| {
        let mut builder = profbridge_model::Builder::new();
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
        links(&process(processor, spans(&traced("java"), asked), at(at_nanos + S)))[0].1.is_some()
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
