use std::time::Duration;

use profbridge_model::Telemetry;
use serde::Deserialize;

use super::*;
use crate::component::{Now, Outbox};
use crate::config::{Source, load};
use crate::delivery::{DeliverySettings, QueueConfig, RetryConfig, deliver, disabled};
use crate::fakes::{FakeExporter, FakeReceiver};
use crate::registry::{ExporterFactory, Needs, PROFILES, ProcessorFactory, ReceiverFactory, SPANS};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    chunks: bool,
    by_spans: bool,
    always_late: bool,
    late_to_sink: bool,
    dsn: Option<String>,
}

fn settings(section: &Section) -> Settings {
    section.extract().unwrap_or_default()
}

fn receiver(section: &Section) -> Result<Box<dyn Receiver>, Problems> {
    section.extract::<Settings>()?;
    Ok(Box::new(FakeReceiver::new().0))
}

fn processor(section: &Section, _identity: &Rules) -> Result<Box<dyn Processor>, Problems> {
    Ok(Box::new(section.extract::<Settings>()?))
}

impl Processor for Settings {
    fn goes_to(&mut self, exporters: &[&str], profiles_come: bool) -> Option<Warning> {
        let warning = Warning { message: "it is late", hint: "be early" };
        let is_late = self.late_to_sink && profiles_come && exporters.contains(&"sink");
        (self.always_late || is_late).then_some(warning)
    }

    fn process(&mut self, telemetry: Telemetry, _: Now, out: &mut Outbox) {
        out.send(telemetry);
    }
}

fn exporter(section: &Section) -> Result<Box<dyn DynExporter>, Problems> {
    let Settings { dsn, .. } = section.extract()?;
    if dsn.is_some_and(|dsn| dsn.is_empty()) {
        return Ok(disabled("the DSN is empty"));
    }
    let settings =
        DeliverySettings { queue: QueueConfig::default(), retry: RetryConfig::default(), timeout: Duration::ZERO };
    Ok(deliver(FakeExporter::new([]), settings))
}

const REGISTRY: Registry = Registry {
    receivers: &[
        ReceiverFactory { description: Description::receiver("otlp", "", PROFILES), create: receiver },
        ReceiverFactory { description: Description::receiver("sdk", "", ENVELOPES), create: receiver },
        ReceiverFactory { description: Description::receiver("both", "", PROFILES_AND_SPANS), create: receiver },
    ],
    processors: &[
        ProcessorFactory {
            description: Description::processor("dedup", "", PROFILES)
                .wants(|section| if settings(section).by_spans { SPANS } else { &[] }),
            create: processor,
        },
        ProcessorFactory {
            description: Description::processor("symbolize", "", PROFILES).behind(&["dedup"]),
            create: processor,
        },
        ProcessorFactory {
            description: Description::processor("chunk", "", PROFILES).behind(&["dedup", "symbolize"]),
            create: processor,
        },
        ProcessorFactory { description: Description::processor("transactions", "", SPANS), create: processor },
    ],
    exporters: &[
        ExporterFactory {
            description: Description::exporter("sink", "", TelemetryKind::ALL)
                .needs(|section| if settings(section).chunks { NEEDS } else { &[] }),
            create: exporter,
        },
        ExporterFactory {
            description: Description::exporter("profiles_only", "", PROFILES).needs(|_| NEEDS),
            create: exporter,
        },
        ExporterFactory { description: Description::exporter("relay", "", ENVELOPES), create: exporter },
    ],
};

const ENVELOPES: &[TelemetryKind] = &[TelemetryKind::Envelopes];
const PROFILES_AND_SPANS: &[TelemetryKind] = &[TelemetryKind::Profiles, TelemetryKind::Spans];
const NEEDS: Needs = &[(TelemetryKind::Profiles, "chunk"), (TelemetryKind::Spans, "transactions")];

fn plan(yaml: &str) -> Result<Plan, Problems> {
    let source = Source::Text { name: "config.yaml".to_owned(), text: yaml.to_owned() };
    Plan::new(&load(&[source], &|_| None)?, &REGISTRY)
}

/// Every problem in one line: place, key, rule.
fn problems(yaml: &str) -> Vec<String> {
    let problems = plan(yaml).unwrap_err();
    let line = |problem: &Problem| format!("{} {}: {}", problem.position, problem.key_path, problem.message);
    problems.as_slice().iter().map(line).collect()
}

/// Guarantees: receivers and exporters are shared by id, processors are made per pipeline, and unused components are
/// not started.
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
    assert_eq!(plan.service.memory, 32 << 20);
    assert_eq!(plan.receivers.len(), 1);
    let exporters: Vec<&str> = plan.exporters.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(exporters, ["sink", "sink/b"]);
    let pipelines: Vec<_> =
        plan.pipelines.iter().map(|p| (p.id.as_str(), p.carries, p.processors.len(), p.exporters.len())).collect();
    assert_eq!(
        pipelines,
        [("profiles", Carries::Only(TelemetryKind::Profiles), 2, 2), ("all", Carries::Everything, 1, 1)]
    );
    assert_eq!(plan.warnings.len(), 1, "the exporter in no pipeline");
}

/// Guarantees: all broken rules are reported together, each at its position, whichever part checks them.
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
             `sink` takes profiles only behind the processor `chunk`",
            "config.yaml:17:25 service.pipelines.profiles/c.exporters.1: the exporter `missing` is not defined",
        ]
    );
}

/// Guarantees: a disabled exporter is ignored, and so are pipelines without other exporters; it is an error only if no
/// pipeline remains.
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
    assert_eq!(remaining.disabled, [("sink".to_owned(), "the DSN is empty".to_owned())]);
    let pipelines: Vec<&str> = remaining.pipelines.iter().map(|planned| planned.id.as_str()).collect();
    assert_eq!((pipelines, remaining.exporters.len()), (vec!["profiles"], 1));
    assert_eq!(remaining.warnings.len(), 1);

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

/// Guarantees: `symbolize` comes after `dedup`, because a resent profile may be symbolized better and would not look
/// like a duplicate, and before `chunk`; any other order is refused.
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
        // Among several conflicts, the processor that belongs last is named.
        ("[symbolize, chunk, dedup]", "`dedup` cannot work behind `chunk`"),
    ] {
        let found = problems(&with(processors));
        assert!(found.len() == 1 && found[0].ends_with(expected), "{found:?}");
    }
}

/// Guarantees: in a pipeline that is limited to a signal, a receiver that does not emit the signal and an exporter that
/// does not accept it are refused, each at its position with advice; a pipeline that carries everything accepts both.
#[test]
fn components_of_another_signal_are_refused() {
    let with = |pipelines: &str| {
        format!(
            "receivers: {{otlp: , sdk: }}\nprocessors: {{dedup: }}\nexporters: {{sink: , relay: }}\n\
             service: {{pipelines: {{{pipelines}}}}}\n"
        )
    };
    let everything = "all: {receivers: [otlp, sdk], processors: [dedup], exporters: [sink, relay]}";
    assert!(plan(&with(everything)).is_ok());
    let limited = with(&format!("profiles: {{receivers: [otlp, sdk], exporters: [relay, sink]}}, {everything}"));
    assert_eq!(
        problems(&limited),
        [
            "config.yaml:4:52 service.pipelines.profiles.receivers.1: \
             `sdk` emits Sentry envelopes, which this pipeline does not carry",
            "config.yaml:4:70 service.pipelines.profiles.exporters.0: \
             `relay` takes Sentry envelopes, which this pipeline does not carry",
        ]
    );
    let found = plan(&limited).unwrap_err();
    let hint = found.as_slice()[0].hint.as_deref().unwrap();
    assert!(hint.contains("carries everything") && hint.contains("`profiles`"), "{hint}");
}

/// Guarantees: the value of an unknown key is masked in all problems of its line, whatever they are about.
#[test]
fn a_line_is_masked_for_all() {
    let problems = plan(
        "receivers: {otlp: }\nexporters: {sink: , relay: {dns: hush0123}}\n\
         service: {pipelines: {profiles: {receivers: [otlp], exporters: [sink]}}}\n",
    )
    .unwrap_err();
    let text = problems.to_string();
    assert!(text.contains("`relay` is in no pipeline") && text.contains("unknown key `dns`"), "{text}");
    assert!(!text.contains("hush0123"), "{text}");
}

/// Guarantees: senders have already cut the profiles inside envelopes, so an exporter that gets only those needs no
/// `chunk`; with one receiver of other profiles it does.
#[test]
fn envelopes_need_not_be_cut() {
    let with = |receivers: &str| {
        format!(
            "receivers: {{otlp: , sdk: }}\nexporters: {{relay: , sink: {{chunks: true}}}}\n\
             service: {{pipelines: {{all: {{receivers: {receivers}, exporters: [sink]}}, \
             other: {{receivers: [otlp, sdk], exporters: [relay]}}}}}}\n"
        )
    };
    assert!(plan(&with("[sdk]")).is_ok());
    let found = problems(&with("[sdk, otlp]"));
    assert!(found.len() == 1 && found[0].ends_with("takes profiles only behind the processor `chunk`"), "{found:?}");
}

/// Guarantees: an exporter's needs apply separately to each kind: only if a receiver emits the kind, the pipeline
/// carries it, and the exporter accepts it.
#[test]
fn needs_are_of_a_kind() {
    let with = |pipeline: &str| {
        format!(
            "receivers: {{otlp: , both: }}\nprocessors: {{chunk: , transactions: }}\n\
             exporters: {{sink: {{chunks: true}}, profiles_only: }}\n\
             service: {{pipelines: {{{pipeline}, \
             other: {{receivers: [otlp, both], processors: [chunk, transactions], exporters: [sink, profiles_only]}}}}}}\n"
        )
    };
    for pipeline in [
        "all: {receivers: [otlp], processors: [chunk], exporters: [sink]}",
        "all: {receivers: [both], processors: [chunk], exporters: [profiles_only]}",
        "all: {receivers: [both], processors: [transactions, chunk], exporters: [sink]}",
        "profiles: {receivers: [both], processors: [chunk], exporters: [sink]}",
        "traces: {receivers: [both], processors: [transactions], exporters: [sink]}",
    ] {
        let planned = plan(&with(pipeline));
        assert!(planned.is_ok(), "{pipeline}: {}", planned.unwrap_err());
    }
    for (pipeline, expected) in [
        ("all: {receivers: [otlp, both], processors: [chunk], exporters: [sink]}", &["spans"][..]),
        ("traces: {receivers: [both], exporters: [sink]}", &["spans"]),
        ("all: {receivers: [both], exporters: [sink]}", &["profiles", "spans"]),
    ] {
        let found = problems(&with(pipeline));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, noun) in found.iter().zip(expected) {
            assert!(found.contains(&format!("`sink` takes {noun} only behind the processor")), "{found}");
        }
    }
}

/// Guarantees: a processor that requires spans is refused in a pipeline that spans cannot enter: one that does not
/// carry spans, or whose receivers emit none. Envelopes may contain spans. A processor that does not require spans is
/// accepted.
/// rule: profiles-sdk#lifecycle-trace-warning
#[test]
fn wanted_kinds_must_come() {
    let with = |by_spans: bool, name: &str, receivers: &str| {
        format!(
            "receivers: {{otlp: , sdk: , both: }}
processors: {{dedup: {{by_spans: {by_spans}}}}}
exporters: {{sink: }}
service:
  pipelines:
    {name}: {{receivers: [{receivers}], processors: [dedup], exporters: [sink]}}
"
        )
    };
    for (name, receivers) in [("all", "otlp, both"), ("all", "otlp, sdk")] {
        assert!(plan(&with(true, name, receivers)).is_ok(), "{name} {receivers}");
    }
    for (name, receivers) in [("all", "otlp"), ("profiles", "both")] {
        let key = format!("service.pipelines.{name}.processors.0");
        let rule = "`dedup` is configured to work by spans, and none come into this pipeline";
        let found = problems(&with(true, name, receivers));
        assert!(found.iter().any(|problem| problem.ends_with(&format!("{key}: {rule}"))), "{found:?}");
        assert!(plan(&with(false, name, receivers)).is_ok(), "{name} {receivers}");
    }
}

/// Guarantees: a processor's warning is reported once, at its position: if profiles reach an exporter that the warning
/// is about, or always if the warning is unconditional. The configuration is not refused because of it.
#[test]
fn processors_warn() {
    let warnings = |pipeline: &str| -> Vec<String> {
        let yaml = format!(
            "receivers: {{otlp: , sdk: }}
processors: {{symbolize: {{late_to_sink: true}}, symbolize/b: , symbolize/c: {{always_late: true}}, chunk: }}
exporters: {{sink: , sink/b: , relay: }}
service: {{pipelines: {{{pipeline}}}}}
"
        );
        let all = plan(&yaml).unwrap();
        let said = all.warnings.iter().filter(|problem| problem.message.contains("late"));
        said.map(|problem| format!("{} {}: {}", problem.position, problem.key_path, problem.message)).collect()
    };
    assert_eq!(
        warnings("all: {receivers: [otlp], processors: [symbolize, chunk], exporters: [sink, sink/b]}"),
        ["config.yaml:4:61 service.pipelines.all.processors.0: `symbolize`: it is late"]
    );
    for whatever_comes in ["{receivers: [sdk], ", "{receivers: [otlp], "] {
        let all = format!("all: {whatever_comes}processors: [symbolize/c, chunk], exporters: [relay]}}");
        let [warning] = &warnings(&all)[..] else { panic!("{all}") };
        assert!(warning.ends_with(" service.pipelines.all.processors.0: `symbolize/c`: it is late"), "{warning}");
    }
    for quiet in [
        "all: {receivers: [otlp], processors: [symbolize/b, chunk], exporters: [sink]}",
        "all: {receivers: [sdk], processors: [symbolize, chunk], exporters: [sink]}",
        "all: {receivers: [otlp, sdk], processors: [symbolize, chunk], exporters: [relay]}",
    ] {
        assert_eq!(warnings(quiet), [""; 0], "{quiet}");
    }
}
