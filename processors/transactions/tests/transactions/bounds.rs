use std::sync::Arc;

use profbridge_engine::component::{Outbox, Processor, process_all};
use profbridge_model::{Spans, Telemetry};
use profbridge_processor_transactions::{CLOSED_EARLY, LATE, Transactions, WITHOUT_ROOT};

use crate::support::*;

const MIB: u64 = 1 << 20;

/// Passes a request in as many steps as the engine would, and checks the result of each step.
fn step_by_step(
    processor: &mut Transactions,
    given: &[Given],
    now: u64,
    mut look: impl FnMut(&Transactions, u64, Outbox),
) {
    let mut first = Some(request(given));
    while first.is_some() || processor.due().is_some_and(|due| due <= at(now).monotonic_nano) {
        let mut out = Outbox::default();
        let before = processor.held().bytes;
        match first.take() {
            Some(request) => processor.process(request.into(), at(now), &mut out),
            None => processor.advance(at(now), &mut out),
        }
        assert!(out.telemetry.len() <= 1);
        look(processor, processor.held().bytes.saturating_sub(before), out);
    }
}

/// Guarantees: a transaction that reaches the span limit is sent at once, and later spans are late.
#[test]
fn spans_of_one_transaction() {
    let mut processor = processor("max_spans: 3");
    let out = send(&mut processor, &[span(1, None), span(2, 1), span(3, 1), span(4, 3)], at(0));
    assert_eq!((ids(&out), noted(&out, CLOSED_EARLY)), (vec![vec![1, 2, 3]], 1));
    let out = flush(&mut processor, at(0));
    assert_eq!((ids(&out), noted(&out, LATE)), (vec![vec![4]], 1));
}

/// Guarantees: buffered data stays within its limit, or within half of the memory for all data. Transactions with the
/// earliest deadlines are sent early for that, and counted.
#[test]
fn bytes() {
    bounded(processor("max_bytes: 64KiB"));
    let mut small = processor("");
    small.fit_memory(128 << 10);
    bounded(small);
}

fn bounded(mut processor: Transactions) {
    let text = "x".repeat(400);
    let (mut left, mut early) = (Vec::new(), 0);
    for trace in 1..=500 {
        let given = [span(1, None).trace(trace).text(&text), span(2, 1).trace(trace).text(&text)];
        step_by_step(&mut processor, &given, 0, |processor, _, out| {
            // The memory of recently sent spans comes in addition.
            assert!(processor.held().bytes <= (64 << 10) + (96 << 10), "{:?}", processor.held());
            left.extend(transactions(&out).iter().map(|one| one.spans[0].trace));
            early += noted(&out, CLOSED_EARLY);
        });
    }
    assert!(left.len() > 400 && early == left.len() as u64, "{} {early}", left.len());
    assert!(left.is_sorted());
}

/// Guarantees: under memory pressure, transactions are sent in the order of their deadlines until half of the size is
/// left; the others keep waiting.
#[test]
fn relief() {
    let mut processor = processor("");
    // The first transaction waits for its root, which takes longer than the others wait for their children.
    send(&mut processor, &[span(2, 1).trace(1000)], at(0));
    for trace in 1..=100 {
        send(&mut processor, &[span(1, None).trace(trace)], at(trace * S / 100));
    }
    let mut out = Outbox::default();
    while processor.on_memory_pressure(at(S), &mut out) {}
    let left: Vec<u64> = transactions(&out).iter().map(|one| one.spans[0].trace).collect();
    assert!((45..55).contains(&left.len()) && left.is_sorted(), "{left:?}");
    assert_eq!((noted(&out, CLOSED_EARLY), noted(&out, WITHOUT_ROOT)), (left.len() as u64, 0));
    assert_eq!(processor.held().quantities.spans, 101 - left.len() as u64);
    let out = flush(&mut processor, at(S));
    assert_eq!(transactions(&out).len(), 101 - left.len());
}

/// Guarantees: a million spans of one trace are buffered in pieces of limited size. Each call accepts about a megabyte
/// and sends at most one piece, and all spans are sent.
#[test]
fn a_million_spans_of_one_trace() {
    const SPANS: u64 = 1_000_000;
    let mut processor = processor("");
    processor.fit_memory(64 * MIB);
    let (mut left, mut most, mut early) = (0, 0, 0);
    for from in (0..SPANS).step_by(100_000) {
        let given: Vec<Given> =
            (from + 2..from + 100_002).map(|id| span(id, if id % 7 == 0 { id - 1 } else { 1 })).collect();
        step_by_step(&mut processor, &given, 0, |processor, grown, out| {
            assert!(grown < 2 * MIB, "{grown}");
            most = most.max(processor.held().bytes);
            left += out.telemetry.iter().map(|out| out.quantities().spans).sum::<u64>();
            assert!(out.telemetry.iter().all(|out| out.size_bytes() < 8 * MIB));
            early += noted(&out, CLOSED_EARLY);
        });
    }
    assert!(most < 12 * MIB, "{most}");
    // Some spans are children of spans that were sent already.
    assert!(early >= SPANS / 10_000 - 1, "{early}");
    let out = flush(&mut processor, at(0));
    left += out.telemetry.iter().map(|out| out.quantities().spans).sum::<u64>();
    assert_eq!(left, SPANS);
}

/// Guarantees: a hundred thousand open traces take not much more memory than their spans, and stay within the limit.
#[test]
fn a_hundred_thousand_open_traces() {
    const TRACES: u64 = 100_000;
    let mut processor = processor("");
    let text = "x".repeat(200);
    for from in (1..=TRACES).step_by(10_000) {
        let given: Vec<Given> = (from..from + 10_000)
            .flat_map(|trace| [span(2, 1).trace(trace).text(&text), span(1, None).trace(trace).text(&text)])
            .collect();
        let out = send(&mut processor, &given, at(0));
        assert!(out.telemetry.is_empty());
    }
    let held = processor.held();
    assert_eq!(held.quantities.spans, 2 * TRACES);
    // A span has 200 bytes of content and 80 bytes of fields; the rest is index entries, trees and allocator overhead.
    let each = held.bytes / held.quantities.spans;
    assert!((280..450).contains(&each), "{each} bytes for each span");
    let out = wait_until(&mut processor, at(10 * S));
    assert_eq!(transactions(&out).len() as u64, TRACES);
    let largest = out.telemetry.iter().map(Telemetry::size_bytes).max().unwrap();
    assert!(largest < 2 * MIB && out.telemetry.len() < 100, "{largest} {}", out.telemetry.len());
    assert!(processor.held().bytes < 5 * MIB, "{:?}", processor.held());
}

/// Guarantees: a request is released as soon as its spans are buffered.
#[test]
fn requests_are_let_go() {
    let mut processor = processor("");
    let request = request(&[span(1, None), span(2, 1)]);
    let bytes = request.bytes().clone();
    process_all(&mut processor, request.into(), at(0), &mut Outbox::default());
    assert_eq!(processor.held().quantities.spans, 2);
    assert!(bytes.is_unique());
}

/// Guarantees: data that many transactions share, such as a huge resource, is stored once and copied at most once per
/// megabyte of transactions, even if two resources alternate.
#[test]
fn large_resources_are_not_multiplied() {
    const TRACES: u64 = 20_000;
    let mut processor = processor("");
    let (one, two) = ("a".repeat(MIB as usize), "b".repeat(MIB as usize));
    let of = |resource: Arc<str>, parity: u64| {
        let traces = (1..=TRACES).filter(|trace| trace % 2 == parity);
        traces.map(|trace| span(1, None).trace(trace).of(Arc::clone(&resource))).collect::<Vec<_>>()
    };
    // There are two resources, and the spans alternate between them.
    let apart = request(&[of(one.into(), 0), of(two.into(), 1)].concat());
    let (first, second) = apart.spans().split_at(TRACES as usize / 2);
    let in_turn = first.iter().zip(second).flat_map(|(one, two)| [one.clone(), two.clone()]).collect();
    let (resources, scopes) = (apart.resources().to_vec(), apart.scopes().to_vec());
    let request = Spans::new(apart.form(), apart.bytes().clone(), resources, scopes, in_turn, false).unwrap();
    process_all(&mut processor, request.into(), at(0), &mut Outbox::default());
    assert!(processor.held().bytes < 16 * MIB, "{:?}", processor.held());
    let out = wait_until(&mut processor, at(10 * S));
    assert_eq!(out.telemetry.iter().map(|out| out.quantities().spans).sum::<u64>(), TRACES);
    let bytes: u64 = out.telemetry.iter().map(Telemetry::size_bytes).sum();
    assert!(bytes < 24 * MIB, "{bytes}");
}
