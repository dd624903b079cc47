use opentelemetry_proto::tonic::trace::v1::Span;
use profbridge_engine::component::{Outbox, Processor};
use profbridge_model::spans::Segment;
use profbridge_model::{Spans, Telemetry};
use profbridge_processor_sample::{DECIDED_EARLY, WITHOUT_ROOT};
use profbridge_wire::otlp::traces::{OtherSpanFields, read::resource_attributes};

use proptest::prelude::*;

use crate::support::{
    REMOTE, S, advance, at, batch, dropped, flush, ids, int, left, noted, of_process, process, reported_counts, sample,
    span, text,
};

/// A rule that drops one name, and keeps all others.
const RULE: &str = "traces_rules: [{name: drop, sampled: false}, {sampled: true}]";

fn root(trace: u64, id: u64, name: &str) -> Span {
    Span { name: name.to_owned(), ..span(trace, id, 0) }
}

/// Guarantees: children wait for their root span and share its decision, whether they arrive before or after it. An
/// undecided trace does not delay others.
/// rule: tracing-sdk#sampled-once, tracing-sdk#propagation
#[test]
fn children_wait_for_their_root() {
    let mut sample = sample(RULE);
    let first = process(&mut sample, of_process(vec![span(1, 11, 10), span(2, 21, 20), span(3, 31, 30)]), at(0));
    assert_eq!((ids(&first), dropped(&first), sample.held().quantities.spans), (vec![], 0, 3));
    let second = process(&mut sample, of_process(vec![root(1, 10, "keep"), root(2, 20, "drop")]), at(S));
    assert_eq!((ids(&second), dropped(&second)), (vec![10, 11], 2));
    assert_eq!(sample.held().quantities.spans, 1);
    let late = process(&mut sample, of_process(vec![span(1, 12, 10), span(2, 22, 20)]), at(2 * S));
    assert_eq!((ids(&late), dropped(&late)), (vec![12], 1));
}

/// Guarantees: dropped spans are reported per process as the transactions and spans that Sentry would have received:
/// one transaction per local root, none for spans of a container received as OTLP. The call that drops the spans makes
/// the report, whether they had waited or not. Kept and waiting spans are not reported.
/// rule: transport#client-reports-sample-rate
#[test]
fn what_is_dropped_is_said() {
    let mut sample = sample(RULE);
    let of = |service: &str, spans: Vec<Span>| batch(spans, vec![text("service.name", service), int("process.pid", 7)]);
    let said_of = |service: &str, transactions, spans| (service.to_owned(), transactions, spans);
    let waits = process(&mut sample, of("shop", vec![span(1, 11, 10), span(2, 21, 20), span(3, 31, 30)]), at(0));
    assert_eq!(reported_counts(&waits), []);
    let server = Span { kind: 2, ..span(1, 12, 11) };
    let roots = vec![root(1, 10, "drop"), server, root(2, 20, "drop"), root(3, 30, "keep")];
    let mut out = reported_counts(&process(&mut sample, of("shop", roots), at(S)));
    out.sort();
    assert_eq!(out, [said_of("shop", 0, 2), said_of("shop", 3, 3)], "those that waited are said by themselves");
    let late = process(&mut sample, of("shop", vec![span(1, 13, 10), span(3, 32, 30)]), at(2 * S));
    assert_eq!(reported_counts(&late), [said_of("shop", 0, 1)]);
    let other = process(&mut sample, of("cart", vec![root(1, 40, "drop")]), at(2 * S));
    assert_eq!(reported_counts(&other), [said_of("cart", 1, 1)]);
    let streamed = Span { attributes: vec![text("sentry.form", "span_v2")], ..root(9, 90, "drop") };
    assert_eq!(reported_counts(&process(&mut sample, of("shop", vec![streamed]), at(2 * S))), [said_of("shop", 0, 1)]);
    // Spans without their root span are decided by the rate, at the deadline or at shutdown.
    let mut sample = crate::support::sample("traces_sample_rate: 0\ndecision_wait: 1s");
    process(&mut sample, of("shop", vec![span(1, 11, 10), span(1, 12, 10)]), at(0));
    assert_eq!(reported_counts(&advance(&mut sample, at(2 * S))), [said_of("shop", 0, 2)]);
    process(&mut sample, of("shop", vec![span(2, 21, 20)]), at(2 * S));
    assert_eq!(reported_counts(&flush(&mut sample, at(2 * S))), [said_of("shop", 0, 1)]);
    assert_eq!((sample.held().quantities.spans, sample.due()), (0, None));
}

/// Guarantees: buffered spans are sent with unchanged content, resource and peer.
#[test]
fn what_waited_says_the_same() {
    let mut sample = sample(RULE);
    let child = Span { attributes: vec![text("k", "v")], ..span(1, 11, 10) };
    let mut spans = of_process(vec![child]);
    spans.peer = Some("10.0.0.1".into());
    spans.add_to_resource(0, "host.id".into(), "1f".into());
    process(&mut sample, spans.clone(), at(0));
    let mut with_root = of_process(vec![root(1, 10, "keep")]);
    with_root.peer = Some("10.0.0.1".into());
    with_root.add_to_resource(0, "host.id".into(), "1f".into());
    let out = process(&mut sample, with_root, at(S));
    let Telemetry::Spans(waited) = &out.telemetry[1] else { panic!("{out:?}") };
    let span_contents = |spans: &Spans| {
        let (span, resource) = (&spans.spans()[0], &spans.resources()[0]);
        let attributes = resource_attributes(spans, resource).map(|(key, value)| format!("{key} {value:?}"));
        let own = OtherSpanFields::of(spans, span).attributes().map(|(key, value)| format!("{key} {value:?}"));
        (
            spans.get(span.at).to_vec(),
            attributes.chain(own).collect::<Vec<_>>(),
            resource.added.clone(),
            spans.peer.clone(),
        )
    };
    assert_eq!(span_contents(waited), span_contents(&spans));
}

/// Guarantees: a trace is decided separately in each process: in another process, it waits for the root span there, and
/// each process decides independently.
#[test]
fn processes_decide_for_themselves() {
    let mut sample = sample(RULE);
    let of = |pid, spans| batch(spans, vec![text("container.id", "c1"), int("process.pid", pid)]);
    process(&mut sample, of(1, vec![span(1, 11, 10)]), at(0));
    process(&mut sample, of(2, vec![span(1, 21, 20)]), at(0));
    let out = process(&mut sample, of(2, vec![root(1, 20, "drop")]), at(S));
    assert_eq!((ids(&out), dropped(&out), sample.held().quantities.spans), (vec![], 2, 1));
    let remote = Span { parent_span_id: vec![9; 8], flags: REMOTE, ..root(1, 10, "keep") };
    assert_eq!(ids(&process(&mut sample, of(1, vec![remote]), at(S))), [10, 11]);
}

/// Guarantees: if a trace has several root spans in a process, the earliest decides, whatever their order of arrival.
/// rule: tracing-sdk#propagation
#[test]
fn the_first_root_decides() {
    let inner = Span {
        start_time_unix_nano: crate::support::T + 1,
        parent_span_id: vec![9; 8],
        kind: 2,
        ..root(1, 12, "drop")
    };
    let spans = of_process(vec![inner, span(1, 11, 10), root(1, 10, "keep")]);
    assert_eq!(ids(&process(&mut sample(RULE), spans, at(0))), [10, 11, 12]);
}

/// Guarantees: spans without their root span are decided at the deadline by their resource and by the rate, never by
/// names. Late spans get the same decision, and each span kept by chance has the rate.
#[test]
fn what_has_no_root_is_decided_without() {
    let yaml = "decision_wait: 10s\ntraces_rules: [{name: '*', sampled: false}, {op: '*', sampled: false}, \
        {parent_sampled: none, sampled: false}, {service: other, sampled: false}, {attributes: {k: v}, sampled: false}, \
        {service: shop, sample_rate: 0.999999}]";
    let mut sample = sample(yaml);
    let child = Span { attributes: vec![text("k", "v")], ..span(1, 11, 10) };
    process(&mut sample, of_process(vec![child, span(1, 12, 10)]), at(0));
    assert_eq!(sample.due(), Some(at(10 * S).monotonic_nano));
    assert!(ids(&advance(&mut sample, at(10 * S - 1))).is_empty());
    let out = advance(&mut sample, at(10 * S));
    assert_eq!(left(&out), [(1, 11, Some(0.999_999)), (1, 12, Some(0.999_999))]);
    assert_eq!((noted(&out, WITHOUT_ROOT), dropped(&out)), (1, 0));
    let late = process(&mut sample, of_process(vec![root(1, 10, "root"), span(1, 13, 10)]), at(11 * S));
    assert_eq!(left(&late), [(1, 10, Some(0.999_999)), (1, 13, Some(0.999_999))]);
}

/// Guarantees: a decision is dropped after some time; the trace is then decided again.
#[test]
fn decisions_are_forgotten() {
    let mut sample = sample(&format!("{RULE}\ndecision_wait: 10s"));
    process(&mut sample, of_process(vec![root(1, 10, "drop")]), at(0));
    advance(&mut sample, at(10 * S));
    assert_eq!((sample.due(), sample.held().quantities.spans), (None, 0));
    process(&mut sample, of_process(vec![span(1, 11, 10)]), at(11 * S));
    assert_eq!(sample.held().quantities.spans, 1);
}

/// Guarantees: the number and size of waiting traces are limited. Beyond that, the oldest are decided early, without
/// their root spans, and counted; nothing is lost.
#[test]
fn bounds() {
    let children = |count: u64| of_process((0..count).map(|trace| span(trace, trace + 1, 9_999_999)).collect());
    let mut by_traces = sample(&format!("{RULE}\nmax_traces: 100"));
    let out = process(&mut by_traces, children(1000), at(0));
    assert_eq!((ids(&out), noted(&out, DECIDED_EARLY)), ((1..=900).collect(), 900));
    assert_eq!(by_traces.held().quantities.spans, 100);

    let mut by_bytes = sample(&format!("{RULE}\nmax_bytes: 64KiB"));
    let out = process(&mut by_bytes, children(10_000), at(0));
    let held = by_bytes.held();
    assert!(held.bytes < 8 << 20, "{held:?}");
    assert_eq!(ids(&out).len() as u64 + held.quantities.spans, 10_000);
    assert!(held.quantities.spans < 400 && noted(&out, DECIDED_EARLY) > 9000, "{held:?}");
}

/// Guarantees: the memory for a hundred thousand open traces, and for a trace of a hundred thousand spans, is
/// proportional to their content, and all of it is released at shutdown.
#[test]
fn many_traces_and_long_ones() {
    for spread in [100_000, 1] {
        let mut sample = sample(&format!("{RULE}\nmax_traces: 1000000\nmax_bytes: 1GiB"));
        let mut held = 0;
        for request in 0..10 {
            let spans = (0..10_000).map(|n| request * 10_000 + n);
            let spans = spans.map(|n| span(n % spread, n + 1, 9_999_999)).collect();
            let out = process(&mut sample, of_process(spans), at(request));
            assert!(out.telemetry.is_empty() && out.losses.is_none());
            held = sample.held().bytes;
        }
        // Test spans have about 70 bytes of content, and 128 bytes of fields.
        assert!(held < 100_000 * 900, "{held} bytes");
        let mut out = Outbox::default();
        while sample.flush(at(S), &mut out) {}
        assert_eq!((ids(&out).len(), sample.held().quantities.spans), (100_000, 0));
        assert!(out.telemetry.iter().all(|batch| batch.size_bytes() < 4 << 20));
    }
}

/// Guarantees: a resource is stored once for all spans that wait with it, and released with the last of them, whether
/// they are sent or dropped, with or without their root span.
#[test]
fn resources_are_let_go() {
    let large = || vec![text("container.id", "c1"), int("process.pid", 7), text("large", &"x".repeat(1 << 20))];
    let mut sample = sample(&format!("{RULE}\ndecision_wait: 10s"));
    let empty = sample.held().bytes;
    process(&mut sample, batch((0..100).map(|trace| span(trace, trace + 1, 200)).collect(), large()), at(0));
    assert!((1 << 20..3 << 20).contains(&sample.held().bytes), "{}", sample.held().bytes);
    let roots = [root(0, 200, "keep"), root(1, 201, "drop")];
    process(&mut sample, batch(roots.into(), large()), at(0));
    assert_eq!(sample.held().quantities.spans, 98);
    assert_eq!(ids(&advance(&mut sample, at(10 * S))).len(), 98);
    assert!(sample.held().bytes - empty < 256 << 10, "{}", sample.held().bytes);
}

/// Guarantees: a request with many waiting spans is absorbed in steps.
#[test]
fn large_requests_are_taken_in_steps() {
    let mut sample = sample(RULE);
    let spans = of_process((0..30_000).map(|n| span(n, n + 1, 9_999_999)).collect());
    let mut out = Outbox::default();
    sample.process(spans.into(), at(0), &mut out);
    assert!(sample.is_absorbing() && sample.due() == Some(0));
    let before = sample.held();
    assert_eq!(before.quantities.spans, 30_000);
    assert_eq!(ids(&flush(&mut sample, at(0))).len(), 30_000);
}

/// Guarantees: spans grouped by the processor `transactions` do not wait: each transaction is decided by its root span,
/// or else by its first span.
/// rule: tracing-sdk#sampled-once
#[test]
fn transactions_are_decided_at_once() {
    let spans =
        of_process(vec![span(1, 11, 10), root(1, 10, "keep"), span(1, 13, 12), root(1, 12, "drop"), span(2, 21, 20)]);
    let segments = [(0, false), (0, true), (1, false), (1, true), (2, false)];
    let all = spans.spans().iter().zip(segments).map(|(span, (number, is_root))| profbridge_model::Span {
        segment: Some(Segment { number, is_root }),
        ..span.clone()
    });
    let (resources, scopes) = (spans.resources().to_vec(), spans.scopes().to_vec());
    let spans = Spans::new(spans.form(), spans.bytes().clone(), resources, scopes, all.collect(), false).unwrap();
    let mut sample = sample(RULE);
    let out = process(&mut sample, spans, at(0));
    assert_eq!((ids(&out), dropped(&out), sample.held().quantities.spans), (vec![10, 11, 21], 2, 0));
    assert_eq!(reported_counts(&out), [("shop".to_owned(), 1, 2)]);
    assert!(out.telemetry[0].quantities().spans == 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Guarantees: in whatever order and requests spans arrive, exactly those whose root span was kept are sent, each
    /// once, if none waits too long. All others are reported as sampled out, each once.
    #[test]
    fn any_order_of_spans(
        fates in prop::collection::vec(any::<bool>(), 1..8),
        children in prop::collection::vec((0usize..8, 0u64..4), 0..60),
        order in any::<u64>(),
        cuts in prop::collection::vec(1usize..10, 1..20),
    ) {
        let mut all: Vec<Span> = fates
            .iter()
            .enumerate()
            .map(|(trace, kept)| root(trace as u64, 1000 + trace as u64, if *kept { "keep" } else { "drop" }))
            .collect();
        for (number, (trace, parent)) in children.iter().enumerate() {
            let trace = trace % fates.len();
            all.push(span(trace as u64, 1 + number as u64, 5000 + parent));
        }
        let expected: Vec<u64> = left_of(&all, |span| fates[usize::from(span.trace_id[15]) - 1]);
        fastrand::Rng::with_seed(order).shuffle(&mut all);
        let mut sample = sample(RULE);
        let (mut left, mut lost) = (Vec::new(), 0);
        let (mut said_spans, mut said_roots) = (0, 0);
        let mut cuts = cuts.into_iter().cycle();
        let total = all.len() as u64;
        while !all.is_empty() {
            let rest = all.split_off(cuts.next().unwrap().min(all.len()));
            let out = process(&mut sample, of_process(std::mem::replace(&mut all, rest)), at(0));
            left.extend(ids(&out));
            lost += dropped(&out);
            said_spans += reported_counts(&out).iter().map(|(_, _, spans)| spans).sum::<u64>();
            said_roots += reported_counts(&out).iter().map(|(_, transactions, _)| transactions).sum::<u64>();
        }
        left.sort_unstable();
        prop_assert_eq!(sample.held().quantities.spans, 0);
        prop_assert_eq!(left.len() as u64 + lost, total);
        let dropped_roots = fates.iter().filter(|kept| !**kept).count() as u64;
        prop_assert_eq!((said_spans, said_roots), (lost, dropped_roots));
        prop_assert_eq!(left, expected);
    }
}

/// The numbers of the spans that match a condition, in order.
fn left_of(spans: &[Span], test: impl Fn(&Span) -> bool) -> Vec<u64> {
    let number = |span: &Span| u64::from_be_bytes(span.span_id.as_slice().try_into().unwrap());
    let mut left: Vec<u64> = spans.iter().filter(|span| test(span)).map(number).collect();
    left.sort_unstable();
    left
}
