//! Several profilers of one process.

use profbridge_engine::component::{Outbox, Processor as _};
use profbridge_model::spans::ProfilerLink;
use profbridge_model::{Envelope, ProfilerId, Profiles, Spans, Telemetry};

use crate::pointers::{attribute, container, hex};
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

fn profiler(out: &Outbox) -> Option<ProfilerId> {
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

/// The ids of two runs of an SDK's own profiler.
const RUNS: [&str; 2] = ["0578d5bf287748468902cd43b5af2d7a", "59004354eeac43a5a8a680f1b1552894"];

/// The attributes of a span of Sentry's Node SDK, which names its segment, and the profiler on segments only.
fn of_node(segment: u8, run: Option<usize>) -> Vec<String> {
    let sdk = attribute("sentry.sdk.name", "sentry.javascript.node");
    let profiler = run.map(|run| attribute("sentry.profiler_id", RUNS[run]));
    [sdk, attribute("sentry.segment.id", &hex(segment))].into_iter().chain(profiler).collect()
}

/// A container of that SDK: each span with its id and its segment. `runs` are the profilers that segments name.
fn node(spans: &[(u8, u8)], runs: &[(u8, usize)]) -> Envelope {
    let run = |id: u8| runs.iter().find(|(segment, _)| *segment == id).map(|(_, run)| *run);
    let of = |(id, segment): &(u8, u8)| (*id, id == segment, of_node(*segment, run(*id)));
    container(&spans.iter().map(of).collect::<Vec<_>>(), 100, 200)
}

/// A profile of a run of that SDK's profiler, with the samples of a later time than the spans.
fn run_of_node(run: usize) -> Profiles {
    profiles(&[("sentry.profiler_id", Any::Str(RUNS[run]))], &[(0, "main", &ticks(500, 950))])
}

/// The position of a profiler in `RUNS`, and a thread.
type RunLink = Option<(Option<usize>, Option<String>)>;

/// What was written into each span.
fn runs(out: &Outbox) -> Vec<(u8, RunLink)> {
    let run = |of: ProfilerLink| {
        let run = RUNS.iter().position(|run| *run == of.profiler_id.to_string());
        let name = of.thread_name.map_or_else(String::new, |name| format!(" {name}"));
        (run, of.thread_id.map(|id| format!("{id}{name}")))
    };
    profiler_links(out).into_iter().map(|(id, link)| (id, link.map(run))).collect()
}

fn on_main(run: usize) -> RunLink {
    Some((Some(run), Some("0 main".to_owned())))
}

/// Guarantees: spans of Sentry's Node SDK, which names its profiler on segments only and no thread, get the profiler of
/// their segment and its thread: if several segments with profilers of their own are in one container, if the segment
/// comes in a later container, and if the profile comes last. Each is counted once.
/// rule: profiles-sdk#linking-profiler, profiles-sdk#linking-thread, transport#span-segments
#[test]
fn segments_name_the_profiler_of_their_children() {
    let mut processor = link_spans("{}");
    let out = process(&mut processor, node(&[(2, 1), (4, 3), (3, 3), (5, 3)], &[(3, 1)]), at(S));
    assert!(out.telemetry.is_empty(), "the segment of one, and the profile of the others are missing");
    let out = process(&mut processor, node(&[(1, 1), (6, 1)], &[(1, 0)]), at(2 * S));
    assert!(out.telemetry.is_empty());
    let mut out = process(&mut processor, run_of_node(1), at(3 * S));
    for next in [process(&mut processor, run_of_node(0), at(3 * S)), advance(&mut processor, at(4 * S))] {
        out.telemetry.extend(next.telemetry);
        next.notes.into_iter().for_each(|(name, count)| out.note(name, count));
    }
    let found = runs(&out);
    assert_eq!(found[..4], [(2, on_main(0)), (4, on_main(1)), (3, on_main(1)), (5, on_main(1))]);
    assert_eq!(found[4..], [(1, on_main(0)), (6, on_main(0))]);
    let notes = ["spans_linked_by_segment", "spans_with_profiler", "spans_given_the_thread_of_their_profiler"];
    assert_eq!((notes.map(|name| note(&out, name)), decided(&out)), ([4, 2, 2], 6));
    // By now all is known, and nothing waits.
    let out = process(&mut processor, node(&[(7, 1), (8, 3)], &[]), at(5 * S));
    assert_eq!(runs(&out), [(7, on_main(0)), (8, on_main(1))]);
}

/// Guarantees: what does not come in time is counted. Without a profile the thread is that of the main thread if so
/// configured, and else unknown; without its segment a span is not linked.
#[test]
fn what_does_not_come_is_not_invented() {
    let asked = || node(&[(2, 1), (1, 1), (4, 3)], &[(1, 0)]);
    let mut processor = link_spans("{}");
    let out = process_and_wait(&mut processor, asked(), at(S), at(17 * S));
    assert_eq!(runs(&out), [(2, Some((Some(0), None))), (1, None), (4, None)]);
    let notes = ["spans_linked_without_thread", "spans_with_profiler", "spans_without_their_segment"];
    assert_eq!((notes.map(|name| note(&out, name)), decided(&out)), ([1, 1, 1], 3));
    let mut processor = link_spans("{main_thread: true}");
    let out = process(&mut processor, node(&[(2, 1), (1, 1)], &[(1, 0)]), at(S));
    assert_eq!(runs(&out), [(2, on_main(0)), (1, on_main(0))]);
    // A profile of several threads does not tell which of them ran the span.
    let mut processor = link_spans("{}");
    let run = [("sentry.profiler_id", Any::Str(RUNS[0]))];
    process(&mut processor, profiles(&run, &[(0, "main", &ticks(0, 50)), (1, "other", &ticks(0, 50))]), at(S));
    let out = process_and_wait(&mut processor, asked(), at(S), at(17 * S));
    assert_eq!(runs(&out), [(2, Some((Some(0), None))), (1, None), (4, None)]);
}

/// Guarantees: if the built-in sampler also profiles the process, spans whose segment names a profiler of the SDK's get
/// that one, even if samples of the sampler name the span; others get the sampler's. The order of arrival does not
/// matter.
#[test]
fn the_sdk_and_the_sampler() {
    let sampled = || seen(&web(7), SAMPLER, "wall", &[(7, &[100, 150, 200, 250, 400], 2)]);
    for sampler_first in [false, true] {
        let mut processor = link_spans("{main_thread: true}");
        let mut both: Vec<Telemetry> = vec![run_of_node(0).into(), sampled().into()];
        if sampler_first {
            both.reverse();
        }
        both.into_iter().for_each(|batch| drop(process(&mut processor, batch, at(S))));
        let client = |spans: Envelope| from_client(spans.spans().next().unwrap().clone());
        let out = process(&mut processor, client(node(&[(2, 1), (1, 1), (4, 3), (3, 3)], &[(1, 0)])), at(2 * S));
        let sampler = Some((None, Some("7 worker".to_owned())));
        let expected = [(2, on_main(0)), (1, on_main(0)), (4, sampler.clone()), (3, sampler)];
        assert_eq!(runs(&out), expected, "sampler first: {sampler_first}");
    }
}

/// Guarantees: the thread of a span that says it as any type of JSON stays, if the type can name a thread; else the
/// thread is written as text.
/// rule: transport#span-attributes
#[test]
fn threads_of_every_type() {
    for (json, is_left) in [
        (r#""7""#, true),
        ("7", true),
        ("7.5", true),
        ("true", true),
        ("18446744073709551616", true),
        ("null", false),
        ("[7]", false),
        (r#"{"value":7}"#, false),
    ] {
        let mut processor = link_spans("{}");
        process(&mut processor, run_of_node(0), at(S));
        let thread = format!(r#""thread.id":{{"value":{json},"type":"string"}}"#);
        let attributes: Vec<String> = of_node(1, Some(0)).into_iter().chain([thread]).collect();
        let out = process(&mut processor, container(&[(1, true, attributes)], 100, 200), at(S));
        assert_eq!(runs(&out), [(1, if is_left { None } else { on_main(0) })], "{json}");
    }
}

/// Attack: a trace of many spans whose segment never comes.
/// Guarantees: the memory for spans that wait has a bound; all leave, and are counted.
/// rule: transport#span-many
#[test]
fn children_without_end() {
    let mut processor = link_spans("{max_bytes: 256KiB}");
    let child = node(&[(2, 1)], &[]).spans().next().unwrap().clone();
    let (mut left, mut without) = (0, 0);
    let mut count = |out: &Outbox| {
        left += profiler_links(out).len();
        without += note(out, "spans_without_their_segment");
    };
    for _ in 0..20 {
        let spans = child.rearranged(vec![child.spans()[0].clone(); 1000]);
        count(&process(&mut processor, spans, at(S)));
        assert!(processor.held().bytes < 1 << 20, "{}", processor.held().bytes);
    }
    count(&advance(&mut processor, at(30 * S)));
    assert_eq!((left, without), (20_000, 20_000));
}

/// Guarantees: the memory for segments has a bound, and what is forgotten early is counted.
/// rule: transport#span-many
#[test]
fn segments_are_forgotten() {
    let mut processor = link_spans("{max_index_bytes: 64KiB}");
    let mut forgotten = 0;
    for trace in 0..20_000u32 {
        let mut envelope = node(&[(1, 1)], &[]);
        let spans = envelope.views.pop().unwrap();
        let profbridge_model::Viewed::Spans(spans) = spans.what else { panic!("no spans") };
        let id = profbridge_model::TraceId::new(&(u128::from(trace) + 1).to_be_bytes()).unwrap();
        let moved = spans.spans().iter().cloned().map(|span| profbridge_model::Span { trace_id: id, ..span });
        let out = process(&mut processor, spans.rearranged(moved.collect()), at(S));
        forgotten += note(&out, "segments_forgotten_early");
        assert!(processor.held().bytes <= 128 << 10, "{}", processor.held().bytes);
    }
    assert!(forgotten > 10_000, "{forgotten}");
}
