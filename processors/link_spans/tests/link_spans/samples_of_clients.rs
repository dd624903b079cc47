//! Which spans samples are linked with if spans and profiles identify the process differently.

use profbridge_model::envelope::ClientProcess;
use profbridge_processor_link_spans::{InnermostIds, LinkSpans};

use crate::namespaces::{Kernel, OUTSIDE, inside, with_settings};
use crate::pointers::{ONE, OTHER, transaction};
use crate::profilers::{HOST, PID, observed};
use crate::samples_brute_force::observations;
use crate::support::*;

/// The process, thread, millisecond and span of each observation exported as time passes, sorted.
fn left(processor: &mut LinkSpans) -> Vec<(i64, i64, u64, u8)> {
    let all = observations(&advance(processor, at(11 * S)));
    let mut all: Vec<_> = all.into_iter().map(|(pid, thread, time, _, span)| (pid, thread, time / MS, span)).collect();
    all.sort_unstable();
    all
}

/// Guarantees: samples of a thread that a span identifies only by its pointer are linked with the span, whichever
/// arrived first; not samples of other threads, hosts and times, nor of forked workers that share the pointer.
#[test]
fn spans_name_a_pointer() {
    let batch = |host, pid, thread, pointer| {
        let threads: [(i64, &str, i64, &[u64]); 2] =
            [(thread, "", pointer, &[50 * MS, 150 * MS]), (3, "", OTHER, &[150 * MS])];
        profiles_of_threads(&on_host(host, pid), &threads)
    };
    // The transaction's child span is the innermost.
    let spans = || transaction("python", "web", &ONE.to_string(), 100, 200);

    let mut processor = link_spans("{}");
    process(&mut processor, spans(), at(S));
    let out = process(&mut processor, batch("db", 9, 12, ONE), at(S));
    assert!(observations(&out).iter().all(|(.., span)| *span == 0), "of another host");
    let mut linked = observations(&process(&mut processor, batch("web", 7, 12, ONE), at(S)));
    linked.sort_unstable();
    let expected = [(7, 3, 150 * MS, 1, 0), (7, 12, 50 * MS, 1, 0), (7, 12, 150 * MS, 1, 2)];
    assert_eq!(linked, expected);

    let mut processor = link_spans("{profile_wait: 8s}");
    process(&mut processor, batch("web", 7, 12, ONE), at(S));
    process(&mut processor, spans(), at(2 * S));
    assert_eq!(left(&mut processor), [(7, 3, 150, 0), (7, 12, 50, 0), (7, 12, 150, 2)]);

    let mut processor = link_spans("{profile_wait: 8s}");
    process(&mut processor, batch("web", 7, 12, ONE), at(S));
    process(&mut processor, batch("web", 8, 22, ONE), at(S));
    process(&mut processor, spans(), at(2 * S));
    assert!(left(&mut processor).iter().all(|(.., span)| *span == 0), "of either worker");
}

/// Guarantees: samples of the process that sent an envelope are linked with its spans: for Python on the thread with
/// the pointer, though forked workers share it; for Node on the main thread, if that option is set.
#[test]
fn the_client_is_known() {
    for (platform, of_thread, of_main) in [("python", 2, 0), ("node", 0, 2), ("ruby", 0, 0)] {
        let mut processor = link_spans("{main_thread: true, profile_wait: 8s}");
        for (pid, thread) in [(7, 12), (8, 22)] {
            let times = [150 * MS, 250 * MS];
            let threads: [(i64, &str, i64, &[u64]); 2] = [(thread, "", ONE, &times), (pid, "", OTHER, &times)];
            process(&mut processor, profiles_of_threads(&web(pid), &threads), at(S));
        }
        let envelope = from_client(transaction(platform, "shop.example", &ONE.to_string(), 100, 200));
        process(&mut processor, envelope, at(2 * S));
        let expected = [
            (7, 7, 150, of_main),
            (7, 7, 250, 0),
            (7, 12, 150, of_thread),
            (7, 12, 250, 0),
            (8, 8, 150, 0),
            (8, 8, 250, 0),
            (8, 22, 150, 0),
            (8, 22, 250, 0),
        ];
        assert_eq!(left(&mut processor), expected, "{platform}");
    }
}

/// Guarantees: the main thread of a process in its own namespace is the one that its profiles identify, whichever ids
/// they have and whatever the client's id is; not another thread with the same number.
#[test]
fn the_main_thread_has_an_id_of_its_own() {
    let times = [150 * MS, 250 * MS];
    let asked = || {
        let mut envelope = from_client(transaction("node", "shop.example", "", 100, 200));
        envelope.meta.client_process = Some(ClientProcess { pid: 4711, host: "node-1".into() });
        envelope
    };
    let settings = "{main_thread: true, profile_wait: 8s}";
    // The built-in sampler sends both ids of the process, and the inner ids of its threads.
    let mut own = OUTSIDE.to_vec();
    own.push(("process.vpid", Any::Int(1)));
    let mut processor = with_settings(&Kernel::default(), settings);
    process(&mut processor, profiles(&own, &[(1, "node", &times), (4711, "worker", &times)]), at(S));
    let out = process(&mut processor, asked(), at(2 * S));
    assert_eq!(note(&out, "spans_linked_to_main_thread"), 2);
    assert_eq!(
        left(&mut processor),
        [(4711, 1, 150, 2), (4711, 1, 250, 0), (4711, 4711, 150, 0), (4711, 4711, 250, 0)]
    );
    // A process whose main thread was not observed.
    let mut processor = with_settings(&Kernel::default(), settings);
    process(&mut processor, profiles(&own, &[(4711, "worker", &times)]), at(S));
    let out = process(&mut processor, asked(), at(2 * S));
    assert_eq!(note(&out, "spans_linked_without_thread"), 2);
    assert_eq!(left(&mut processor), [(4711, 4711, 150, 0), (4711, 4711, 250, 0)]);
    // Other profilers send the host's ids of both. The inner ids are looked up.
    let kernel = Kernel::default();
    let mut processor = with_settings(&kernel, settings);
    process(&mut processor, profiles(&OUTSIDE, &[(4711, "node", &times), (4712, "worker", &times)]), at(S));
    let [question] = &kernel.asked()[..] else { panic!("one process is asked for") };
    kernel.answer(question.process, Some(InnermostIds { pid: 1, threads: vec![(4711, 1), (4712, 4711)] }));
    let out = process(&mut processor, asked(), at(2 * S));
    assert_eq!(note(&out, "spans_linked_to_main_thread"), 2);
    assert_eq!(
        left(&mut processor),
        [(4711, 4711, 150, 2), (4711, 4711, 250, 0), (4711, 4712, 150, 0), (4711, 4712, 250, 0)]
    );
}

/// Guarantees: samples with the host's process and thread ids are linked with spans that have those of the container,
/// even if these become known while the samples wait.
#[test]
fn own_ids_meet_the_machines() {
    let kernel = Kernel::default();
    let mut processor = with_settings(&kernel, "{profile_wait: 8s}");
    process(&mut processor, profiles(&OUTSIDE, &[(4711, "shop", &[50 * MS]), (4712, "worker", &[50 * MS])]), at(S));
    process(&mut processor, spans(&inside("python"), vec![span(1, 0, 100 * MS, &native(8))]), at(S));
    let [question] = &kernel.asked()[..] else { panic!("one process is asked for") };
    kernel.answer(question.process, Some(InnermostIds { pid: 7, threads: vec![(4711, 7), (4712, 8)] }));
    assert_eq!(left(&mut processor), [(4711, 4711, 50, 0), (4711, 4712, 50, 1)]);
}

/// Guarantees: if several profilers observed a process, samples of each are linked, whichever the span names.
#[test]
fn several_profilers() {
    let mut processor = link_spans("{profile_wait: 8s}");
    let start = ("process.creation.time", Any::Str("2026"));
    process(&mut processor, observed(&[HOST, PID, ("container.id", Any::Str("c"))], "other", "cpu", 0..=2), at(S));
    process(&mut processor, observed(&[HOST, PID, start], "own", "wall", 0..=2), at(2 * S));
    let out = process(&mut processor, spans(&traced(7), vec![span(1, 0, S, &native(7))]), at(2 * S));
    assert_eq!(note(&out, "spans_linked_with_one_of_several_profilers"), 1);
    let out = advance(&mut processor, at(12 * S));
    // A second with one observation per 50 milliseconds, from each.
    assert_eq!(note(&out, "observations_linked"), 40);
}
