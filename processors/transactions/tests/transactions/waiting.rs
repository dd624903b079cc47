use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use profbridge_engine::component::{Outbox, Processor};
use profbridge_model::Reason;
use profbridge_processor_transactions::{LATE, WITHOUT_ROOT};
use proptest::prelude::*;

use crate::support::*;

/// Guarantees: a transaction is sent when `wait` has passed since its local root arrived, whenever late children
/// arrive. Transactions due within a quarter of a second are sent together, never early.
#[test]
fn waits_for_children() {
    let mut processor = processor("wait: 2s");
    assert!(send(&mut processor, &[span(2, 1)], at(0)).telemetry.is_empty());
    assert!(send(&mut processor, &[span(1, None)], at(100 * S)).telemetry.is_empty());
    send(&mut processor, &[span(5, None).trace(2)], at(100 * S + S / 8));
    assert_eq!(processor.due(), Some(at(102 * S).monotonic_nano));
    assert!(send(&mut processor, &[span(3, 2)], at(102 * S - 1)).telemetry.is_empty());
    assert_eq!(ids(&wait_until(&mut processor, at(102 * S))), [[1, 2, 3]]);
    assert_eq!(processor.due(), Some(at(102 * S + S / 4).monotonic_nano));
    assert_eq!(ids(&wait_until(&mut processor, at(102 * S + S / 4))), [[5]]);
    assert_eq!(processor.due(), None);
}

/// Guarantees: children that arrive after their transaction was sent form one transaction, which waits only for `wait`
/// and is counted as late, not as one without a root.
#[test]
fn late_children() {
    let mut processor = processor("wait: 2s");
    send(&mut processor, &[span(1, None), span(2, 1)], at(0));
    assert_eq!(ids(&wait_until(&mut processor, at(2 * S))), [[1, 2]]);
    send(&mut processor, &[span(3, 2)], at(3 * S));
    send(&mut processor, &[span(4, 3), span(5, 2)], at(4 * S));
    // In the other order: the child arrives before the span that connects it to a sent span.
    send(&mut processor, &[span(7, 6)], at(4 * S));
    send(&mut processor, &[span(6, 1)], at(4 * S));
    let out = wait_until(&mut processor, at(5 * S));
    assert_eq!((ids(&out), noted(&out, LATE), noted(&out, WITHOUT_ROOT)), (vec![vec![3, 5, 4]], 1, 0));
    let out = wait_until(&mut processor, at(6 * S));
    assert_eq!((ids(&out), noted(&out, LATE)), (vec![vec![6, 7]], 1));
}

/// Guarantees: a request that is resent after its transactions were sent is dropped as resent. Spans of another process
/// with the same ids, or with other content, are no resends.
#[test]
fn resent_after_leaving() {
    let mut processor = processor("wait: 2s");
    let given = [span(1, None), span(2, 1)];
    send(&mut processor, &given, at(0));
    wait_until(&mut processor, at(2 * S));
    assert_eq!(send(&mut processor, &given, at(9 * S)).losses.get(Reason::Resent).spans, 2);
    assert_eq!((processor.due(), processor.held().quantities.spans), (None, 0));
    let others = [span(1, None).of("stock"), span(1, None).trace(2), span(2, 1).text("other")];
    assert!(send(&mut processor, &others, at(9 * S)).losses.is_none());
    let mut found = ids(&wait_until(&mut processor, at(11 * S)));
    found.sort();
    assert_eq!(found, [[1], [1], [2]]);
}

/// The first multiple of a quarter of a second at or after a time.
fn quarter(time: u64) -> u64 {
    time.next_multiple_of(S / 4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Guarantees: whenever spans arrive and whatever they connect, a transaction with its root is sent `wait` after
    /// the root arrived. One without a root is sent `orphan_wait` after its first span, or `wait` after it became late
    /// if that is earlier.
    #[test]
    fn leaves_in_time(seed in any::<u64>()) {
        const WAIT: u64 = 2 * S;
        const ORPHAN_WAIT: u64 = 10 * S;
        let mut random = Rng::with_seed(seed);
        let mut processor = processor("wait: 2s\norphan_wait: 10s");
        let count = random.u64(2..40);
        let mut left_of: Vec<u64> = (1..=count).collect();
        random.shuffle(&mut left_of);
        // The arrival time of each span, and the spans that were sent.
        let (mut came, mut left) = (BTreeMap::new(), BTreeSet::new());
        let mut time = 0;
        while processor.due().is_some() || !left_of.is_empty() {
            let next = if left_of.is_empty() { 1000 * S } else { time + random.u64(0..4 * S) };
            // Sends everything that is due before the next span, at its deadline.
            while let Some(due) = processor.due().filter(|due| *due <= at(next).monotonic_nano) {
                let now = due - at(0).monotonic_nano;
                let mut out = Outbox::default();
                processor.advance(at(now), &mut out);
                for transaction in transactions(&out) {
                    let arrival = |id: u64| came[&id];
                    let is_late = transaction.spans.iter().any(|span| span.parent.is_some_and(|id| left.contains(&id)));
                    let first = transaction.ids().into_iter().map(arrival).min().unwrap();
                    match transaction.root {
                        Some(root) => prop_assert_eq!(now, quarter(arrival(root) + WAIT)),
                        None if is_late => prop_assert!(now <= quarter(first + ORPHAN_WAIT + WAIT)),
                        None => prop_assert_eq!(now, quarter(first + ORPHAN_WAIT)),
                    }
                    left.extend(transaction.ids());
                }
            }
            time = next;
            let some = left_of.len().min(random.usize(1..4));
            let given: Vec<Given> = left_of
                .drain(..some)
                .map(|id| {
                    let given = span(id, (id > 1 && random.u8(0..10) > 0).then(|| random.u64(1..=id)));
                    if random.u8(0..6) == 0 { given.server() } else { given }
                })
                .collect();
            came.extend(given.iter().map(|span| (span.id, time)));
            let out = send(&mut processor, &given, at(time));
            prop_assert!(out.telemetry.is_empty());
        }
        prop_assert_eq!(left.len() as u64, count);
    }
}
