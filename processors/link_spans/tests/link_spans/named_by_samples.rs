//! Spans named by samples.

use opentelemetry_proto::tonic::trace::v1::Span;
use profbridge_engine::component::{Outbox, Processor as _};
use profbridge_model::{Builder, ProfilerId, Profiles};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::samples_brute_force::observations;
use crate::support::*;

/// The profiler and thread in a span.
type ProfiledThread = (ProfilerId, Option<String>);

/// The profiler and thread in each exported span, by id.
fn left(out: &Outbox) -> Vec<(u8, Option<ProfiledThread>)> {
    let named =
        |link: profbridge_model::spans::ProfilerLink| (link.profiler_id, link.thread_id.as_deref().map(str::to_owned));
    profiler_links(out).into_iter().map(|(id, link)| (id, link.map(named))).collect()
}

/// The thread, millisecond and span of each observation exported within 20 s, sorted.
fn sampled(processor: &mut profbridge_processor_link_spans::LinkSpans) -> Vec<(i64, u64, u8)> {
    let all = observations(&advance(processor, at(20 * S)));
    let mut all: Vec<_> = all.into_iter().map(|(_, thread, time, _, span)| (thread, time / MS, span)).collect();
    all.sort_unstable();
    all
}

/// Guarantees: a span named by samples gets their process and thread, whatever its own attributes, even without any or
/// with those of another process; the notes distinguish the kinds of profilers. It does not matter whether samples or
/// span arrive first.
#[test]
fn samples_say_it() {
    let says: [&[(&str, Value)]; 3] =
        [&[], &[("host.name", text("db")), ("process.pid", IntValue(9))], &[("service.name", text("shop"))]];
    for (scope, counted) in [(SAMPLER, "spans_linked_by_live_context"), (OTHER_PROFILER, "spans_linked_by_sample_link")]
    {
        for resource in says {
            for spans_first in [false, true] {
                let mut processor = link_spans("{}");
                let batch = seen(&web(7), scope, "wall", &[(12, &[100, 150], 1), (13, &[100, 300], 2)]);
                // With a sample that names its span, so that spans wait for samples.
                process(&mut processor, seen(&web(8), scope, "wall", &[(1, &[0], 99)]), at(S));
                let asked = spans(resource, vec![span(1, 90 * MS, 160 * MS, &native(13))]);
                let out = if spans_first {
                    assert!(process(&mut processor, asked, at(S)).telemetry.is_empty(), "{resource:?}");
                    process(&mut processor, batch.clone(), at(S));
                    advance(&mut processor, at(2 * S))
                } else {
                    process(&mut processor, batch.clone(), at(S));
                    process(&mut processor, asked, at(S))
                };
                let expected = (profiler_of(&batch, T), Some("12".to_owned()));
                assert_eq!(left(&out), [(1, Some(expected))], "{resource:?}");
                assert_eq!(note(&out, counted), 1, "{:?}", out.notes);
            }
        }
    }
}

/// Guarantees: a profiler that observes waiting threads precedes others, samples with a thread precede those without,
/// and then the first thread on which the span was seen; samples without a thread determine the profiler, and the
/// span's attributes the thread.
#[test]
fn which_of_several() {
    let [host, pid] = web(7);
    let wall = || seen(&[host, ("host.id", Any::Str("h")), pid], SAMPLER, "wall", &[(12, &[150], 1)]);
    let cpu = || {
        seen(
            &web(7),
            OTHER_PROFILER,
            "cpu",
            &[(13, &[100], 1), (14, &[90], 1), (0, &[80], 1), (0, &[80], 2), (15, &[80], 0)],
        )
    };
    for wall_first in [false, true] {
        let mut processor = link_spans("{span_wait: 0s}");
        let mut both = vec![cpu(), wall()];
        if wall_first {
            both.reverse();
        }
        both.into_iter().for_each(|batch| drop(process(&mut processor, batch, at(S))));
        let out = process(&mut processor, spans(&[], vec![span(1, 0, S, &[])]), at(S));
        assert_eq!(left(&out), [(1, Some((profiler_of(&wall(), T), Some("12".to_owned()))))]);
    }
    let mut processor = link_spans("{span_wait: 0s}");
    process(&mut processor, cpu(), at(S));
    let asked = vec![span(1, 0, S, &[]), span(2, 0, S, &[]), span(2, 0, S, &native(15))];
    let profiler = profiler_of(&cpu(), T);
    let expected = [Some("14"), None, Some("15")].map(|thread| Some((profiler, thread.map(str::to_owned))));
    let out = process(&mut processor, spans(&[], asked), at(S));
    assert_eq!(left(&out).into_iter().map(|of| of.1).collect::<Vec<_>>(), expected);
}

/// Guarantees: a span named by samples waits until these cover its time. Its own attributes do not decide meanwhile,
/// though profiles for them reach its end: neither another profiler of its process nor the process in its attributes.
#[test]
fn named_and_not_settled() {
    for other in [7, 1] {
        let mut processor = link_spans("{}");
        let named = seen(&web(7), OTHER_PROFILER, "cpu", &[(12, &[100, 150], 1)]);
        process(&mut processor, named.clone(), at(S));
        let resource = [("host.name", Any::Str("web")), ("host.id", Any::Str("h")), ("process.pid", Any::Int(other))];
        process(&mut processor, seen(&resource, SAMPLER, "wall", &[(30, &[0, 900, 1800, 2700], 0)]), at(3 * S));
        let asked = spans(&traced(other), vec![span(1, 90 * MS, S, &[]), span(2, 90 * MS, S, &[])]);
        assert!(process(&mut processor, asked, at(3 * S)).telemetry.is_empty(), "{other}");
        process(&mut processor, seen(&web(7), OTHER_PROFILER, "cpu", &[(12, &[1100], 0)]), at(4 * S));
        let out = advance(&mut processor, at(6 * S));
        assert_eq!(left(&out)[0], (1, Some((profiler_of(&named, T), Some("12".to_owned())))), "{other}");
        assert_eq!(note(&out, "spans_linked_by_sample_link"), 1);
    }
}

/// Guarantees: a span with several possible processes waits for samples that name it, or another span of its trace, as
/// long as such samples may arrive, and at most for the span wait.
#[test]
fn samples_tell_several_apart() {
    let both = |processor: &mut _, span: u8| {
        let pods = ["a", "b"].map(|pod| ("k8s.pod.uid", Any::Str(pod)));
        let [one, other] = pods.map(|pod| [web(7)[0], web(7)[1], pod]);
        process(processor, seen(&one, SAMPLER, "wall", &[(12, &[0, 900, 1800, 2700], span)]), at(3 * S));
        process(processor, seen(&other, SAMPLER, "wall", &[(13, &[0, 900, 1800, 2700], 0)]), at(3 * S));
        profiler_of(&seen(&one, SAMPLER, "wall", &[]), T)
    };
    let asked = || spans(&traced(7), vec![span(1, 0, S, &[]), span(2, 0, S, &[])]);
    let mut processor = link_spans("{}");
    both(&mut processor, 0);
    let out = process(&mut processor, asked(), at(3 * S));
    assert_eq!(note(&out, "spans_unlinked_ambiguous"), 2, "no sample names spans");

    let mut processor = link_spans("{}");
    both(&mut processor, 99);
    assert!(process(&mut processor, asked(), at(3 * S)).telemetry.is_empty(), "samples may name it");
    let profiler = both(&mut processor, 1);
    let out = advance(&mut processor, at(4 * S));
    assert_eq!(left(&out), [(1, Some((profiler, Some("12".to_owned())))), (2, Some((profiler, None)))]);
    assert_eq!(note(&out, "spans_linked_with_the_process_of_their_trace"), 1);

    assert!(process(&mut processor, asked(), at(4 * S)).telemetry.len() == 1, "it is known");
    let other = Span { trace_id: vec![2; 16], ..span(3, 0, S, &[]) };
    assert!(process(&mut processor, spans(&traced(7), vec![other]), at(4 * S)).telemetry.is_empty());
    let out = advance(&mut processor, at(19 * S));
    assert_eq!((left(&out), note(&out, "spans_unlinked_ambiguous")), (vec![(3, None)], 1));
}

/// Guarantees: if samples name one span, all spans of its batch, resource and trace without a process of their own get
/// that process, on the thread that they name; not if samples name several processes, nor for another trace or
/// resource.
#[test]
fn the_rest_of_the_trace() {
    let mut processor = link_spans("{}");
    let batch = seen(&web(7), SAMPLER, "wall", &[(12, &[100, 3000], 3), (13, &[100, 3000], 0)]);
    process(&mut processor, batch.clone(), at(S));
    let of_other_trace = Span { trace_id: vec![2; 16], ..span(4, 0, S, &[]) };
    let asked = vec![span(1, 0, S, &[]), span(2, 0, S, &native(13)), span(3, 0, S, &[]), of_other_trace];
    let mut out = process(&mut processor, spans(&[("service.name", text("shop"))], asked), at(S));
    out.telemetry.extend(process(&mut processor, spans(&[], vec![span(5, 0, S, &[])]), at(S)).telemetry);
    let last = advance(&mut processor, at(30 * S));
    assert_eq!(note(&last, "spans_linked_with_the_process_of_their_trace"), 0, "what is known is not waited for");
    let noted = |name: &str| note(&last, name) + note(&out, name);
    assert_eq!(noted("spans_unlinked_unnamed_process"), 2);
    out.telemetry.extend(last.telemetry.iter().cloned());
    let profiler = profiler_of(&batch, T);
    let of = |thread: Option<&str>| Some((profiler, thread.map(str::to_owned)));
    let mut all = left(&out);
    all.sort_by_key(|of| of.0);
    assert_eq!(all, [(1, of(None)), (2, of(Some("13"))), (3, of(Some("12"))), (4, None), (5, None)]);

    let mut processor = link_spans("{span_wait: 0s}");
    process(&mut processor, seen(&web(7), SAMPLER, "wall", &[(12, &[100], 1)]), at(S));
    process(&mut processor, seen(&web(8), SAMPLER, "wall", &[(12, &[100], 2)]), at(S));
    let asked = vec![span(1, 0, S, &[]), span(2, 0, S, &[]), span(3, 0, S, &[])];
    let out = process(&mut processor, spans(&[], asked), at(S));
    assert_eq!(left(&out).iter().map(|(_, link)| link.is_some()).collect::<Vec<_>>(), [true, true, false]);
}

/// Guarantees: the process that samples name for a trace is not used for a span from before its first observation, nor
/// for one with attributes of another process.
#[test]
fn not_the_rest_of_the_trace() {
    let other: &[(&str, Value)] = &traced(9);
    let shop: &[(&str, Value)] = &[("service.name", text("shop"))];
    for (resource, from, expected) in [(shop, 0, false), (shop, 5 * S, true), (other, 5 * S, false)] {
        let mut processor = link_spans("{}");
        process(&mut processor, seen(&web(7), SAMPLER, "wall", &[(12, &[5000, 5900, 6800, 7700], 1)]), at(8 * S));
        let asked = vec![span(1, 5 * S, 6 * S, &[]), span(2, from, from + S, &[])];
        let out = process_and_wait(&mut processor, spans(resource, asked), at(8 * S), at(60 * S));
        let linked: Vec<_> = left(&out).iter().map(|(_, link)| link.is_some()).collect();
        assert_eq!(linked, [true, expected], "{resource:?} {from}");
    }
}

/// Guarantees: samples of a process are not linked with a span that other samples place in a different process, though
/// its attributes name this one, as after a fork; samples of another profiler of that other process are.
#[test]
fn samples_of_another_process() {
    let [host, pid] = web(100);
    let with_id = [host, ("host.id", Any::Str("h")), pid];
    for (own, expected) in [
        (web(101).to_vec(), [(12, 100, 1), (12, 120, 1), (13, 110, 0)]),
        (with_id.to_vec(), [(12, 100, 1), (12, 120, 1), (13, 110, 1)]),
    ] {
        let mut processor = link_spans("{profile_wait: 8s}");
        process(&mut processor, seen(&own, SAMPLER, "wall", &[(12, &[100], 1), (12, &[120], 0)]), at(S));
        process(&mut processor, seen(&web(100), OTHER_PROFILER, "cpu", &[(13, &[110], 0)]), at(S));
        process(&mut processor, spans(&traced(100), vec![span(1, 90 * MS, 200 * MS, &native(13))]), at(S));
        assert_eq!(sampled(&mut processor), expected);
    }
}

/// Guarantees: some time after samples last named spans, spans without a process are no longer waited for, but are
/// linked at once if samples named them; after minutes these are forgotten.
#[test]
fn samples_name_spans_no_more() {
    let mut processor = link_spans("{}");
    process(&mut processor, seen(&web(7), SAMPLER, "wall", &[(12, &[100, 1000], 1)]), at(S));
    let asked = |id: u8| spans(&[], vec![Span { trace_id: vec![id; 16], ..span(id, 0, S, &[]) }]);
    assert!(process(&mut processor, asked(2), at(61 * S)).telemetry.is_empty());
    assert_eq!(left(&advance(&mut processor, at(80 * S))), [(2, None)]);
    let out = process(&mut processor, asked(2), at(80 * S));
    assert_eq!((left(&out), note(&out, "spans_unlinked_unnamed_process")), (vec![(2, None)], 1));
    for (second, is_known) in [(80, true), (500, false), (900, false)] {
        assert_eq!(left(&process(&mut processor, asked(1), at(second * S)))[0].1.is_some(), is_known, "{second}");
    }
}

/// Guarantees: the processes found for traces of waiting spans count as held memory.
#[test]
fn traces_are_counted() {
    let held = |named: bool| {
        let mut builder = Builder::new();
        builder.resource(&web(7));
        builder.on_cpu(20);
        let attributes = builder.attributes(&[("thread.id", 12.into())]);
        for trace in 1..=200u8 {
            let link = builder.link([trace; 16], if named { [1; 8] } else { [2; 8] });
            let frame = builder.frame("work", "main.rs", trace.into());
            let stack = builder.stack(&[frame]);
            builder.sample(stack, attributes, link, &[T + MS], &[]);
        }
        let mut processor = link_spans("{}");
        process(&mut processor, builder.finish().unwrap(), at(S));
        let asked = (1..=200).map(|trace| Span { trace_id: vec![trace; 16], ..span(1, 0, S, &[]) }).collect();
        assert!(process(&mut processor, spans(&[], asked), at(S)).telemetry.is_empty());
        processor.held().bytes
    };
    assert!(held(true) - held(false) > 200 * 36, "{} {}", held(true), held(false));
}

/// Guarantees: while no sample names a span, spans without a process do not wait; an indistinguishable process is found
/// by its samples alone.
#[test]
fn what_names_nothing() {
    let mut processor = link_spans("{}");
    process(&mut processor, seen(&web(7), SAMPLER, "wall", &[(12, &[100], 0)]), at(S));
    let asked = || spans(&[], vec![span(1, 0, S, &[])]);
    let out = process(&mut processor, asked(), at(S));
    assert_eq!((left(&out), note(&out, "spans_unlinked_unnamed_process")), (vec![(1, None)], 1));
    let weak = seen(&[("service.name", Any::Str("shop"))], OTHER_PROFILER, "wall", &[(12, &[100], 1)]);
    process(&mut processor, weak.clone(), at(S));
    let out = process(&mut processor, asked(), at(S));
    assert_eq!(left(&out), [(1, Some((profiler_of(&weak, T), Some("12".to_owned()))))]);
}

/// Guarantees: if samples name a span, the thread's other samples during it are linked too, though the span's own
/// thread attributes are missing or different, whichever arrived first.
#[test]
fn samples_beside_those() {
    for spans_first in [false, true] {
        let mut processor = link_spans("{profile_wait: 8s}");
        let batch = seen(&web(7), SAMPLER, "wall", &[(12, &[100], 1), (12, &[50, 120, 210], 0), (13, &[120], 0)]);
        let asked = spans(&traced(7), vec![span(1, 90 * MS, 200 * MS, &native(13))]);
        let mut both: [profbridge_model::Telemetry; 2] = [batch.into(), asked.into()];
        if spans_first {
            both.reverse();
        }
        both.into_iter().for_each(|telemetry| drop(process(&mut processor, telemetry, at(S))));
        let expected = [(12, 50, 0), (12, 100, 1), (12, 120, 1), (12, 210, 0), (13, 120, 0)];
        assert_eq!(sampled(&mut processor), expected);
    }
}

/// The sampler's profiles of a process whose samples name this many spans, from a number on.
fn naming(pid: i64, first: u64, count: u64) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&web(pid));
    builder.on_cpu(20);
    let attributes = builder.attributes(&[("thread.id", 12.into())]);
    for number in 0..count {
        let link = builder.link([1; 16], (first + number + 1).to_be_bytes());
        let frame = builder.frame("work", "main.rs", number as i64);
        let stack = builder.stack(&[frame]);
        builder.sample(stack, attributes, link, &[T + MS], &[]);
    }
    builder.finish().unwrap()
}

/// Guarantees: when memory is short, the spans that samples named first are forgotten and counted. No process is
/// forgotten because of them, neither the one with so many named spans nor an idle one. The latest named spans stay
/// known.
#[test]
fn named_spans_are_forgotten_early() {
    for max in [16u64, 64, 200] {
        let mut processor = link_spans(&format!("{{span_wait: 0s, max_index_bytes: {max}KiB}}"));
        process(&mut processor, seen(&web(8), SAMPLER, "wall", &[(12, &[100], 0)]), at(S));
        let (batches, count) = (max * 4, 100);
        let mut out = Outbox::default();
        for many in 0..batches {
            let sent = process(&mut processor, naming(7, many * count, count), at(2 * S));
            sent.notes.into_iter().for_each(|(name, count)| out.note(name, count));
            assert!(processor.held().bytes <= max << 10, "{}", processor.held().bytes);
        }
        assert_eq!(note(&out, "profiled_processes_forgotten_early"), 0);
        let forgotten = note(&out, "named_spans_forgotten_early");
        assert!((1..batches * count).contains(&forgotten), "{forgotten}");
        let last = Span { span_id: (batches * count).to_be_bytes().to_vec(), ..span(1, 0, S, &[]) };
        let sent = process(&mut processor, spans(&[], vec![last]), at(2 * S));
        assert!(left(&sent)[0].1.is_some(), "the last one is known");
        let sent = process(&mut processor, spans(&traced(8), vec![span(1, 0, S, &[])]), at(2 * S));
        assert!(left(&sent)[0].1.is_some(), "the quiet process is known");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Guarantees: in whatever order and batches samples arrive, a span named by some gets the process and thread on
    /// which it was seen first, as found by trying all of them.
    #[test]
    fn as_by_trying_everything(samples in vec((1i64..4, 1i64..4, 0u64..3000, 0u8..6), 1..30), cuts in any::<u64>()) {
        let mut processor = link_spans("{span_wait: 0s}");
        let mut batches: Vec<Vec<(i64, i64, u64, u8)>> = vec![Vec::new()];
        for (at, sample) in samples.iter().enumerate() {
            if cuts >> (at % 64) & 1 == 1 {
                batches.push(Vec::new());
            }
            batches.last_mut().unwrap().push(*sample);
        }
        for batch in &batches {
            for pid in 1..4 {
                let of: Vec<_> = batch.iter().filter(|of| of.0 == pid).map(|of| (of.1, [of.2], of.3)).collect();
                let of: Vec<(i64, &[u64], u8)> = of.iter().map(|(thread, times, span)| (*thread, &times[..], *span)).collect();
                if !of.is_empty() {
                    process(&mut processor, seen(&web(pid), SAMPLER, "wall", &of), at(S));
                }
            }
        }
        for id in 1..6u8 {
            let first = samples.iter().filter(|of| of.3 == id).map(|of| of.2).min();
            let at_first: Vec<_> = samples.iter().filter(|of| of.3 == id && Some(of.2) == first).collect();
            let asked = Span { trace_id: vec![1; 16], ..span(id, 0, S, &[]) };
            let out = process(&mut processor, spans(&[], vec![asked]), at(S));
            let link = left(&out).remove(0).1;
            let expected: Vec<_> = at_first
                .iter()
                .map(|of| (profiler_of(&seen(&web(of.0), SAMPLER, "wall", &[]), T), Some(of.1.to_string())))
                .collect();
            match link {
                Some(link) => prop_assert!(expected.contains(&link), "{:?} {:?}", link, expected),
                None => prop_assert!(expected.is_empty()),
            }
        }
    }
}
