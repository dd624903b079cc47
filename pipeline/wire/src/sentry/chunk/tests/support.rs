//! Helpers to build batches in a few lines, and to format chunks as text.

use profbridge_model::builder::Any;
use profbridge_model::{
    Builder, Function, IdentityStrength, Line, Location, Mapping, ProcessWindow, Profile, ProfilerId, Profiles, StackId,
};
use serde_json::Value;

use crate::sentry::chunk::{Collected, ConversionReport, Converter, Settings};
use profbridge_relay_rules::{Strictness, validate};

/// The start of all windows in the tests: 2025-10-09T08:53:20Z.
pub(super) const START: u64 = 1_760_000_000_000_000_000;

/// A millisecond in nanoseconds.
pub(super) const MS: u64 = 1_000_000;

/// A window of this many milliseconds.
pub(super) fn window(millis: u64) -> ProcessWindow {
    ProcessWindow {
        profiler_id: ProfilerId::from_hash(0x1234_5678_9abc_def0_1234_5678_9abc_def0),
        strength: IdentityStrength::Strong,
        start_unix_nano: START,
        end_unix_nano: START + millis * MS,
    }
}

/// A location under construction.
#[derive(Clone, Copy, Default)]
pub(super) struct TestLocation<'a> {
    pub(super) kind: &'a str,
    /// Function, file, line and column of each line.
    pub(super) lines: &'a [(&'a str, &'a str, i64, i64)],
    /// The mapping's file, build id, start, end and offset.
    pub(super) mapping: Option<(&'a str, &'a str, u64, u64, u64)>,
    pub(super) address: u64,
    /// The system name and the first line of the location's functions.
    pub(super) system_name: &'a str,
    pub(super) start_line: i64,
}

impl<'a> TestLocation<'a> {
    /// A location of this kind with these lines, in no mapping.
    pub(super) const fn new(kind: &'a str, lines: &'a [(&'a str, &'a str, i64, i64)]) -> Self {
        Self { kind, lines, mapping: None, address: 0, system_name: "", start_line: 0 }
    }
}

/// A batch under construction: one resource, one scope, a window of a minute.
pub(super) struct BatchDraft {
    pub(super) builder: Builder,
    pub(super) window: ProcessWindow,
}

impl BatchDraft {
    pub(super) fn new() -> Self {
        let mut builder = Builder::new();
        builder.resource(&[("service.name", "shop".into())]);
        builder.scope("test", "1");
        Self { builder, window: window(60_000) }
    }

    /// Adds an on-CPU profile like the eBPF profiler's: timestamps only, with a period.
    pub(super) fn on_cpu(mut self, hertz: u32) -> Self {
        self.builder.on_cpu(hertz);
        self
    }

    /// Adds a profile of this type without a period, for this many milliseconds of the window.
    pub(super) fn profile(mut self, kind: &str, unit: &str, millis: u64) -> Self {
        let sample_type = self.builder.value_type(kind, unit);
        self.builder.profile(Profile {
            sample_type,
            time_unix_nano: START,
            duration_nano: millis * MS,
            ..Profile::default()
        });
        self
    }

    /// Sets the period of the profile.
    pub(super) fn period(mut self, kind: &str, unit: &str, period: i64) -> Self {
        let period_type = self.builder.value_type(kind, unit);
        let open = self.builder.open_profile().unwrap();
        (open.period_type, open.period) = (period_type, period);
        self
    }

    /// Adds samples of a thread at these milliseconds, all with the same stack of native functions, leaf first.
    pub(super) fn at<const N: usize>(self, thread: i64, stack: &[&str], millis: [u64; N]) -> Self {
        self.nanos(Some(thread), stack, &millis.map(|at| START + at * MS), &[])
    }

    /// Adds samples at these times with these values.
    pub(super) fn nanos(mut self, thread: Option<i64>, stack: &[&str], nanos: &[u64], values: &[i64]) -> Self {
        let stack: Vec<_> = stack.iter().map(|name| self.builder.frame(name, "", 0)).collect();
        let stack = self.builder.stack(&stack);
        let attributes = thread.and_then(|thread| self.builder.attributes(&[("thread.id", thread.into())]));
        self.builder.sample(stack, attributes, None, nanos, values);
        self
    }

    /// A stack of these locations, leaf first.
    pub(super) fn stack(&mut self, locations: &[TestLocation<'_>]) -> Option<StackId> {
        let builder = &mut self.builder;
        let mut stack = Vec::new();
        for place in locations {
            let mut line = |&(name, filename, line, column): &(&str, &str, i64, i64)| {
                let [name, system_name, filename] =
                    [name, place.system_name, filename].map(|text| builder.string(text));
                let start_line = place.start_line;
                Line { function: builder.function(Function { name, system_name, filename, start_line }), line, column }
            };
            let lines: Vec<Line> = place.lines.iter().map(&mut line).collect();
            let mapping = place.mapping.and_then(|(file, build_id, memory_start, memory_limit, file_offset)| {
                let filename = builder.string(file);
                let gnu = ("process.executable.build_id.gnu", build_id.into());
                let hash = ("process.executable.build_id.htlhash", "00112233445566778899aabbccddeeff".into());
                let attributes = if build_id.is_empty() { vec![hash] } else { vec![gnu, hash] };
                let attributes = builder.attributes(&attributes);
                builder.mapping(Mapping { memory_start, memory_limit, file_offset, filename, attributes })
            });
            let kind = [("profile.frame.type", place.kind.into())];
            let attributes = if place.kind.is_empty() { None } else { builder.attributes(&kind) };
            let location = Location { mapping, address: place.address, attributes, ..Location::default() };
            stack.push(builder.location(location, &lines));
        }
        builder.stack(&stack)
    }

    /// Adds a sample at the start and one 50 ms later, with this stack and these attributes.
    pub(super) fn sampled(mut self, locations: &[TestLocation<'_>], attributes: &[(&str, Any<'_>)]) -> Self {
        let stack = self.stack(locations);
        let attributes = self.builder.attributes(attributes);
        self.builder.sample(stack, attributes, None, &[START, START + 50 * MS], &[]);
        self
    }

    /// Adds a value without a timestamp.
    pub(super) fn value(self, thread: Option<i64>, stack: &[&str], value: i64) -> Self {
        self.nanos(thread, stack, &[], &[value])
    }

    /// Replaces the window of a minute by one of this many milliseconds.
    pub(super) fn window(mut self, millis: u64) -> Self {
        self.window = window(millis);
        self
    }

    pub(super) fn finish(self) -> Profiles {
        let mut batch = self.builder.finish().unwrap();
        batch.window = Some(self.window);
        batch
    }

    /// Converts with the default settings.
    pub(in crate::sentry) fn convert(self) -> Converted {
        self.convert_with(Settings::default())
    }

    pub(super) fn convert_with(self, settings: Settings) -> Converted {
        convert(&self.finish(), settings)
    }
}

/// The chunks, which passed the strict check, and the report.
pub(in crate::sentry) struct Converted {
    pub(in crate::sentry) report: ConversionReport,
    pub(super) chunks: Vec<Value>,
    pub(super) collected: Collected,
}

pub(in crate::sentry) fn convert(batch: &Profiles, settings: Settings) -> Converted {
    convert_as(batch, settings, Strictness::Own)
}

pub(super) fn convert_as(batch: &Profiles, settings: Settings, strictness: Strictness) -> Converted {
    let mut collected = Collected::default();
    let report = Converter::new(settings).convert(batch, &mut collected);
    assert!(report.balanced(), "{report:?}");
    assert_eq!(report.chunks, collected.chunks.len() as u64);
    let chunks = collected
        .chunks
        .iter()
        .map(|(json, summary)| {
            assert_eq!(validate(json, strictness), Ok(()), "{}", String::from_utf8_lossy(json));
            let chunk: Value = serde_json::from_slice(json).unwrap();
            assert_eq!(summary.json_bytes, json.len() as u64);
            assert_eq!(chunk["chunk_id"], summary.chunk_id.simple().to_string());
            assert_eq!(chunk["platform"], summary.platform.as_str());
            assert_eq!(chunk["profile"]["samples"].as_array().unwrap().len() as u64, summary.samples);
            assert_eq!(summary.observations + summary.synthesized, summary.samples + summary.coalesced);
            chunk
        })
        .collect();
    Converted { report, chunks, collected }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChunkSample {
    pub(super) thread: String,
    /// Microseconds since the window's start.
    pub(super) micros: i64,
    /// The functions, leaf first.
    pub(super) stack: Vec<String>,
}

/// The samples of a chunk in Relay's order: sorted by time with a stable sort.
pub(super) fn samples(chunk: &Value) -> Vec<ChunkSample> {
    let profile = &chunk["profile"];
    let function =
        |frame: &Value| profile["frames"][frame.as_u64().unwrap() as usize]["function"].as_str().unwrap_or_default();
    let mut samples: Vec<_> = profile["samples"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sample| ChunkSample {
            thread: sample["thread_id"].as_str().unwrap().to_owned(),
            micros: (sample["timestamp"].as_f64().unwrap() * 1e6).round() as i64 - (START / 1000) as i64,
            stack: profile["stacks"][sample["stack_id"].as_u64().unwrap() as usize]
                .as_array()
                .unwrap()
                .iter()
                .map(|frame| function(frame).to_owned())
                .collect(),
        })
        .collect();
    samples.sort_by_key(|sample| sample.micros);
    samples
}

impl Converted {
    /// The chunk, which must be the only one.
    pub(in crate::sentry) fn chunk(&self) -> &Value {
        assert_eq!(self.chunks.len(), 1, "{:?}", self.report);
        &self.chunks[0]
    }

    /// The chunks as text: a line for each thread, `/` between chunks.
    pub(super) fn text(&self) -> String {
        self.chunks.iter().map(text).collect::<Vec<_>>().join("\n/\n")
    }

    /// The frames of the chunk, which must be the only one.
    pub(super) fn frames(&self) -> &Vec<Value> {
        self.chunk()["profile"]["frames"].as_array().unwrap()
    }
}

fn text(chunk: &Value) -> String {
    let samples = samples(chunk);
    let mut threads: Vec<&str> = samples.iter().map(|sample| sample.thread.as_str()).collect();
    threads.sort_unstable();
    threads.dedup();
    let line = |thread: &&str| {
        let own = samples.iter().filter(|sample| sample.thread == **thread);
        let words = own.map(|sample| {
            let leaf = sample.stack.first().map_or("-", String::as_str);
            let millis = sample.micros as f64 / 1e3;
            format!(" {leaf}@{millis}")
        });
        format!("{thread}:{}", words.collect::<String>())
    };
    threads.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The time that Sentry attributes to each leaf function, in microseconds: the time from each sample to the next sample
/// of its thread, and nothing for the last one (observed with `vroomrs` 0.1.24).
pub(in crate::sentry) fn attributed(chunks: &[Value]) -> std::collections::BTreeMap<String, i64> {
    let mut owned = std::collections::BTreeMap::new();
    for chunk in chunks {
        let mut threads: std::collections::BTreeMap<String, ChunkSample> = std::collections::BTreeMap::new();
        for sample in samples(chunk) {
            if let Some(before) = threads.insert(sample.thread.clone(), sample.clone())
                && let Some(leaf) = before.stack.first()
            {
                *owned.entry(leaf.clone()).or_default() += sample.micros - before.micros;
            }
        }
    }
    owned
}
