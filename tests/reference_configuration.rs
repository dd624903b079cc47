//! Holds `config.yaml` at the top of the tree against the code: every key is in it, and every value is the default.

use std::path::{Path, PathBuf};

use profbridge_engine::config::{self, Section, Source};
use profbridge_engine::service::ServiceSettings;

use crate::process::run;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../config.yaml")
}

fn text() -> String {
    std::fs::read_to_string(path()).unwrap()
}

/// The exporters that the file shows but does not use: the lines after their title that start with `#  `, as YAML.
fn unused_exporters() -> String {
    let text = text();
    let (_, after) = text.split_once("# Exporters that this configuration does not use").unwrap();
    after.lines().filter_map(|line| line.strip_prefix("#  ")).map(|line| format!("{line}\n")).collect()
}

/// The receivers that the file shows but does not use, in the same way.
fn unused_receivers() -> String {
    let text = text();
    let (_, after) = text.split_once("# Receivers that this configuration does not use").unwrap();
    let (block, _) = after.split_once("\nprocessors:\n").unwrap();
    block.lines().filter_map(|line| line.strip_prefix("#  ")).map(|line| format!("{line}\n")).collect()
}

/// The keys that are valid under a path, as the refusal of another one names them; `None` where no map stands there.
fn valid_keys(folder: &Path, path: &str) -> Option<Vec<String>> {
    let key = format!("{path}.zzz");
    let finished = run(folder, &["validate", "--set", &format!("{key}=1")]);
    let mut problems = finished.stderr.split("\n\n");
    let problem = problems.find(|problem| {
        problem.contains("unknown key `zzz`") && problem.lines().any(|line| line.trim() == format!("= key: {key}"))
    })?;
    let (_, list) = problem.split_once("valid keys: ").unwrap_or_else(|| panic!("no keys: {problem}"));
    Some(list.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

fn every_key(folder: &Path, path: &str, found: &mut Vec<String>) {
    for key in valid_keys(folder, path).unwrap_or_default() {
        let path = format!("{path}.{key}");
        every_key(folder, &path, found);
        found.push(path);
    }
}

/// Guarantees: there is no key in the code that the reference configuration does not show.
#[test]
fn shows_every_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = text();
    // The components that are only shown become real for this test.
    config = config.replace("\nexporters:\n", &format!("\nexporters:\n{}", indent(&unused_exporters())));
    config = config.replace("\nreceivers:\n", &format!("\nreceivers:\n{}", indent(&unused_receivers())));
    std::fs::write(folder.path().join("config.yaml"), &config).unwrap();
    let mut keys = Vec::new();
    for path in [
        "receivers.otlp",
        "receivers.ptrace",
        "receivers.ptrace.targets.app",
        "receivers.sentry",
        "processors.dedup",
        "processors.symbolize",
        "processors.chunk",
        "exporters.sentry",
        "exporters.file",
        "exporters.otlp",
        "exporters.debug",
        "service.identity",
        "service.limits",
        "service.telemetry",
    ] {
        let before = keys.len();
        every_key(folder.path(), path, &mut keys);
        assert!(keys.len() > before, "{path} has no keys");
    }
    for path in keys {
        let key = path.rsplit('.').next().unwrap();
        assert!(config.contains(&format!("{key}:")), "config.yaml does not show {path}");
    }
}

fn indent(yaml: &str) -> String {
    yaml.lines().map(|line| format!("  {line}\n")).collect()
}

/// Guarantees: every value in the reference configuration is what holds without it.
#[test]
fn shows_the_defaults() {
    let config = config::load(&[Source::File(path())], &|_| None).unwrap_or_else(|problems| panic!("{problems}"));
    let section = |components: &config::Ordered<config::ComponentId, Section>, kind: &str| {
        components.iter().find(|(id, _)| id.kind == kind).unwrap().1.clone()
    };
    let receiver = |section: &Section| profbridge_receiver_otlp::Settings::read(section).unwrap();
    assert_eq!(receiver(&section(&config.receivers, "otlp")), receiver(&Section::defaults()));
    let dedup: profbridge_processor_dedup::Config = section(&config.processors, "dedup").extract().unwrap();
    assert_eq!(dedup, profbridge_processor_dedup::Config::default());
    let symbolize: profbridge_processor_symbolize::Config = section(&config.processors, "symbolize").extract().unwrap();
    assert_eq!(symbolize, profbridge_processor_symbolize::Config::default());
    let chunk: profbridge_processor_chunk::Config = section(&config.processors, "chunk").extract().unwrap();
    assert_eq!(chunk, profbridge_processor_chunk::Config::default());
    // Secrets cannot be compared, and show nothing.
    let sentry = profbridge_exporter_sentry::Config::read(&section(&config.exporters, "sentry")).unwrap();
    assert_eq!(format!("{sentry:?}"), format!("{:?}", profbridge_exporter_sentry::Config::default()));
    let file = profbridge_exporter_file::Config::read(&section(&config.exporters, "file")).unwrap();
    let default = profbridge_exporter_file::Config { path: "out/envelopes".into(), ..Default::default() };
    assert_eq!(format!("{file:?}"), format!("{default:?}"));
    assert_eq!(ServiceSettings::new(&config.service).unwrap(), ServiceSettings::default());
    assert!(config::check_references(&config, &known()).is_empty());
}

/// Guarantees: the receivers that are only shown have their defaults, too.
#[test]
fn shows_the_defaults_of_unused_receivers() {
    let read = |yaml: &str| {
        let section = Section::from_yaml(yaml).unwrap();
        profbridge_receiver_ptrace::Settings::read(&section).unwrap_or_else(|problems| panic!("{problems}"))
    };
    let shown = unused_receivers();
    let (ptrace, sentry) = shown.split_once("\nsentry:").unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(
        read(ptrace.strip_prefix("ptrace:").unwrap_or_else(|| panic!("{shown}")).split_once('\n').unwrap().1),
        read("targets: {app: {executable: app}}")
    );
    let read = |section: &Section| profbridge_receiver_sentry::Settings::read(section).unwrap();
    let sentry = Section::from_yaml(sentry.split_once('\n').unwrap().1).unwrap();
    assert_eq!(format!("{:?}", read(&sentry)), format!("{:?}", read(&Section::defaults())));
}

/// Guarantees: the exporters that are only shown have their defaults, too.
#[test]
fn shows_the_defaults_of_unused_exporters() {
    let yaml = unused_exporters();
    let (otlp, debug) = yaml.split_once("debug:").unwrap();
    let of = |text: &str| Section::from_yaml(text).unwrap();
    let otlp: profbridge_exporter_otlp::Config = of(otlp.strip_prefix("otlp:").unwrap()).extract().unwrap();
    let default = profbridge_exporter_otlp::Config {
        endpoint: "backend:4317".to_owned(),
        protocol: otlp.protocol,
        ..Default::default()
    };
    assert_eq!(format!("{otlp:?}"), format!("{default:?}"));
    let debug: profbridge_exporter_debug::Config = of(debug).extract().unwrap();
    assert_eq!(debug, profbridge_exporter_debug::Config::default());
}

fn known() -> config::Known<'static> {
    config::Known {
        receivers: &["otlp", "ptrace", "sentry"],
        processors: &["dedup", "symbolize", "chunk"],
        exporters: &["sentry", "otlp", "otlp_http", "file", "debug"],
    }
}
