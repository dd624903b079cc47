//! Several profilers of one process.

use profbridge_model::{ProfilerId, Profiles, Spans};

use crate::support::*;

pub(crate) const PID: (&str, Any<'_>) = ("process.pid", Any::Int(7));
pub(crate) const HOST: (&str, Any<'_>) = ("host.name", Any::Str("web"));

/// The profiles of a process from a profiler with this scope, between these seconds.
pub(crate) fn observed(
    resource: &[(&str, Any<'_>)],
    scope: &str,
    kind: &str,
    seconds: std::ops::RangeInclusive<u64>,
) -> Profiles {
    let times: Vec<u64> = (seconds.start() * 20..=seconds.end() * 20).map(|at| at * 50).collect();
    seen(resource, scope, kind, &[(7, &times, 0)])
}

fn profiler(out: &profbridge_engine::component::Outbox) -> Option<ProfilerId> {
    let [(1, link)] = &profiler_links(out)[..] else { panic!("{:?}", out.telemetry) };
    link.as_ref().map(|link| link.profiler_id)
}

fn asked(from: u64, to: u64) -> Spans {
    spans(&traced(7), vec![span(1, from * S, to * S, &[])])
}

/// Guarantees: of two profilers of one process a span gets the one that observes waiting threads, whichever arrived
/// first, and this is counted; the span waits for this profiler if it was active recently, but not if it is gone.
#[test]
fn wall_comes_first() {
    let wall = || observed(&[HOST, PID, ("process.creation.time", Any::Str("2026"))], "own", "wall", 0..=10);
    let cpu = |seconds| observed(&[HOST, PID, ("container.id", Any::Str("c"))], "other", "cpu", seconds);
    for wall_first in [false, true] {
        let mut processor = link_spans("{}");
        let mut both = vec![cpu(0..=10), wall()];
        if wall_first {
            both.reverse();
        }
        both.into_iter().for_each(|batch| drop(process(&mut processor, batch, at(11 * S))));
        let out = process(&mut processor, asked(1, 2), at(11 * S));
        assert_eq!(profiler(&out), Some(profiler_of(&wall(), T)));
        assert_eq!(note(&out, "spans_linked_with_one_of_several_profilers"), 1);
    }

    let mut processor = link_spans("{}");
    process(&mut processor, wall(), at(11 * S));
    process(&mut processor, cpu(0..=40), at(11 * S));
    assert!(process(&mut processor, asked(9, 12), at(12 * S)).telemetry.is_empty(), "wall may come yet");
    let out = advance(&mut processor, at(27 * S));
    assert_eq!(profiler(&out), Some(profiler_of(&wall(), T)), "what was observed of its time has to do");
    let out = process(&mut processor, asked(35, 36), at(40 * S));
    assert_eq!(profiler(&out), Some(profiler_of(&cpu(0..=1), T)));
    assert_eq!(note(&out, "spans_linked_with_one_of_several_profilers"), 0);
}

/// Guarantees: two processes that one profiler distinguishes, or that profilers describe with contradicting attributes,
/// are not merged.
#[test]
fn processes_are_not_profilers() {
    let pods = ["a", "b"].map(|pod| ("k8s.pod.uid", Any::Str(pod)));
    for (one, other) in [
        // One profiler that knows two processes.
        (observed(&[HOST, PID, pods[0]], "own", "wall", 0..=10), observed(&[HOST, PID], "own", "wall", 0..=10)),
        // Two profilers, each of a different pod.
        (
            observed(&[HOST, PID, pods[0]], "own", "wall", 0..=10),
            observed(&[HOST, PID, pods[1]], "other", "cpu", 0..=10),
        ),
    ] {
        let mut processor = link_spans("{}");
        process(&mut processor, one, at(11 * S));
        process(&mut processor, other, at(11 * S));
        let out = process(&mut processor, asked(1, 2), at(11 * S));
        assert_eq!((profiler(&out), note(&out, "spans_unlinked_ambiguous")), (None, 1));
    }
}
