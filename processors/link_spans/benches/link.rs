//! Measures the memory of the index for profiled threads, in bytes, and the cost of linking samples with spans: a
//! million samples against a hundred thousand spans, and its growth, which must stay below a factor of 2.3 from line to
//! line. For comparison, the cost of the same batches without known spans, and a naive control in the same run that
//! compares each observation with every span of its thread.

// A benchmark prints, and panics on broken input.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value as Any};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use profbridge_engine::component::{Now, Outbox, Processor as _, process_all};
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_model::{Builder, Profiles, Spans, Telemetry, Value};
use profbridge_processor_link_spans::{Config, LinkSpans};
use profbridge_testkit::thread_time::thread_cpu;
use profbridge_wire::otlp::{Limits, traces};
use prost::Message;

const T: u64 = 1_767_225_600_000_000_000;
const SECOND: u64 = 1_000_000_000;
const NOW: Now = Now { monotonic_nano: 1, unix_nano: T };

/// Threads of the process, spans per request, and batches of profiles.
const THREADS: u64 = 16;
const SPANS: u64 = 512;
const BATCHES: u64 = 20;

/// Spans per trace, each nested in the one before: a request and its calls.
const OF_TRACE: u64 = 4;

/// How a thread runs its traces: one after the other, or overlapping as in an event loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadProgram {
    Synchronous,
    Asynchronous,
    /// Like the first, on threads without profiles.
    Unobserved,
}

/// How a batch stores its observations: one per sample, or ten with one stack and different spans in one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    One,
    Ten,
}

/// The number of spans and observations, the same on each thread.
#[derive(Debug, Clone, Copy)]
struct SpanLoad {
    spans: u64,
    observations: u64,
    program: ThreadProgram,
    form: Form,
}

impl SpanLoad {
    /// The length of a thread's trace in nanoseconds.
    fn trace(self) -> u64 {
        100 * SECOND / (self.spans / THREADS / OF_TRACE)
    }

    fn span(self, number: u64) -> Span {
        let (trace, level) = (number / OF_TRACE, number % OF_TRACE);
        let (thread, at) = (trace % THREADS, trace / THREADS);
        let id = |level: u64| (trace * OF_TRACE + level + 1).to_be_bytes().to_vec();
        let start = T + at * self.trace() + level * self.trace() / 10;
        let long = match self.program {
            ThreadProgram::Synchronous | ThreadProgram::Unobserved => self.trace() - level * self.trace() / 5,
            ThreadProgram::Asynchronous => self.trace() * 3 / 2 - level * self.trace() / 5,
        };
        let key = "thread.native_id".to_owned();
        let first = if self.program == ThreadProgram::Unobserved { 1 + THREADS } else { 1 };
        let value = Some(AnyValue { value: Some(Any::IntValue((first + thread) as i64)) });
        Span {
            trace_id: [(trace + 1).to_be_bytes(), [1; 8]].concat(),
            span_id: id(level),
            parent_span_id: if level == 0 { Vec::new() } else { id(level - 1) },
            start_time_unix_nano: start,
            end_time_unix_nano: start + long,
            attributes: vec![KeyValue { key, value, key_strindex: 0 }],
            ..Span::default()
        }
    }

    fn spans(self) -> Vec<Spans> {
        let pair = |key: &str, value: Any| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            key_strindex: 0,
        };
        let attributes =
            vec![pair("host.name", Any::StringValue("web".to_owned())), pair("process.pid", Any::IntValue(7))];
        let batch = |from: u64| {
            let spans = (from..(from + SPANS).min(self.spans)).map(|number| self.span(number)).collect();
            let resource_spans = vec![ResourceSpans {
                resource: Some(Resource { attributes: attributes.clone(), ..Resource::default() }),
                scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
                ..ResourceSpans::default()
            }];
            let request = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
            traces::decode(request.into(), &Limits::default()).unwrap().spans
        };
        (0..self.spans).step_by(SPANS as usize).map(batch).collect()
    }

    /// Batches, each of a time range with all threads.
    fn profiles(self) -> Vec<Profiles> {
        let tick = 100 * SECOND * THREADS / self.observations;
        let batch = |first: u64| {
            let mut builder = Builder::new();
            builder.resource(&[("host.name", "web".into()), ("process.pid", 7.into())]);
            builder.on_cpu(100);
            let in_sample = if self.form == Form::One { 1 } else { 10 };
            let ticks = self.observations / BATCHES / THREADS;
            for thread in 0..THREADS {
                let attributes = builder.attributes(&[("thread.id", (1 + thread as i64).into())]);
                let samples = ticks / in_sample;
                for sample in 0..samples {
                    let frame = builder.frame("work", "main.rs", (sample % 500) as i64);
                    let stack = builder.stack(&[frame]);
                    // The observations of one sample are spread over the batch's time.
                    let times: Vec<u64> =
                        (0..in_sample).map(|at| T + (first / THREADS + at * samples + sample) * tick + 1).collect();
                    builder.sample(stack, attributes, None, &times, &[]);
                }
            }
            builder.finish().unwrap()
        };
        (0..self.observations).step_by((self.observations / BATCHES) as usize).map(batch).collect()
    }
}

fn processor() -> LinkSpans {
    let section = Section::from_yaml("{span_wait: 0s, max_bytes: 4GiB, max_index_bytes: 4GiB}").unwrap();
    LinkSpans::new(section.extract::<Config>().unwrap().check(&section).unwrap(), &Rules::default())
}

fn time(work: impl FnOnce()) -> Duration {
    let before = thread_cpu().unwrap();
    work();
    thread_cpu().unwrap().saturating_sub(before)
}

type NoteCounts = HashMap<&'static str, u64>;

/// The time to process all batches after `spans` were added, and the counts.
fn run(spans: &[Spans], profiles: &[Profiles]) -> (Duration, NoteCounts) {
    let mut processor = processor();
    let mut out = Outbox::default();
    spans.iter().for_each(|spans| process_all(&mut processor, spans.clone().into(), NOW, &mut out));
    let mut notes = NoteCounts::new();
    let before = processor.held().bytes;
    assert!(before > 0 || spans.is_empty());
    let batches = profiles.to_vec();
    let took = time(|| {
        for batch in batches {
            let mut out = Outbox::default();
            process_all(&mut processor, batch.into(), NOW, &mut out);
            out.notes.iter().for_each(|(name, count)| *notes.entry(name).or_default() += count);
            black_box(out);
        }
    });
    (took, notes)
}

/// The time to add the spans, and the bytes per span afterwards.
fn remember(spans: &[Spans]) -> (Duration, u64) {
    let mut processor = processor();
    let batches = spans.to_vec();
    let took = time(|| {
        for batch in batches {
            process_all(&mut processor, Telemetry::from(batch), NOW, &mut Outbox::default());
        }
    });
    (took, processor.held().bytes)
}

/// The naive control: compares with every span of the thread, for one observation in `STEP`. Returns how many were
/// linked.
fn naive(spans: &[Spans], profiles: &[Profiles]) -> (Duration, u64, u64) {
    const STEP: usize = 500;
    type Known = (u64, u64, [u8; 16], [u8; 8], Option<[u8; 8]>);
    let mut by_thread: HashMap<i64, Vec<Known>> = HashMap::new();
    for batch in spans {
        for span in batch.spans() {
            let view = profbridge_wire::spans::SpanView::of(batch, span);
            let thread = view.attribute("thread.native_id").unwrap().to_text().parse().unwrap();
            by_thread.entry(thread).or_default().push((
                span.start_unix_nano,
                span.end_unix_nano,
                *span.trace_id.bytes(),
                *span.span_id.bytes(),
                span.parent_span_id.map(|id| *id.bytes()),
            ));
        }
    }
    let mut observations: Vec<(i64, u64)> = Vec::new();
    for batch in profiles {
        for sample in batch.profiles().flat_map(|profile| batch.samples(profile)) {
            let Some(Value::Int(thread)) = batch.dictionary().find(sample.attributes, "thread.id") else { continue };
            observations.extend(sample.timestamps().map(|time| (*thread, time)));
        }
    }
    let asked: Vec<(i64, u64)> = observations.into_iter().step_by(STEP).collect();
    let mut linked = 0;
    let took = time(|| {
        for (thread, time) in &asked {
            let known = by_thread.get(thread).into_iter().flatten();
            let run: Vec<&Known> = known.filter(|span| span.0 <= *time && *time < span.1).collect();
            // Each but the outermost is inside another running span, and no two have the same parent.
            let inside = |span: &&&Known| run.iter().any(|other| span.4 == Some(other.3) && span.2 == other.2);
            let outermost = run.len() - run.iter().filter(inside).count();
            linked += u64::from(outermost == 1);
        }
    });
    (took, asked.len() as u64, linked)
}

/// Profiled processes, and threads per process.
const PROCESSES: i64 = 400;
const OF_PROCESS: i64 = 64;

/// The names of a process's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadNaming {
    /// All equal, as in a pool.
    Alike,
    /// All different.
    Apart,
}

/// A batch for each process, in which each thread was observed this many times, 5 s apart.
fn observed(times: u64, named: ThreadNaming, pointers: bool) -> Vec<Profiles> {
    let batch = |pid: i64| {
        let mut builder = Builder::new();
        builder.resource(&[("host.name", "web".into()), ("process.pid", pid.into())]);
        builder.on_cpu(100);
        let times: Vec<u64> = (0..times).map(|at| T + at * 5 * SECOND).collect();
        for thread in 0..OF_PROCESS {
            let name = match named {
                ThreadNaming::Alike => "tokio-runtime-w".to_owned(),
                ThreadNaming::Apart => format!("pool-{pid:04}-{thread:04}"),
            };
            let mut attributes = vec![("thread.id", (pid * 100 + thread).into()), ("thread.name", (&*name).into())];
            if pointers {
                attributes.push(("profbridge.thread.pointer", (0x7f12_0000_0000 + (pid * 100 + thread) * 64).into()));
            }
            let attributes = builder.attributes(&attributes);
            let frame = builder.frame("work", "main.rs", thread);
            let stack = builder.stack(&[frame]);
            builder.sample(stack, attributes, None, &times, &[]);
        }
        builder.finish().unwrap()
    };
    (1..=PROCESSES).map(batch).collect()
}

/// The resident anonymous memory of this process, in bytes.
fn resident() -> u64 {
    profbridge_heap::return_free_memory();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// The memory taken from the system for the index of these batches, and the size that the processor reports, in bytes.
fn index(profiles: &[Profiles]) -> (u64, u64) {
    let mut processor = processor();
    let before = resident();
    profiles.iter().for_each(|batch| process_all(&mut processor, batch.clone().into(), NOW, &mut Outbox::default()));
    let (took, held) = (resident().saturating_sub(before), processor.held().bytes);
    drop(black_box(processor));
    (took, held)
}

fn print_index() {
    println!(
        "the index of {PROCESSES} processes with {OF_PROCESS} threads each: bytes for a thread, and counted as held"
    );
    let threads = (PROCESSES * OF_PROCESS) as f64;
    for (named, pointers) in [(ThreadNaming::Alike, false), (ThreadNaming::Alike, true), (ThreadNaming::Apart, true)] {
        let mut one = None;
        for times in [1, 2, 8, 32] {
            let (took, held) = index(&observed(times, named, pointers));
            let (took, held) = (took as f64 / threads, held as f64 / threads);
            let more = one.map_or(String::new(), |one: f64| {
                format!(", {:.1} for each stretch more", (took - one) / (times - 1) as f64)
            });
            one = one.or(Some(took));
            println!("  names {named:?}, pointers {pointers}, {times} stretches of time: {took:.1}, {held:.1}{more}");
        }
    }
}

fn main() {
    print_index();
    for (program, form) in [
        (ThreadProgram::Synchronous, Form::One),
        (ThreadProgram::Synchronous, Form::Ten),
        (ThreadProgram::Asynchronous, Form::One),
        (ThreadProgram::Unobserved, Form::One),
    ] {
        let mut before = None;
        println!(
            "{program:?}, {form:?} to a sample: observations, spans, to link, its growth, where no span is known, linked"
        );
        for part in [8, 4, 2, 1] {
            let load = SpanLoad { spans: 100_096 / part, observations: 1_024_000 / part, program, form };
            let (spans, profiles) = (load.spans(), load.profiles());
            let count: u64 = profiles.iter().map(Profiles::observations).sum();
            let best = |spans: &[Spans]| (0..5).map(|_| run(spans, &profiles)).min_by_key(|run| run.0).unwrap();
            let ((with, notes), (without, _)) = (best(&spans), best(&[]));
            let each = |time: Duration| time.as_nanos() as f64 / count as f64;
            let linked = notes.get("observations_linked").copied().unwrap_or_default();
            let alone = each(with) - each(without);
            let growth = before
                .replace(alone * count as f64)
                .map_or(String::new(), |before| format!("{:.2}", alone * count as f64 / before));
            println!(
                "  {count:>8} {:>7}  {alone:>6.1} ns  {growth:>5}  {:>6.1} ns  {:.1} %",
                load.spans,
                each(without),
                linked as f64 / count as f64 * 100.0
            );
            if part == 1 {
                let (took, bytes) = remember(&spans);
                let nanos = took.as_nanos() as f64 / load.spans as f64;
                println!("  to remember a span: {nanos:.0} ns, {} bytes", bytes / load.spans);
                let (took, asked, linked) = naive(&spans, &profiles);
                let nanos = took.as_nanos() as f64 / asked as f64;
                println!("  control: {nanos:.0} ns, {:.1} % linked", linked as f64 / asked as f64 * 100.0);
            }
        }
    }
}
