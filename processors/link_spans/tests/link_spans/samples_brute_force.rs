//! Compares linked samples with a matcher that tries every span for every observation.

use opentelemetry_proto::tonic::trace::v1::Span;
use profbridge_engine::component::{Outbox, Processor as _};
use profbridge_model::{Builder, Profiles, Telemetry};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::*;

/// The properties of an observation: pid, thread, time in nanoseconds after [`T`], value, and the id of its span (0 for
/// none).
pub(crate) type LinkedObservation = (i64, i64, u64, i64, u8);

/// The link that some samples already have, and its span.
const HAD: u8 = 250;

/// A span: the process, the thread that it names (0 for none), its trace, its parent (0 for none), and its time in
/// milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct GeneratedSpan {
    pub(crate) id: u8,
    pub(crate) pid: i64,
    pub(crate) thread: i64,
    pub(crate) trace: u8,
    pub(crate) parent: u8,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// The host of a process: each has its own, because threads of several processes have the same id here.
fn host(pid: i64) -> &'static str {
    ["mail", "web", "db"][pid as usize % 3]
}

impl GeneratedSpan {
    pub(crate) fn request(&self) -> profbridge_model::Spans {
        let resource = [("host.name", text(host(self.pid))), ("process.pid", IntValue(self.pid))];
        let names = (self.thread != 0).then_some(("thread.native_id", IntValue(self.thread)));
        let parent_span_id = if self.parent == 0 { Vec::new() } else { vec![self.parent; 8] };
        let own = span(self.id, self.from * MS, self.to * MS, names.as_slice());
        spans(&resource, vec![Span { trace_id: vec![self.trace; 16], parent_span_id, ..own }])
    }
}

/// A sample: its process and thread, its times in milliseconds, whether it has values, and whether it already has a
/// link.
pub(crate) type GeneratedSample = (i64, i64, Vec<u64>, bool, bool);

/// A request with samples of one process; the values number all observations.
pub(crate) fn request(samples: &[GeneratedSample], next: &mut i64, seen: &mut Vec<LinkedObservation>) -> Profiles {
    let mut builder = Builder::new();
    for pid in 1..=3 {
        builder.resource(&on_host(host(pid), pid));
        for valued in [false, true] {
            builder.on_cpu(20);
            for (_, thread, times, _, had) in samples.iter().filter(|sample| sample.0 == pid && sample.3 == valued) {
                // A different stack for each, so that nothing is merged and order does not matter.
                let frame = builder.frame("work", "main.rs", *next);
                let stack = builder.stack(&[frame]);
                let attributes = builder.attributes(&[("thread.id", (*thread).into())]);
                let link = had.then(|| builder.link([HAD; 16], [HAD; 8])).flatten();
                let values: Vec<i64> = (*next..).take(times.len()).collect();
                let nanos: Vec<u64> = times.iter().map(|time| T + time * MS).collect();
                builder.sample(stack, attributes, link, &nanos, if valued { &values } else { &[] });
                for (time, value) in times.iter().zip(&values) {
                    let value = if valued { *value } else { 1 };
                    seen.push((pid, *thread, time * MS, value, if *had { HAD } else { 0 }));
                }
                *next += times.len() as i64;
            }
        }
    }
    builder.finish().unwrap()
}

/// All exported observations.
pub(crate) fn observations(out: &Outbox) -> Vec<LinkedObservation> {
    let number = |value: Option<&profbridge_model::Value>| match value {
        Some(profbridge_model::Value::Int(number)) => *number,
        _ => 0,
    };
    let mut all = Vec::new();
    let batches = out.telemetry.iter().filter_map(|telemetry| match telemetry {
        Telemetry::Profiles(profiles) => Some(vec![profiles]),
        Telemetry::Envelope(envelope) => Some(envelope.profiles().collect()),
        _ => None,
    });
    for batch in batches.flatten() {
        let dictionary = batch.dictionary();
        for resource in batch.resources() {
            let pid = number(batch.find(&resource.resource.attributes, "process.pid"));
            for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
                for sample in batch.samples(profile) {
                    let thread = number(dictionary.find(sample.attributes, "thread.id"));
                    let link = sample.link.map_or(0, |id| dictionary.link(id).span_id[0]);
                    let values = sample.values().chain(std::iter::repeat(1));
                    all.extend(
                        sample.timestamps().zip(values).map(|(time, value)| (pid, thread, time - T, value, link)),
                    );
                }
            }
        }
    }
    all
}

/// The span of an observation, found by trying all.
fn expected(&(pid, thread, time, _, had): &LinkedObservation, spans: &[&GeneratedSpan]) -> u8 {
    if had != 0 {
        return had;
    }
    let runs = |span: &GeneratedSpan| (span.from * MS..span.to * MS).contains(&time);
    let candidates: Vec<&&GeneratedSpan> =
        spans.iter().filter(|span| (span.pid, span.thread) == (pid, thread) && runs(span)).collect();
    let is_above = |above: &GeneratedSpan, span: &GeneratedSpan| {
        let mut at = Some(span);
        while let Some(span) = at {
            if span.id == above.id && span.trace == above.trace {
                return true;
            }
            at = spans.iter().find(|other| other.id == span.parent && other.trace == span.trace).copied();
        }
        false
    };
    let innermost = candidates.iter().find(|span| candidates.iter().all(|other| is_above(other, span)));
    innermost.map_or(0, |span| span.id)
}

/// Whether a thread ran spans of different traces at the same time, so that it is unknown which ran when.
fn takes_turns(pid: i64, thread: i64, spans: &[GeneratedSpan]) -> bool {
    let of: Vec<&GeneratedSpan> =
        spans.iter().filter(|span| (span.pid, span.thread) == (pid, thread) && span.from < span.to).collect();
    let overlap = |one: &GeneratedSpan, other: &GeneratedSpan| {
        one.trace != other.trace && one.from < other.to && other.from < one.to
    };
    of.iter().any(|one| of.iter().any(|other| overlap(one, other)))
}

/// An arrival: spans or samples.
#[derive(Debug, Clone)]
enum Came {
    Spans(GeneratedSpan),
    Samples(Vec<GeneratedSample>),
}

fn made() -> impl Strategy<Value = GeneratedSpan> {
    let times = (0u64..500).prop_flat_map(|from| (Just(from), from..520));
    (1i64..4, 0i64..4, 1u8..4, any::<prop::sample::Index>(), 0u8..4, times).prop_map(
        |(pid, thread, trace, parent, has_parent, (from, to))| GeneratedSpan {
            id: 0,
            pid,
            thread,
            trace,
            // Replaced once the spans before it are known.
            parent: if has_parent == 0 { 0 } else { 1 + parent.index(200) as u8 },
            from,
            to,
        },
    )
}

fn sampled() -> impl Strategy<Value = GeneratedSample> {
    (1i64..4, 1i64..4, vec(0u64..520, 1..12), any::<bool>(), prop::bool::weighted(0.1))
}

/// The arrivals in order. The parent of a span is an earlier one or one that never arrives; parents may arrive before
/// or after their children.
fn story() -> impl Strategy<Value = Vec<Came>> {
    // Requests of a short and of a long time range.
    let request = (vec(sampled(), 1..6), 0u64..500, 1u64..520).prop_map(|(mut samples, from, long)| {
        let times = samples.iter_mut().flat_map(|sample| &mut sample.2);
        times.for_each(|time| *time = from + *time % long);
        samples
    });
    let samples = vec(request, 1..5);
    (vec(made(), 0..24), samples, any::<u64>()).prop_map(|(mut made, samples, order)| {
        for at in 0..made.len() {
            made[at].id = at as u8 + 1;
            if made[at].parent != 0 {
                // An earlier one, or one that never arrives.
                let parent = made[at].parent as usize % (at + 1);
                made[at].parent = if parent == at { 200 } else { made[parent].id };
                if parent != at && order >> (at % 64) & 1 == 1 {
                    (made[at].trace, made[at].pid) = (made[parent].trace, made[parent].pid);
                }
            }
        }
        let mut all: Vec<Came> = made.into_iter().map(Came::Spans).collect();
        all.extend(samples.into_iter().map(Came::Samples));
        // A pseudo-random order that is the same in every run.
        let mut state = order | 1;
        for at in (1..all.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            all.swap(at, (state >> 33) as usize % (at + 1));
        }
        all
    })
}

fn count_of(out: &[Outbox], name: &str) -> u64 {
    out.iter().map(|out| note(out, name)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Guarantees: each observation gets the span found by trying all spans: of those that arrived before it if
    /// profiles do not wait, and of those that arrived by the end if they do, across several windows; on threads that
    /// run spans in turns, that span or none. Nothing is lost or invented, values stay with their times, and the counts
    /// add up.
    /// rule: otep-0239#links
    #[test]
    fn as_by_trying_everything(story in story(), waits: bool, step in 0u64..8) {
        let mut processor = link_spans(if waits { "{profile_wait: 1m}" } else { "{}" });
        let (mut spans, mut seen, mut next) = (Vec::<GeneratedSpan>::new(), Vec::new(), 1);
        let mut expected_all = Vec::new();
        let mut out = Vec::new();
        for (at_step, came) in story.iter().enumerate() {
            // A window takes requests for 15 s, and up to 28 steps take up to 49 s.
            let now = at(S + at_step as u64 * step * S / 4);
            match came {
                Came::Spans(made) => {
                    out.push(process(&mut processor, made.request(), now));
                    spans.push(made.clone());
                }
                Came::Samples(samples) => {
                    let before = seen.len();
                    let request = request(samples, &mut next, &mut seen);
                    out.push(process(&mut processor, request, now));
                    let known: Vec<&GeneratedSpan> = spans.iter().collect();
                    let of_now = seen[before..].iter().map(|of| (of.0, of.1, of.2, of.3, expected(of, &known)));
                    expected_all.extend(of_now);
                }
            }
        }
        if waits {
            prop_assert!(out.iter().all(|out| observations(out).is_empty()));
            prop_assert_eq!(processor.held().quantities.observations, seen.len() as u64);
        }
        out.push(flush(&mut processor, at(55 * S)));
        if waits {
            let known: Vec<&GeneratedSpan> = spans.iter().collect();
            expected_all = seen.iter().map(|of| (of.0, of.1, of.2, of.3, expected(of, &known))).collect();
        }
        let mut linked: Vec<LinkedObservation> = out.iter().flat_map(observations).collect();
        // On a thread that runs spans in turns, a link must equal the result of trying all, or be missing.
        for of in linked.iter().filter(|of| of.4 != 0) {
            prop_assert!(expected_all.contains(of), "{:?}", of);
        }
        let without_turns = |all: &[LinkedObservation]| -> Vec<LinkedObservation> {
            let known = |of: &&LinkedObservation| of.4 == HAD || !takes_turns(of.0, of.1, &spans);
            let mut all: Vec<LinkedObservation> = all.iter().filter(known).copied().collect();
            all.sort_unstable();
            all
        };
        prop_assert_eq!(without_turns(&linked), without_turns(&expected_all));
        prop_assert_eq!(linked.len(), expected_all.len());
        linked.sort_unstable();
        let count = |name: &str| count_of(&out, name);
        let had = linked.iter().filter(|of| of.4 == HAD).count() as u64;
        let with = linked.iter().filter(|of| of.4 != 0).count() as u64 - had;
        prop_assert_eq!((count("observations_linked"), count("observations_with_link")), (with, had));
        let without = count("observations_unlinked_no_span") + count("observations_unlinked_ambiguous");
        prop_assert_eq!(without, linked.len() as u64 - with - had);
        prop_assert_eq!(processor.held().quantities, profbridge_model::Quantities::NONE);
    }
}
