use std::time::Duration;

use serde::Deserialize;

use super::*;
use crate::config::{Source, load};
use crate::delivery::{DeliverySettings, QueueConfig, RetryConfig, deliver};
use crate::fakes::{FakeExporter, FakeReceiver, Holder};
use crate::registry::{ExporterFactory, ReceiverFactory};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    chunks: bool,
    dsn: Option<String>,
}

fn settings(section: &Section) -> Settings {
    section.extract().unwrap_or_default()
}

fn receiver(section: &Section) -> Result<Box<dyn Receiver>, Problems> {
    section.extract::<Settings>()?;
    Ok(Box::new(FakeReceiver::new().0))
}

fn processor(section: &Section) -> Result<Box<dyn Processor>, Problems> {
    section.extract::<Settings>()?;
    Ok(Box::new(Holder::new(Duration::ZERO)))
}

fn exporter(section: &Section) -> Result<Box<dyn DynExporter>, Problems> {
    let Settings { dsn, .. } = section.extract()?;
    let mut fake = FakeExporter::new([]);
    fake.disabled = dsn.filter(|dsn| dsn.is_empty()).map(|_| "the DSN is empty".to_owned());
    let settings =
        DeliverySettings { queue: QueueConfig::default(), retry: RetryConfig::default(), timeout: Duration::ZERO };
    Ok(deliver(fake, settings))
}

const REGISTRY: Registry = Registry {
    receivers: &[ReceiverFactory { kind: "otlp", summary: "", create: receiver }],
    processors: &[
        ProcessorFactory { kind: "dedup", summary: "", rank: Rank::Dedup, create: processor },
        ProcessorFactory { kind: "symbolize", summary: "", rank: Rank::Symbolize, create: processor },
        ProcessorFactory { kind: "chunk", summary: "", rank: Rank::Chunk, create: processor },
    ],
    exporters: &[ExporterFactory {
        kind: "sink",
        summary: "",
        needs_chunks: |section| settings(section).chunks,
        create: exporter,
    }],
};

fn plan(yaml: &str) -> Result<Plan, Problems> {
    let source = Source::Text { name: "config.yaml".to_owned(), text: yaml.to_owned() };
    Plan::new(&load(&[source], &|_| None)?, &REGISTRY)
}

/// Every problem in one line: place, key, rule.
fn problems(yaml: &str) -> Vec<String> {
    let problems = plan(yaml).unwrap_err();
    let line = |problem: &Problem| format!("{} {}: {}", problem.place, problem.key_path, problem.message);
    problems.as_slice().iter().map(line).collect()
}

/// Guarantees: receivers and exporters are shared by their id, processors are made for each pipeline, and what is in no
/// pipeline is not started.
#[test]
fn graph() {
    let plan = plan(
        "receivers: {otlp: }
processors: {dedup: , chunk: }
exporters: {sink: , sink/b: , sink/unused: }
service:
  limits: {memory: 32MiB}
  pipelines:
    profiles: {receivers: [otlp], processors: [dedup, chunk], exporters: [sink, sink/b]}
    all: {receivers: [otlp], processors: [chunk], exporters: [sink]}
",
    )
    .unwrap();
    assert_eq!(plan.service().memory, 32 << 20);
    assert_eq!(plan.receivers.len(), 1);
    let exporters: Vec<&str> = plan.exporters.iter().map(|planned| planned.id.as_str()).collect();
    assert_eq!(exporters, ["sink", "sink/b"]);
    let pipelines: Vec<_> =
        plan.pipelines.iter().map(|p| (p.id.as_str(), p.signal, p.processors.len(), p.exporters.len())).collect();
    assert_eq!(pipelines, [("profiles", Signal::Profiles, 2, 2), ("all", Signal::All, 1, 1)]);
    assert_eq!(plan.warnings().len(), 1, "the exporter in no pipeline");
}

/// Guarantees: every rule that is broken is named at its place, all at once, whoever knows the rule.
#[test]
fn every_problem_at_once() {
    let found = problems(
        "receivers: {otlp: {nonsense: 1}}
processors: {dedup: , chunk: , chunk/b: , dedup/unused: {nonsense: 2}}
exporters: {sink: {chunks: true}}
service:
  shutdown_timeout: 1ms
  pipelines:
    profiles:
      receivers: [otlp]
      processors: [chunk, dedup]
      exporters: [sink]
    profiles/b:
      receivers: [otlp]
      processors: [chunk, chunk/b]
      exporters: [sink]
    profiles/c:
      receivers: [otlp]
      exporters: [sink, missing]
",
    );
    assert_eq!(
        found,
        [
            "config.yaml:1:20 receivers.otlp.nonsense: unknown key `nonsense`",
            "config.yaml:2:43 processors.dedup/unused: the processor `dedup/unused` is in no pipeline",
            "config.yaml:2:58 processors.dedup/unused.nonsense: unknown key `nonsense`",
            "config.yaml:5:21 service.shutdown_timeout: the time for a shutdown is shorter than 1s",
            "config.yaml:9:27 service.pipelines.profiles.processors.1: `dedup` cannot work behind `chunk`",
            "config.yaml:13:27 service.pipelines.profiles/b.processors.1: \
             `chunk/b` does again what `chunk` before it has done",
            "config.yaml:17:19 service.pipelines.profiles/c.exporters.0: \
             `sink` takes only what the processor `chunk` has cut",
            "config.yaml:17:25 service.pipelines.profiles/c.exporters.1: the exporter `missing` is not defined",
        ]
    );
}

/// Guarantees: an exporter that has nothing to do is left out, a pipeline that has no other with it, and only where
/// nothing remains is that an error.
#[test]
fn disabled_exporters() {
    let remaining = plan(
        "receivers: {otlp: }
exporters: {sink: {dsn: ''}, sink/file: }
service:
  pipelines:
    profiles: {receivers: [otlp], exporters: [sink, sink/file]}
    profiles/b: {receivers: [otlp], exporters: [sink]}
",
    )
    .unwrap();
    assert_eq!(remaining.disabled(), [("sink".to_owned(), "the DSN is empty".to_owned())]);
    let pipelines: Vec<&str> = remaining.pipelines.iter().map(|planned| planned.id.as_str()).collect();
    assert_eq!((pipelines, remaining.exporters.len()), (vec!["profiles"], 1));
    assert_eq!(remaining.warnings().len(), 1);

    let found = problems(
        "receivers: {otlp: }
exporters: {sink: {dsn: ''}}
service:
  pipelines:
    profiles: {receivers: [otlp], exporters: [sink]}
",
    );
    assert_eq!(
        found,
        ["config.yaml:5:5 service.pipelines.profiles.exporters: \
          the pipeline `profiles` has nowhere to send to; `sink` is switched off: the DSN is empty"]
    );
}

/// Guarantees: what a usual configuration says means what it says, down to a plan that starts nothing on its own.
#[test]
fn minimal() {
    let minimal = plan(
        "receivers: {otlp: }
exporters: {sink: }
service: {pipelines: {profiles: {receivers: [otlp], exporters: [sink]}}}
",
    )
    .unwrap();
    assert_eq!((minimal.warnings(), minimal.service()), (&[][..], &ServiceSettings::default()));
}

/// Guarantees: names are written behind `dedup`, since what is sent again may be named better and would not look like a
/// resend, and before `chunk`; any other order is refused.
#[test]
fn symbolize_stands_between_dedup_and_chunk() {
    let with = |processors: &str| {
        format!(
            "receivers: {{otlp: }}\nprocessors: {{dedup: , symbolize: , chunk: }}\nexporters: {{sink: {{chunks: true}}}}\n\
             service: {{pipelines: {{profiles: {{receivers: [otlp], processors: {processors}, exporters: [sink]}}}}}}\n"
        )
    };
    assert!(plan(&with("[dedup, symbolize, chunk]")).is_ok());
    for (processors, expected) in [
        ("[symbolize, dedup, chunk]", "`dedup` cannot work behind `symbolize`"),
        ("[dedup, chunk, symbolize]", "`symbolize` cannot work behind `chunk`"),
    ] {
        let found = problems(&with(processors));
        assert!(found.len() == 1 && found[0].ends_with(expected), "{found:?}");
    }
}
