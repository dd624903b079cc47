//! The engine's requirements: nothing is lost, held data is counted, and memory is bounded.

use opentelemetry_proto::tonic::trace::v1::Span;
use profbridge_engine::component::{Now, Outbox, Processor as _, process_all};
use profbridge_model::{Builder, Profiles, Quantities, Telemetry};
use profbridge_processor_link_spans::LinkSpans;

use crate::support::*;

fn left(out: &Outbox) -> u64 {
    out.telemetry.iter().map(|telemetry| telemetry.quantities().spans).sum()
}

/// Guarantees: every received span is sent once: when it is due, at the end, or because memory is short; meanwhile it
/// counts as held, and at the end nothing is held.
#[test]
fn spans_are_conserved() {
    let mut processor = link_spans("{}");
    for pid in 1..=20 {
        assert_eq!(
            left(&process(&mut processor, spans(&traced(pid), vec![span(1, 0, MS, &[]), span(2, 0, MS, &[])]), at(S))),
            0
        );
    }
    assert_eq!(processor.held().quantities, Quantities::spans(40));
    assert!(processor.held().bytes > 20 * 100);
    let mut out = Outbox::default();
    assert!(processor.on_memory_pressure(at(S), &mut out));
    assert_eq!((out.telemetry.len(), left(&out), note(&out, "spans_not_waited_for")), (1, 2, 2));
    let mut out = Outbox::default();
    assert!(processor.flush(at(S), &mut out));
    assert_eq!(out.telemetry.len(), 1, "one batch for each call");
    assert_eq!(left(&flush(&mut processor, at(S))), 36);
    assert_eq!((processor.held().quantities, processor.due()), (Quantities::NONE, None));
}

/// Guarantees: above the bound for waiting spans the oldest are sent, and above the bound of the index the processes
/// seen first are forgotten.
#[test]
fn memory_is_bounded() {
    let mut processor = link_spans("{max_bytes: 20KiB, max_index_bytes: 20KiB}");
    let mut out = 0;
    for pid in 0..500 {
        let sent = process(&mut processor, spans(&traced(pid), vec![span(1, 0, MS, &[])]), at(S));
        out += left(&sent);
        assert!(sent.telemetry.len() <= 1);
        assert!(processor.held().bytes <= 40 << 10, "{}", processor.held().bytes);
    }
    assert!(out > 300, "{out}");
    let mut forgotten = 0;
    for pid in 0..500 {
        let sent = process(&mut processor, profiles(&web(pid), &[(1, "main", &[0, 50 * MS])]), at(S + pid as u64));
        forgotten += note(&sent, "profiled_processes_forgotten_early");
        assert!(processor.held().bytes <= 40 << 10, "{}", processor.held().bytes);
    }
    assert!(forgotten > 300, "{forgotten}");
}

/// Profiles of one process: one observation for each of these function numbers.
fn observed(pid: i64, functions: std::ops::Range<i64>) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&web(pid));
    builder.on_cpu(20);
    let attributes = builder.attributes(&[("thread.id", 1.into())]);
    for function in functions {
        let frame = builder.frame(&format!("function {function}"), "main.rs", function);
        let stack = builder.stack(&[frame]);
        builder.sample(stack, attributes, None, &[T + function as u64 * MS], &[]);
    }
    builder.finish().unwrap()
}

/// Guarantees: waiting profiles count as held, and every observation is sent once: when due, at the end, because memory
/// is short, or early if their bound is exceeded.
#[test]
fn profiles_are_conserved() {
    let mut processor = link_spans("{profile_wait: 10s, max_bytes: 1MiB}");
    let (mut came, mut out) = (0, Outbox::default());
    let mut take = |processor: &mut LinkSpans, out: &mut Outbox, pid: i64, count: i64, now: Now| {
        came += count as u64;
        process_all(processor, observed(pid, 0..count).into(), now, out);
        let left: u64 = out.telemetry.iter().map(|telemetry| telemetry.quantities().observations).sum();
        assert_eq!(processor.held().quantities.observations + left, came);
        // Including a megabyte that the store keeps for the next request.
        assert!(processor.held().bytes <= 2 << 20, "{}", processor.held().bytes);
        left
    };
    for second in 0..8 {
        assert_eq!(take(&mut processor, &mut out, 1, 20, at(second * S)), 0);
    }
    assert!(processor.due().is_some_and(|due| due > at(10 * S).monotonic_nano));
    // Above the bound the windows that free the most are sent.
    assert!(take(&mut processor, &mut out, 2, 30_000, at(8 * S)) > 0);
    assert!(note(&out, "closed_early") > 0);
    for pid in 3..60 {
        take(&mut processor, &mut out, pid, 10, at(9 * S));
    }
    assert!(processor.held().quantities.observations > 0);
    let mut relieved = Outbox::default();
    let before = processor.held();
    while processor.on_memory_pressure(at(9 * S), &mut relieved) {}
    let half = processor.held();
    assert!(half.quantities.observations < before.quantities.observations && half.bytes < before.bytes);
    let flushed = flush(&mut processor, at(10 * S));
    let all = [&out, &relieved, &flushed];
    let left = all.iter().flat_map(|out| &out.telemetry).map(|telemetry| telemetry.quantities().observations);
    assert_eq!(left.sum::<u64>(), came);
    assert_eq!((processor.held().quantities, processor.due()), (Quantities::NONE, None));
}

/// Guarantees: profiles that a peer forwards for several machines are not merged while they wait, and stay marked;
/// profiles of one sender that wait for the same time become one batch.
#[test]
fn relayed_profiles_stay_apart() {
    for (relayed, batches) in [(true, 3), (false, 1)] {
        let mut processor = link_spans("{profile_wait: 10s}");
        for _ in 0..3 {
            let mut batch = observed(1, 0..5);
            (batch.relayed, batch.peer) = (relayed, Some("10.0.0.1".into()));
            process(&mut processor, batch, at(S));
        }
        let out = advance(&mut processor, at(20 * S));
        assert_eq!(out.telemetry.len(), batches);
        for telemetry in &out.telemetry {
            let Telemetry::Profiles(profiles) = telemetry else { panic!("{telemetry:?}") };
            assert_eq!((profiles.relayed, profiles.peer.as_deref()), (relayed, Some("10.0.0.1")));
        }
    }
}

/// Guarantees: the memory for spans is bounded in bytes and in time, and spans forgotten early are counted; the same
/// holds for spans whose thread is never found.
#[test]
fn spans_are_forgotten() {
    for known in [true, false] {
        let mut processor = link_spans("{max_index_bytes: 60KiB, span_wait: 0s}");
        let mut forgotten = 0;
        let lasts = |id: u64| {
            let id_bytes = (id + 1).to_be_bytes().to_vec();
            Span { span_id: id_bytes, ..span(1, id * MS, id * MS + MS, &native(1)) }
        };
        for id in 0..5000 {
            if known {
                process(&mut processor, profiles(&web(1), &[(1, "main", &[id * MS])]), at(id * MS));
            }
            let out = process(&mut processor, spans(&traced(1), vec![lasts(id)]), at(id * MS));
            forgotten += note(&out, "spans_forgotten_early");
            assert!(processor.held().bytes <= 130 << 10, "{}", processor.held().bytes);
        }
        assert!(forgotten > 3000, "{forgotten}");
        // The spans that arrived last are still there.
        let resource = web(1);
        let times = [4999 * MS, 0];
        let out = process(&mut processor, profiles(&resource, &[(1, "main", &times)]), at(6 * S));
        assert_eq!((note(&out, "observations_linked"), note(&out, "observations_unlinked_no_span")), (1, 1));
        let remembered = processor.held().bytes;
        // After more than two minutes they are gone.
        process(&mut processor, profiles(&resource, &[(1, "main", &[400 * S])]), at(400 * S));
        let out = process(&mut processor, profiles(&resource, &[(1, "main", &times)]), at(400 * S));
        assert_eq!(note(&out, "observations_unlinked_no_span"), 2);
        assert!(processor.held().bytes < remembered / 4, "{} of {remembered}", processor.held().bytes);
    }
}
