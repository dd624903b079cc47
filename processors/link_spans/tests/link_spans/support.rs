//! Profiles and spans of fictitious processes, and the results for the spans.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use profbridge_engine::component::{Now, Outbox, Processor as _, flush_all, process_all};
use profbridge_engine::config::Section;
use profbridge_identity::{Processes, RequestId, Rules};
use profbridge_model::{Builder, Profile, ProfilerId, Profiles, Spans, StackId, Telemetry};
use profbridge_processor_link_spans::{Config, LinkSpans};
use profbridge_wire::otlp::Limits;
use profbridge_wire::otlp::traces::decode;
use prost::Message as _;

/// A second and a millisecond in nanoseconds.
pub(crate) const S: u64 = 1_000_000_000;
pub(crate) const MS: u64 = 1_000_000;
/// The time at which the tests take place.
pub(crate) const T: u64 = 1_767_225_600 * S;

/// A processor with these settings, in YAML.
pub(crate) fn link_spans(yaml: &str) -> LinkSpans {
    let section = Section::from_yaml(yaml).unwrap();
    let settings = section.extract::<Config>().unwrap().check(&section).unwrap();
    LinkSpans::new(settings, &Rules::default())
}

/// The time this many nanoseconds after [`T`].
pub(crate) fn at(nanos: u64) -> Now {
    Now { monotonic_nano: 5 * S + nanos, unix_nano: T + nanos }
}

/// Starts a profile of `cpu` or `wall` time. Returns a stack for its samples, and its period in nanoseconds.
pub(crate) fn timed_profile(builder: &mut Builder, kind: &str) -> (Option<StackId>, i64) {
    let sample_type = builder.value_type(kind, "nanoseconds");
    let period = (50 * MS) as i64;
    builder.profile(Profile { sample_type, period_type: sample_type, period, ..Profile::default() });
    let frame = builder.frame("work", "main.rs", 1);
    (builder.stack(&[frame]), period)
}

/// A text value of a resource or span attribute.
pub(crate) fn text(value: &str) -> Value {
    Value::StringValue(value.to_owned())
}

fn pairs(attributes: &[(&str, Value)]) -> Vec<KeyValue> {
    let pair = |(key, value): &(&str, Value)| KeyValue {
        key: (*key).to_owned(),
        value: Some(AnyValue { value: Some(value.clone()) }),
        key_strindex: 0,
    };
    attributes.iter().map(pair).collect()
}

/// A span from one time to another, in nanoseconds after [`T`].
pub(crate) fn span(id: u8, from: u64, to: u64, attributes: &[(&str, Value)]) -> Span {
    Span {
        trace_id: vec![1; 16],
        span_id: vec![id; 8],
        start_time_unix_nano: T + from,
        end_time_unix_nano: T + to,
        name: "work".to_owned(),
        attributes: pairs(attributes),
        ..Span::default()
    }
}

/// A batch of spans of one process.
pub(crate) fn spans(resource: &[(&str, Value)], spans: Vec<Span>) -> Spans {
    let resource = Resource { attributes: pairs(resource), ..Resource::default() };
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    let all = ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() };
    let request = ExportTraceServiceRequest { resource_spans: vec![all] };
    decode(request.encode_to_vec().into(), &Limits::default()).unwrap().spans
}

/// Profiles of a process with threads: the id and name of each, and its times of observation after [`T`].
pub(crate) fn profiles(
    resource: &[(&str, profbridge_model::builder::Any<'_>)],
    threads: &[(i64, &str, &[u64])],
) -> Profiles {
    let threads: Vec<_> = threads.iter().map(|(id, name, times)| (*id, *name, 0, *times)).collect();
    profiles_of_threads(resource, &threads)
}

/// The same, with the pointer of each thread after its name; 0 if unknown.
pub(crate) fn profiles_of_threads(
    resource: &[(&str, profbridge_model::builder::Any<'_>)],
    threads: &[(i64, &str, i64, &[u64])],
) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(resource);
    builder.on_cpu(20);
    let frame = builder.frame("work", "main.rs", 1);
    let stack = builder.stack(&[frame]);
    for (id, name, pointer, times) in threads {
        let mut attributes = vec![("thread.id", (*id).into()), ("thread.name", (*name).into())];
        if *pointer != 0 {
            attributes.push(("profbridge.thread.pointer", (*pointer).into()));
        }
        let attributes = builder.attributes(&attributes);
        let times: Vec<u64> = times.iter().map(|time| T + time).collect();
        builder.sample(stack, attributes, None, &times, &[]);
    }
    builder.finish().unwrap()
}

/// Passes telemetry to a processor.
pub(crate) fn process(processor: &mut LinkSpans, telemetry: impl Into<Telemetry>, now: Now) -> Outbox {
    let mut out = Outbox::default();
    process_all(processor, telemetry.into(), now, &mut out);
    out
}

/// Advances the time.
pub(crate) fn advance(processor: &mut LinkSpans, now: Now) -> Outbox {
    let mut out = Outbox::default();
    while processor.due().is_some_and(|due| due <= now.monotonic_nano) {
        processor.advance(now, &mut out);
    }
    out
}

/// Flushes the processor.
pub(crate) fn flush(processor: &mut LinkSpans, now: Now) -> Outbox {
    let mut out = Outbox::default();
    flush_all(processor, now, &mut out);
    out
}

/// The result for each exported span: its id, and the thread if it was linked.
pub(crate) fn links(out: &Outbox) -> Vec<(u8, Option<Option<String>>)> {
    let spans = out.telemetry.iter().filter_map(|telemetry| match telemetry {
        Telemetry::Spans(spans) => Some(spans),
        Telemetry::Profiles(_) | Telemetry::Envelope(_) => None,
    });
    let all = spans.flat_map(|spans| spans.spans());
    all.map(|span| {
        let link = span.changes.as_ref().and_then(|changes| changes.profiler.as_ref());
        (span.span_id.bytes()[0], link.map(|link| link.thread_id.as_deref().map(str::to_owned)))
    })
    .collect()
}

/// The count of a note.
pub(crate) fn note(out: &Outbox, name: &str) -> u64 {
    out.notes.iter().filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
}

/// How many spans were decided according to the counts: linked in some way, not linked for some reason, or linked
/// before.
pub(crate) fn decided(out: &Outbox) -> u64 {
    let ways = ["spans_linked_by_", "spans_linked_to_main_thread", "spans_linked_without_thread"];
    let is_one = |name: &str| {
        ways.iter().any(|way| name.starts_with(way))
            || name.starts_with("spans_unlinked_")
            || name == "spans_with_profiler"
    };
    out.notes.iter().filter(|(name, _)| is_one(name)).map(|(_, count)| count).sum()
}

/// The profiler id in chunks of a batch's first process at this time, in nanoseconds since the Unix epoch.
pub(crate) fn profiler_of(batch: &Profiles, unix_nano: u64) -> ProfilerId {
    let rules = Rules::default();
    let mut processes = Processes::new(batch, &rules, RequestId::default());
    let at = processes.of(0, None).unwrap();
    let identity = processes.get(at).identity;
    rules.profiler_id(identity, rules.cell(identity, unix_nano))
}
