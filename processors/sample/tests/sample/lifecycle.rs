use opentelemetry_proto::tonic::trace::v1::Span;
use profbridge_engine::component::{Outbox, Processor};
use profbridge_identity::Rules;
use profbridge_model::builder::Any;
use profbridge_model::{Builder, Profile, Profiles, Reason};
use profbridge_processor_sample::{DECIDED_EARLY, SampleProcessor};

use crate::support::{S, T, advance, at, batch, bool, flush, int, noted, process, profiles, sample, span, text};

const TRACE: &str = "profile_lifecycle: trace\nprofile_wait: 60s\n";

/// A profile of a process with one sample per second for a minute.
fn minute(attributes: &[(&str, Any<'_>)]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(attributes);
    builder.on_cpu(1);
    let frame = builder.frame("f", "f.c", 1);
    let stack = builder.stack(&[frame]);
    let times: Vec<u64> = (0..60).map(|second| T + second * S).collect();
    builder.sample(stack, None, None, &times, &[]);
    builder.finish().unwrap()
}

fn process_7() -> Vec<(&'static str, Any<'static>)> {
    vec![("container.id", "c1".into()), ("process.pid", 7.into()), ("process.creation.time", "2026".into())]
}

/// A root span of process 7 over these seconds.
fn root(id: u64, seconds: std::ops::Range<u64>) -> Span {
    let (start_time_unix_nano, end_time_unix_nano) = (T + seconds.start * S, T + seconds.end * S);
    Span { start_time_unix_nano, end_time_unix_nano, ..span(id, id, 0) }
}

fn spans(spans: Vec<Span>) -> profbridge_model::Spans {
    batch(spans, vec![text("container.id", "c1"), int("process.pid", 7)])
}

/// The seconds of the sent observations.
fn seconds(out: &Outbox) -> Vec<u64> {
    let batches = profiles(out);
    let samples = batches.iter().flat_map(|batch| batch.profiles().flat_map(|profile| batch.samples(profile)));
    samples.flat_map(|sample| sample.timestamps().map(|time| (time - T) / S).collect::<Vec<_>>()).collect()
}

/// The kept seconds of a minute of process 7, at the deadline.
fn left(sample: &mut SampleProcessor, now: u64) -> (Vec<u64>, u64) {
    let mut out = advance(sample, at(now));
    out.telemetry.retain(|telemetry| !telemetry.quantities().is_observations_only() || telemetry.observations() > 0);
    (seconds(&out), out.losses.get(Reason::NoSampledSpan).observations)
}

/// Guarantees: observations are kept while a sampled root span was open, until the last of several overlapping ones
/// ended, whether spans or profiles arrive first. Child spans do not count.
/// rule: profiles-sdk#lifecycle, profiles-sdk#lifecycle-trace
#[test]
fn overlapping_roots() {
    for spans_first in [true, false] {
        let mut sample = sample(TRACE);
        let child = Span { parent_span_id: vec![1; 8], ..root(9, 50..55) };
        let roots = || spans(vec![root(1, 5..10), root(2, 8..12), root(3, 40..41), child.clone()]);
        if spans_first {
            process(&mut sample, roots(), at(0));
        }
        assert!(process(&mut sample, minute(&process_7()), at(S)).telemetry.is_empty());
        assert_eq!(sample.held().quantities.observations, 60);
        if !spans_first {
            process(&mut sample, roots(), at(2 * S));
        }
        assert!(advance(&mut sample, at(61 * S - 1)).telemetry.is_empty());
        assert_eq!(left(&mut sample, 61 * S), ((5..=12).chain(40..=41).collect(), 50));
    }
}

/// Guarantees: a root span that is not sampled keeps no profiles, whether because of the rate, a rule or its own
/// decision. Each root span is evaluated independently.
/// rule: profiles-sdk#lifecycle-trace
#[test]
fn only_sampled_roots_count() {
    let mut sample = sample(&format!("{TRACE}traces_rules: [{{name: drop, sampled: false}}]"));
    let dropped = Span { name: "drop".to_owned(), ..root(1, 0..20) };
    let refused = Span { attributes: vec![bool("sentry.sampled", false)], ..root(2, 20..30) };
    process(&mut sample, spans(vec![dropped, refused, root(3, 30..32)]), at(0));
    process(&mut sample, minute(&process_7()), at(0));
    assert_eq!(left(&mut sample, 60 * S), (vec![30, 31, 32], 57));
}

/// Guarantees: spans of another process, and of an unidentified process, keep no profiles.
/// rule: profiles-sdk#lifecycle-trace
#[test]
fn only_the_same_process_counts() {
    let mut sample = sample(TRACE);
    process(&mut sample, spans(vec![root(1, 0..60)]), at(0));
    let of = |pid: i64| minute(&[("container.id", "c1".into()), ("process.pid", pid.into())]);
    process(&mut sample, of(8), at(0));
    process(&mut sample, minute(&[("service.name", "shop".into())]), at(0));
    assert_eq!(left(&mut sample, 60 * S), (vec![], 120));
}

/// Guarantees: a root span that names its profiler keeps the profiles of that profiler, and so does one whose process
/// has that profiler id.
#[test]
fn spans_find_their_profiler() {
    let named = "00112233445546778899aabbccddeeff";
    let mut sample_named = sample(TRACE);
    let with = |id: &str| Span { attributes: vec![text("sentry.profiler_id", id)], ..root(1, 10..11) };
    process(&mut sample_named, batch(vec![with(named)], vec![]), at(0));
    process(&mut sample_named, minute(&[("sentry.profiler_id", named.into())]), at(0));
    assert_eq!(left(&mut sample_named, 60 * S).0, [10, 11]);

    let profiled = minute(&process_7());
    let rules = Rules::default();
    let attributes = &profiled.resources()[0].resource.attributes;
    let identity = rules.identify(profiled.dictionary(), attributes.iter(), None);
    let id = rules.profiler_id(identity, rules.cell(identity, T)).to_string();
    let mut sample = sample(TRACE);
    process(&mut sample, batch(vec![with(&id)], vec![]), at(0));
    process(&mut sample, profiled, at(0));
    assert_eq!(left(&mut sample, 60 * S).0, [10, 11]);
}

/// Guarantees: a profile without timestamps is kept as a whole if a sampled root span was open in its range.
#[test]
fn profiles_without_times() {
    for (from, kept) in [(5, true), (25, false)] {
        let mut sample = sample(TRACE);
        let mut builder = Builder::new();
        builder.resource(&process_7());
        let sample_type = builder.value_type("cpu", "nanoseconds");
        let (time_unix_nano, duration_nano) = (T + from * S, 10 * S);
        builder.profile(Profile { sample_type, time_unix_nano, duration_nano, ..Profile::default() });
        builder.sample(None, None, None, &[], &[7]);
        process(&mut sample, builder.finish().unwrap(), at(0));
        process(&mut sample, spans(vec![root(1, 12..20)]), at(0));
        let out = advance(&mut sample, at(60 * S));
        assert_eq!(profiles(&out).len(), usize::from(kept));
        assert_eq!(out.losses.get(Reason::NoSampledSpan).observations, u64::from(!kept));
    }
}

/// Guarantees: the session's rate takes precedence: no profile of an unsampled session is kept, whatever its spans.
/// rule: profiles-sdk#lifecycle-trace
#[test]
fn sessions_come_first() {
    let mut sample = sample(&format!("{TRACE}profile_session_sample_rate: 0"));
    process(&mut sample, spans(vec![root(1, 0..60)]), at(0));
    let out = process(&mut sample, minute(&process_7()), at(0));
    assert_eq!(out.losses.get(Reason::SampleRate).observations, 60);
    assert_eq!(sample.held().quantities.observations, 0);
}

/// Guarantees: the lifecycle `manual` keeps everything at once, whatever the spans.
/// rule: profiles-sdk#lifecycle
#[test]
fn manual_keeps_all() {
    let mut sample = sample("profile_lifecycle: manual\ntraces_sample_rate: 0");
    assert_eq!(seconds(&process(&mut sample, minute(&process_7()), at(0))).len(), 60);
}

/// Guarantees: the size and the waiting time of waiting profiles are limited. Beyond the limit, the oldest batch is
/// released according to the spans known so far, and counted. At shutdown, all batches are released.
#[test]
fn bounds() {
    let mut sample = sample(&format!("{TRACE}max_bytes: 16KiB"));
    process(&mut sample, spans(vec![root(1, 0..60)]), at(0));
    let size = minute(&process_7()).size_bytes();
    let (mut early, mut out_of_it) = (0, 0);
    for _ in 0..100 {
        let out = process(&mut sample, minute(&process_7()), at(S));
        early += noted(&out, DECIDED_EARLY);
        out_of_it += seconds(&out).len() as u64;
    }
    let held = sample.held().quantities.observations;
    assert!(held * size <= 60 * (16 << 10) && early == 100 - held / 60, "{held} {early}");
    assert_eq!(out_of_it + held, 6000);
    assert_eq!(seconds(&flush(&mut sample, at(2 * S))).len() as u64, held);
    assert_eq!(sample.held().quantities.observations, 0);
}

/// Guarantees: the times of root spans are stored as long as profiles wait, and no longer.
#[test]
fn roots_are_forgotten() {
    let mut sample = sample(TRACE);
    process(&mut sample, spans(vec![root(1, 0..60)]), at(0));
    // A later batch triggers the check.
    process(&mut sample, spans(vec![root(2, 70..71)]), at(90 * S));
    process(&mut sample, minute(&process_7()), at(91 * S));
    assert_eq!(left(&mut sample, 200 * S), (vec![], 60));
}
