//! Profiles and spans of fictitious processes, and the results for the spans.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
pub(crate) use opentelemetry_proto::tonic::common::v1::any_value::Value::{self, IntValue};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use profbridge_engine::component::{Now, Outbox};
use profbridge_engine::config::Section;
use profbridge_identity::{Processes, RequestId, Rules};
pub(crate) use profbridge_model::builder::Any;
use profbridge_model::envelope::ClientProcess;
use profbridge_model::spans::ProfilerLink;
use profbridge_model::{Builder, Envelope, ItemView, Profile, ProfilerId, Profiles, Spans, Telemetry};
use profbridge_processor_link_spans::{Config, LinkSpans};
pub(crate) use profbridge_testkit::{SECOND as S, START_UNIX_NANO as T, advance, at, flush, note, process};
use profbridge_wire::otlp::Limits;
use profbridge_wire::otlp::traces::decode;
use prost::Message as _;

/// A millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

/// The scope of the built-in sampler, and another one.
pub(crate) const SAMPLER: &str = "profbridge-receiver-ptrace";
pub(crate) const OTHER_PROFILER: &str = "other";

/// A processor with these settings, in YAML.
pub(crate) fn link_spans(yaml: &str) -> LinkSpans {
    let section = Section::from_yaml(yaml).unwrap();
    let settings = section.extract::<Config>().unwrap().check(&section).unwrap();
    LinkSpans::new(settings, &Rules::default())
}

/// A time every 50 ms from one millisecond to another.
pub(crate) fn ticks(from: u64, to: u64) -> Vec<u64> {
    (from..=to).step_by(50).map(|at| at * MS).collect()
}

/// A text value of a resource or span attribute.
pub(crate) fn text(value: &str) -> Value {
    Value::StringValue(value.to_owned())
}

/// The system's id of a span's thread.
pub(crate) fn native(thread: i64) -> [(&'static str, Value); 1] {
    [("thread.native_id", IntValue(thread))]
}

/// The resource of a process on the host `web`, in profiles.
pub(crate) fn web(pid: i64) -> [(&'static str, Any<'static>); 2] {
    on_host("web", pid)
}

/// The resource of a process, in profiles.
pub(crate) fn on_host(host: &'static str, pid: i64) -> [(&'static str, Any<'static>); 2] {
    [("host.name", Any::Str(host)), ("process.pid", Any::Int(pid))]
}

/// The resource of a process on the host `web`, in spans.
pub(crate) fn traced(pid: i64) -> [(&'static str, Value); 2] {
    [("host.name", text("web")), ("process.pid", IntValue(pid))]
}

/// Like [`traced`], for a program in a language.
pub(crate) fn traced_in(language: &str, pid: i64) -> [(&'static str, Value); 3] {
    let [host, pid] = traced(pid);
    [("telemetry.sdk.language", text(language)), host, pid]
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

/// An envelope with spans whose client is process 7 of `web`, as the receiver found out.
pub(crate) fn from_client(spans: Spans) -> Envelope {
    let mut envelope = Envelope::default();
    envelope.meta.client_process = Some(ClientProcess { pid: 7, host: "web".into() });
    envelope.views.push(ItemView::spans(0, spans));
    envelope
}

/// Profiles of a process with threads: the id and name of each, and its times of observation after [`T`].
pub(crate) fn profiles(resource: &[(&str, Any<'_>)], threads: &[(i64, &str, &[u64])]) -> Profiles {
    let threads: Vec<_> = threads.iter().map(|(id, name, times)| (*id, *name, 0, *times)).collect();
    profiles_of_threads(resource, &threads)
}

/// Like [`profiles`], with the pointer of each thread after its name; 0 if unknown.
pub(crate) fn profiles_of_threads(resource: &[(&str, Any<'_>)], threads: &[(i64, &str, i64, &[u64])]) -> Profiles {
    profiles_of_time("cpu", resource, threads)
}

/// The same of `cpu` or `wall` time.
pub(crate) fn profiles_of_time(
    kind: &str,
    resource: &[(&str, Any<'_>)],
    threads: &[(i64, &str, i64, &[u64])],
) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(resource);
    let sample_type = builder.value_type("samples", "count");
    let period_type = builder.value_type(kind, "nanoseconds");
    builder.profile(Profile { sample_type, period_type, period: (50 * MS) as i64, ..Profile::default() });
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

/// A thread (0 for none), its name, its times in milliseconds, and the span that its samples name (0 for none).
pub(crate) type TimedSamples<'a> = (i64, &'a str, &'a [u64], u8);

/// Adds the profiles of a process, of `cpu` or `wall` time with a period of 50 ms, from a profiler with this scope.
pub(crate) fn add_timed(
    builder: &mut Builder,
    resource: &[(&str, Any<'_>)],
    scope: &str,
    kind: &str,
    samples: &[TimedSamples<'_>],
) {
    builder.resource(resource);
    builder.scope(scope, "1.0");
    let sample_type = builder.value_type(kind, "nanoseconds");
    builder.profile(Profile { sample_type, period_type: sample_type, period: (50 * MS) as i64, ..Profile::default() });
    for (at, (thread, name, times, span)) in samples.iter().enumerate() {
        let frame = builder.frame("work", "main.rs", at as i64);
        let stack = builder.stack(&[frame]);
        let of_thread = [("thread.id", Any::Int(*thread)), ("thread.name", Any::Str(name))];
        let attributes = builder.attributes(if *thread == 0 { &[] } else { &of_thread });
        let link = (*span > 0).then(|| builder.link([1; 16], [*span; 8])).flatten();
        let times: Vec<u64> = times.iter().map(|time| T + time * MS).collect();
        builder.sample(stack, attributes, link, &times, &vec![(50 * MS) as i64; times.len()]);
    }
}

/// A batch as [`add_timed`] adds it, in which every thread is named `worker`.
pub(crate) fn seen(resource: &[(&str, Any<'_>)], scope: &str, kind: &str, samples: &[(i64, &[u64], u8)]) -> Profiles {
    let samples: Vec<TimedSamples<'_>> =
        samples.iter().map(|(id, times, span)| (*id, "worker", *times, *span)).collect();
    let mut builder = Builder::new();
    add_timed(&mut builder, resource, scope, kind, &samples);
    builder.finish().unwrap()
}

/// Passes telemetry to a processor, then advances the time.
pub(crate) fn process_and_wait(
    processor: &mut LinkSpans,
    telemetry: impl Into<Telemetry>,
    now: Now,
    until: Now,
) -> Outbox {
    let mut out = process(processor, telemetry, now);
    let later = advance(processor, until);
    out.telemetry.extend(later.telemetry);
    later.notes.into_iter().for_each(|(name, count)| out.note(name, count));
    out
}

/// The link of each exported span, also in envelopes, by the span's id.
pub(crate) fn profiler_links(out: &Outbox) -> Vec<(u8, Option<ProfilerLink>)> {
    let spans = out.telemetry.iter().flat_map(|telemetry| match telemetry {
        Telemetry::Spans(spans) => vec![spans],
        Telemetry::Envelope(envelope) => envelope.spans().collect(),
        _ => Vec::new(),
    });
    let link = |span: &profbridge_model::Span| span.changes.as_ref().and_then(|changes| changes.profiler.clone());
    spans.flat_map(|spans| spans.spans()).map(|span| (span.span_id.bytes()[0], link(span))).collect()
}

/// Whether a span was linked, and with which thread.
pub(crate) type Link = Option<Option<String>>;

/// The result for each exported span: its id and link.
pub(crate) fn links(out: &Outbox) -> Vec<(u8, Link)> {
    let thread = |link: ProfilerLink| link.thread_id.as_deref().map(str::to_owned);
    profiler_links(out).into_iter().map(|(id, link)| (id, link.map(thread))).collect()
}

pub(crate) fn linked(thread: &str) -> Link {
    Some(Some(thread.to_owned()))
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
