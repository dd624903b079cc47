//! Spans of forked processes, some with attributes from before the fork.

use profbridge_model::{Profiles, Spans};
use profbridge_processor_link_spans::{InnermostIds, LinkSpans};

use crate::namespaces::{Kernel, OUTSIDE, inside, with_settings};
use crate::pointers::ONE;
use crate::samples_brute_force::observations;
use crate::support::*;

/// Profiles of a process on `web` with one thread of the same id, from one millisecond to another.
fn observe(processor: &mut LinkSpans, pid: i64, from: u64, to: u64, now: u64) {
    let threads = [(pid, "gunicorn", ONE, &ticks(from, to)[..])];
    process(processor, profiles_of_threads(&web(pid), &threads), at(now * MS));
}

/// A span from 1 s to 1.2 s that claims process 7, with a native thread id, and with attributes unchanged by the fork.
fn forked(thread: i64) -> Spans {
    let [language, host, pid] = traced_in("python", 7);
    let [native] = native(thread);
    let of_thread = [native, ("thread.id", IntValue(ONE)), ("thread.name", text("gunicorn"))];
    spans(&[language, host, pid, ("service.instance.id", text("i"))], vec![span(1, S, 1200 * MS, &of_thread)])
}

fn only(thread: &str) -> Vec<(u8, Link)> {
    vec![(1, linked(thread))]
}

const OF_THREAD: &str = "spans_linked_with_the_process_of_their_thread";

/// Guarantees: a span with the process id of its parent process, and the system's id of its thread, is linked with the
/// process that has that thread, once profiles of it reach the span's end, and counted as such.
#[test]
fn the_thread_tells_the_process() {
    let mut processor = link_spans("{}");
    observe(&mut processor, 7, 0, 2000, 2000);
    let out = process(&mut processor, forked(8), at(2 * S));
    assert!(out.telemetry.is_empty(), "the worker's profiles may come: {:?}", out.notes);
    observe(&mut processor, 8, 0, 1100, 2100);
    observe(&mut processor, 9, 0, 2000, 2100);
    let out = advance(&mut processor, at(3 * S));
    assert!(out.telemetry.is_empty(), "the rest of its time may come: {:?}", out.notes);
    observe(&mut processor, 8, 1100, 1300, 3000);
    let out = advance(&mut processor, at(4 * S));
    assert_eq!((links(&out), note(&out, OF_THREAD), decided(&out)), (only("8"), 1, 1));
    assert_eq!(note(&out, "spans_linked_by_native_id"), 1);
    // A span of the parent itself is not counted as that of a forked process.
    let out = process(&mut processor, forked(7), at(4 * S));
    assert_eq!((links(&out), note(&out, OF_THREAD)), (only("7"), 0));
    // The end of the span is not covered yet.
    let mut processor = link_spans("{}");
    observe(&mut processor, 7, 0, 2000, 2000);
    observe(&mut processor, 8, 0, 1100, 2000);
    process(&mut processor, forked(8), at(2 * S));
    assert_eq!(links(&advance(&mut processor, at(18 * S))), only("8"));
}

/// Guarantees: if no process of the host has the thread, or it was not observed during the span, or two processes have
/// it, the span has no link, whatever its other thread attributes.
#[test]
fn no_process_has_the_thread() {
    let unlinked = |prepare: &dyn Fn(&mut LinkSpans), counted: &str| {
        let mut processor = link_spans("{}");
        observe(&mut processor, 7, 0, 2000, 2000);
        prepare(&mut processor);
        let out = process_and_wait(&mut processor, forked(8), at(2 * S), at(18 * S));
        assert_eq!((links(&out), note(&out, counted), decided(&out)), (vec![(1, None)], 1, 1), "{:?}", out.notes);
    };
    unlinked(&|_| {}, "spans_unlinked_unobserved");
    unlinked(&|processor| observe(processor, 8, 0, 950, 2000), "spans_unlinked_unobserved");
    for other in [
        [("host.name", Any::Str("db")), ("process.pid", Any::Int(8)), ("k8s.node.name", Any::Str("n"))],
        // In a container whose ids were never asked for.
        [("host.name", Any::Str("web")), ("process.pid", Any::Int(8)), ("container.id", Any::Str("c1"))],
        [("host.name", Any::Str("web")), ("process.pid", Any::Int(7001)), ("process.vpid", Any::Int(8))],
    ] {
        let other = |processor: &mut LinkSpans| {
            process(processor, profiles(&other, &[(8, "gunicorn", &[0, 500 * MS, S, 2 * S])]), at(2 * S));
        };
        unlinked(&other, "spans_unlinked_unobserved");
    }
    let two = |processor: &mut LinkSpans| {
        observe(processor, 8, 0, 2000, 2000);
        process(processor, profiles(&web(9), &[(8, "gunicorn", &[S, 2 * S])]), at(2 * S));
    };
    unlinked(&two, "spans_unlinked_ambiguous");
}

/// Guarantees: samples of a forked process are linked with the spans that its threads ran, though these have the
/// parent's process id, whichever arrived first; not samples of the parent, of another thread, time or host.
#[test]
fn samples_of_forked_processes() {
    let batch = |host: &'static str, pid: i64, thread: i64| {
        let times = [900 * MS, 1100 * MS, 1300 * MS];
        profiles_of_threads(&on_host(host, pid), &[(thread, "gunicorn", ONE, &times)])
    };
    let parent = || batch("web", 7, 7);
    let mut processor = link_spans("{profile_wait: 8s}");
    process(&mut processor, parent(), at(2 * S));
    process(&mut processor, batch("web", 8, 8), at(2 * S));
    process(&mut processor, batch("web", 9, 9), at(2 * S));
    process(&mut processor, batch("db", 18, 8), at(2 * S));
    process(&mut processor, forked(8), at(3 * S));
    let mut late = observations(&advance(&mut processor, at(13 * S)));
    late.retain(|(.., span)| *span > 0);
    assert_eq!(late, [(8, 8, 1100 * MS, 1, 1)]);

    let mut processor = link_spans("{}");
    process(&mut processor, parent(), at(2 * S));
    process(&mut processor, forked(8), at(2 * S));
    let out = process(&mut processor, batch("web", 8, 8), at(3 * S));
    let linked = observations(&out).into_iter().filter(|(.., span)| *span > 0).map(|(pid, ..)| pid);
    assert_eq!(linked.collect::<Vec<_>>(), [8]);
    let out = process(&mut processor, parent(), at(3 * S));
    assert!(observations(&out).iter().all(|(.., span)| *span == 0));
}

/// Guarantees: an id that is not in the system's notation is ignored, and the thread is found by the other attributes.
#[test]
fn what_is_no_id() {
    for id in ["0007", "+7", "-8", "8.0", "x", "99999999999"] {
        let mut processor = link_spans("{span_wait: 0s}");
        process(&mut processor, profiles(&web(7), &[(7, "main", &[S, 2 * S])]), at(2 * S));
        let says = [("thread.native_id", text(id)), ("thread.name", text("main"))];
        let out = process(&mut processor, spans(&traced(7), vec![span(1, S, 1200 * MS, &says)]), at(2 * S));
        assert_eq!(links(&out), only("7"), "{id}");
    }
}

/// Guarantees: if ids may be those of a container, an unknown one is ignored, and the thread is found by its name; once
/// they are known to be the system's, an unknown id belongs to another process.
#[test]
fn ids_of_containers_tell_nothing() {
    let [native] = native(9);
    let named = [native, ("thread.name", text("shop"))];
    let mut of_host = inside("python");
    of_host[1] = ("process.pid", IntValue(4711));
    for (own, expected) in [(None, Some(4711)), (Some(4711), None)] {
        let kernel = Kernel::default();
        let mut processor = with_settings(&kernel, "{span_wait: 0s}");
        process(&mut processor, profiles(&OUTSIDE, &[(4711, "shop", &ticks(0, 2000))]), at(2 * S));
        let question = kernel.asked().remove(0);
        kernel.answer(question.process, own.map(|pid| InnermostIds { pid, threads: vec![] }));
        let out = process(&mut processor, spans(&of_host, vec![span(1, S, 1200 * MS, &named)]), at(2 * S));
        let expected = expected.map(|id: i64| Some(id.to_string()));
        assert_eq!(links(&out), [(1, expected)], "{own:?} {:?}", out.notes);
    }
}

/// The built-in sampler's profiles of a process that began this many milliseconds after [`T`]: its thread, the times,
/// and the span in its live context.
fn live(pid: i64, began: u64, thread: i64, times: &[u64], span: u8) -> Profiles {
    let began = format!("2026-01-01T00:00:{:02}.{:03}000000Z", began / 1000, began % 1000);
    let resource = [
        ("host.name", Any::Str("web")),
        ("process.pid", Any::Int(pid)),
        ("process.creation.time", Any::Str(&began)),
        ("profbridge.session.id", Any::Int(pid)),
    ];
    seen(&resource, SAMPLER, "wall", &[(thread, times, span)])
}

/// Guarantees: samples of a process that began during a span do not determine where the span ran, because it was forked
/// with the context of the forking thread. The span belongs to the process in which it began, whichever samples arrived
/// first, and if no samples of that process name it, to the process in its attributes. The samples keep their links.
/// This does not apply to a process seen before its start, whose clock was set.
#[test]
fn forked_in_a_span() {
    let asked = || spans(&traced(7), vec![span(1, S, 3 * S, &native(7))]);
    let parent = |named: u8| live(7, 0, 7, &[1100, 1500, 2900, 3200], named);
    let child = |began: u64, first: u64| live(8, began, 8, &[first, 2500, 2900, 3200], 1);
    for (parent_names, child_first) in [(1, false), (1, true), (0, false), (0, true)] {
        let mut processor = link_spans("{span_wait: 0s}");
        let mut batches = [parent(parent_names), child(1900, 1950)];
        if child_first {
            batches.reverse();
        }
        for batch in batches {
            let of_child = observations(&process(&mut processor, batch, at(4 * S)));
            assert!(of_child.iter().all(|(pid, .., span)| *pid == 7 || *span == 1), "{of_child:?}");
        }
        let out = process(&mut processor, asked(), at(4 * S));
        let counted = if parent_names == 1 { "spans_linked_by_live_context" } else { "spans_linked_by_native_id" };
        assert_eq!((links(&out), note(&out, counted)), (only("7"), 1), "{parent_names} {child_first}");
    }
    let mut processor = link_spans("{span_wait: 0s}");
    process(&mut processor, parent(0), at(4 * S));
    process(&mut processor, child(9000, 1950), at(4 * S));
    assert_eq!(links(&process(&mut processor, asked(), at(4 * S))), only("8"));
}

/// Guarantees: of two processes whose samples name one span the older one counts, whichever was seen first or arrived
/// first.
#[test]
fn forked_as_soon_as_the_span_began() {
    let parent = || live(7, 0, 7, &[1100, 1500, 2900, 3200], 1);
    let child = || live(8, 1010, 8, &[1020, 1500, 2900, 3200], 1);
    for batches in [[parent(), child()], [child(), parent()]] {
        let mut processor = link_spans("{}");
        batches.into_iter().for_each(|batch| drop(process(&mut processor, batch, at(4 * S))));
        let out = process(&mut processor, spans(&[], vec![span(1, S, 3 * S, &[])]), at(4 * S));
        assert_eq!(links(&out), only("7"));
    }
}
