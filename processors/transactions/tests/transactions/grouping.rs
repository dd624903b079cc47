use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use profbridge_engine::component::{Outbox, Processor, process_all};
use profbridge_model::{Envelope, Reason, SpanForm, Telemetry};
use profbridge_processor_transactions::{EQUAL_IDS, WITHOUT_ROOT};
use profbridge_testkit as testing;
use proptest::prelude::*;

use crate::support::*;

/// The end of the path from a span through its ancestors in the process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Top {
    Root(u64),
    Missing(u64),
    /// The smallest id in a cycle.
    Circle(u64),
}

/// Finds the end of a span's path by searching all spans.
fn top(spans: &[&Given], of: &Given) -> Top {
    let mut seen = vec![of];
    loop {
        let span = seen[seen.len() - 1];
        if span.parent.is_none() || span.is_remote || span.is_server {
            return Top::Root(span.id);
        }
        let parent = span.parent.unwrap();
        let Some(above) = spans.iter().find(|other| other.id == parent) else { return Top::Missing(parent) };
        if let Some(from) = seen.iter().position(|known| known.id == above.id) {
            return Top::Circle(seen[from..].iter().map(|span| span.id).min().unwrap());
        }
        seen.push(above);
    }
}

/// Computes the transactions of spans by brute force, each with its local root if it has one.
fn expected(spans: &[Given]) -> BTreeSet<(Option<u64>, BTreeSet<Given>)> {
    let mut processes: BTreeMap<_, Vec<&Given>> = BTreeMap::new();
    for span in spans {
        processes.entry((&span.resource, span.trace)).or_default().push(span);
    }
    let mut all = BTreeSet::new();
    for process in processes.values() {
        let mut tops: BTreeMap<Top, BTreeSet<Given>> = BTreeMap::new();
        for span in process {
            tops.entry(top(process, span)).or_default().insert((*span).clone());
        }
        all.extend(tops.into_iter().map(|(top, spans)| match top {
            Top::Root(id) => (Some(id), spans),
            Top::Missing(_) | Top::Circle(_) => (None, spans),
        }));
    }
    all
}

/// Spans of a few traces and processes, with arbitrary parents: earlier, later, in other processes, in cycles, missing.
fn spans(random: &mut Rng) -> Vec<Given> {
    let count = random.u64(1..60);
    let reach = random.u64(1..8);
    let mut all = Vec::new();
    for id in 1..=count {
        let parent = match random.u8(0..10) {
            0 => None,
            1 => Some(random.u64(1..=count + 5)).filter(|parent| *parent != id),
            _ => Some(id.saturating_sub(random.u64(1..=reach))).filter(|parent| *parent > 0),
        };
        let mut given = span(id, parent).trace(random.u64(1..3)).at(random.u64(0..20));
        given.resource = ["a", "b"][random.usize(0..10) / 9].into();
        given.scope = ["s", "t", ""][random.usize(0..3)].to_owned();
        given.is_server = random.u8(0..8) == 0;
        given.is_remote = random.u8(0..12) == 0;
        all.push(given);
    }
    all
}

/// Splits spans into requests at arbitrary places.
fn cut<'a>(random: &mut Rng, mut spans: &'a [Given]) -> Vec<&'a [Given]> {
    let mut requests = Vec::new();
    while !spans.is_empty() {
        let (request, rest) = spans.split_at(random.usize(1..=spans.len().min(9)));
        requests.push(request);
        spans = rest;
    }
    requests
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Guarantees: each span belongs to the nearest local root above it in its process. If all spans arrive in time,
    /// the same transactions are sent in the same order, however the spans are ordered and split into requests.
    #[test]
    fn as_by_brute_force(seed in any::<u64>()) {
        let mut random = Rng::with_seed(seed);
        let mut given = spans(&mut random);
        let mut in_order: Option<BTreeSet<GroupedSpans>> = None;
        for _ in 0..3 {
            random.shuffle(&mut given);
            let mut processor = processor("");
            let mut out = Outbox::default();
            for request_of in cut(&mut random, &given) {
                process_all(&mut processor, request(request_of).into(), at(random.u64(0..S)), &mut out);
            }
            prop_assert!(out.telemetry.is_empty());
            let out = wait_until(&mut processor, at(400 * S));
            prop_assert!(out.losses.is_none() && processor.held().quantities.is_none());
            let found = transactions(&out);
            let as_sets: BTreeSet<_> =
                found.iter().map(|found| (found.root, found.spans.iter().cloned().collect::<BTreeSet<_>>())).collect();
            let expected = expected(&given);
            prop_assert_eq!(noted(&out, WITHOUT_ROOT), expected.iter().filter(|(root, _)| root.is_none()).count() as u64);
            prop_assert_eq!((found.len(), &as_sets), (expected.len(), &expected));
            let ordered: BTreeSet<GroupedSpans> = found.into_iter().collect();
            prop_assert_eq!(in_order.get_or_insert_with(|| ordered.clone()), &ordered);
        }
    }
}

/// Guarantees: a transaction without its root starts with the spans whose parent is missing, earliest first. A cycle of
/// parents is one transaction without a root.
#[test]
fn without_root() {
    let mut processor = processor("");
    let given = [
        span(2, 3).at(5),
        span(3, 99).at(7),
        span(4, 99).at(6),
        span(5, 6).trace(2).at(2),
        span(6, 5).trace(2).at(1),
        span(7, 7).trace(3),
    ];
    send(&mut processor, &given, at(0));
    let out = flush(&mut processor, at(0));
    let mut found = transactions(&out);
    assert!(found.iter().all(|transaction| transaction.root.is_none()));
    found.sort_by_key(GroupedSpans::ids);
    assert_eq!(found.iter().map(GroupedSpans::ids).collect::<Vec<_>>(), [vec![4, 3, 2], vec![6, 5], vec![7]]);
    assert_eq!(noted(&out, WITHOUT_ROOT), 3);
}

/// Guarantees: a span that is resent while the first is buffered is dropped as resent. A span with the same id and
/// other content joins the transaction, but not as root, and is counted.
#[test]
fn equal_ids() {
    let mut processor = processor("");
    let first = send(&mut processor, &[span(1, None), span(2, 1)], at(0));
    assert!(first.losses.is_none());
    let again = send(&mut processor, &[span(2, 1), span(1, None), span(1, None).text("other")], at(S));
    assert_eq!(again.losses.get(Reason::Resent).spans, 2);
    assert_eq!(noted(&again, EQUAL_IDS), 1);
    // The same id in another process is another span.
    let other = send(&mut processor, &[span(2, 1).of("stock").server()], at(S));
    assert!(other.losses.is_none() && noted(&other, EQUAL_IDS) == 0);
    let found = transactions(&flush(&mut processor, at(S)));
    let texts = |at: usize| found[at].spans.iter().map(|span| span.text.as_str()).collect::<Vec<_>>();
    assert_eq!((texts(0), texts(1)), (vec!["span 1", "other", "span 2"], vec!["span 2"]));
}

/// Guarantees: everything except OTLP spans is sent on at once, unchanged.
#[test]
fn other_telemetry_passes() {
    let others: [Telemetry; 4] = [
        of_sentry(SpanForm::SentryTransaction).into(),
        of_sentry(SpanForm::SentrySpans).into(),
        Envelope::default().into(),
        testing::batch(&[3]).into(),
    ];
    for telemetry in others {
        let (kind, quantities) = (telemetry.kind(), telemetry.quantities());
        let mut out = Outbox::default();
        let mut processor = processor("");
        process_all(&mut processor, telemetry, at(0), &mut out);
        assert_eq!(
            out.telemetry.iter().map(|out| (out.kind(), out.quantities())).collect::<Vec<_>>(),
            [(kind, quantities)]
        );
        if let Telemetry::Spans(spans) = &out.telemetry[0] {
            assert!(spans.received().is_some() && spans.peer.is_some());
        }
    }
}

/// Guarantees: spans received in Sentry containers are sent on at once, in a separate batch, and belong to no
/// transaction, even if another span has one of them as parent. Other spans of the request are grouped.
#[test]
fn streamed_spans_pass() {
    let mut processor = processor("wait: 1s");
    let alone = send(&mut processor, &[span(1, None).streamed(), span(2, 1).streamed()], at(0));
    let [Telemetry::Spans(batch)] = &alone.telemetry[..] else { panic!("one batch") };
    assert!(batch.received().is_some() && batch.spans().iter().all(|span| span.segment.is_none()));
    let mixed = [span(10, None), span(11, 10).streamed(), span(12, 10), span(13, 11)];
    let out = send(&mut processor, &mixed, at(0));
    assert_eq!((streamed(&out), ids(&out)), (vec![mixed[1].clone()], vec![]));
    assert_eq!(processor.held().quantities.spans, 3);
    assert_eq!(ids(&flush(&mut processor, at(0))), [vec![10, 12], vec![13]]);
}
