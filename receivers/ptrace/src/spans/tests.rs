use proptest::prelude::*;

use super::*;

const A: ConnectionId = ConnectionId(1);
const TARGET: TargetId = TargetId(3);

fn key(span_id: u64) -> SpanKey {
    SpanKey { trace_id: 1, span_id }
}

/// Guarantees: a deferred span does not count until it is announced with a decision, which cannot change any more.
#[test]
fn deferred_waits() {
    let mut spans = OpenSpans::default();
    let scope = Scope::Process(7);
    assert_eq!(spans.start(A, scope, key(1), Decision::Deferred), Ok(Announced::Deferred));
    assert_eq!(spans.sampled(TARGET, 7), 0);
    assert_eq!(spans.start(A, scope, key(1), Decision::Sampled), Ok(Announced::Counts));
    assert_eq!(spans.start(A, scope, key(1), Decision::NotSampled), Err(SpanRefusal::Decided));
    assert_eq!(spans.start(A, Scope::Process(8), key(1), Decision::Sampled), Err(SpanRefusal::Scope));
    assert_eq!((spans.sampled(TARGET, 7), spans.count), (1, 1));
}

/// Guarantees: the number of open spans is limited for each connection and in total, and a refused announcement
/// changes nothing.
#[test]
fn bounded() {
    let mut spans = OpenSpans::default();
    for connection in 0..(MAX_SPANS / MAX_SPANS_PER_CONNECTION) as u64 {
        for span in 0..MAX_SPANS_PER_CONNECTION as u64 {
            spans.start(ConnectionId(connection), Scope::Process(1), key(span + 1), Decision::Deferred).unwrap();
        }
    }
    let one_more = |spans: &mut OpenSpans, connection| {
        spans.start(ConnectionId(connection), Scope::Process(1), key(u64::MAX), Decision::Sampled)
    };
    assert_eq!(one_more(&mut spans, 0), Err(SpanRefusal::Connection));
    assert_eq!(one_more(&mut spans, 99), Err(SpanRefusal::All));
    assert_eq!((spans.count, spans.sampled(TARGET, 1)), (MAX_SPANS, 0));
    spans.close(ConnectionId(0));
    assert_eq!(one_more(&mut spans, 99), Ok(Announced::Counts));
}

proptest! {
    /// Guarantees: whatever is announced, ended and closed, the counts match the open spans, and nothing is left when
    /// all connections are closed.
    /// rule: profiles-sdk#lifecycle-trace
    #[test]
    fn counts_are_exact(
        steps in proptest::collection::vec((0u8..4, 0u64..3, 0u32..3, 0u64..5, 0u8..3), 0..120),
    ) {
        let mut spans = OpenSpans::default();
        let mut model: HashMap<(u64, u64), (u32, Decision)> = HashMap::new();
        for (action, connection, pid, span, decision) in steps {
            let id = ConnectionId(connection);
            match action {
                0 | 1 => {
                    let decision = [Decision::Sampled, Decision::NotSampled, Decision::Deferred][decision as usize];
                    if spans.start(id, Scope::Process(pid), key(span), decision).is_ok() {
                        model.insert((connection, span), (pid, decision));
                    }
                }
                2 => {
                    let known = model.remove(&(connection, span)).map(|(pid, _)| Scope::Process(pid));
                    prop_assert_eq!(spans.end(id, key(span)), known);
                }
                _ => {
                    model.retain(|(of, _), _| *of != connection);
                    spans.close(id);
                }
            }
            for pid in 0..3 {
                let open = model.values().filter(|(of, decision)| *of == pid && *decision == Decision::Sampled).count();
                prop_assert_eq!(spans.sampled(TARGET, pid), open);
            }
            prop_assert_eq!(spans.count, model.len());
        }
        (0..3).for_each(|connection| drop(spans.close(ConnectionId(connection))));
        prop_assert!(spans.count == 0);
    }
}
