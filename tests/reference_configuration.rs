//! Compares `config.yaml` in the root folder with the code: it contains every key, and every value is the default.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

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

/// The processors that the file shows but does not use, in the same way.
fn unused_processors() -> String {
    let text = text();
    let (_, after) = text.split_once("# Processors that this configuration does not use").unwrap();
    let (block, _) = after.split_once("\nexporters:\n").unwrap();
    block.lines().filter_map(|line| line.strip_prefix("#  ")).map(|line| format!("{line}\n")).collect()
}

/// The valid keys under a path, taken from the error for an invalid one; `None` if the path is not a map.
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

/// Everything with a reference page of its keys, and the folder of the page: the components, each under one name.
pub(crate) fn components() -> Vec<(String, String)> {
    let listed = run(tempfile::tempdir().unwrap().path(), &["components"]).stdout;
    let mut components = vec![("service.identity".to_owned(), "pipeline/identity".to_owned())];
    let mut section = "";
    for line in listed.lines() {
        section = line.strip_suffix(':').filter(|name| !name.starts_with(' ')).unwrap_or(section);
        let Some(kind) = line.strip_prefix("  - name: ") else { continue };
        let folder = format!("{section}/{kind}");
        if path().with_file_name(&folder).join("README.md").exists() {
            components.push((format!("{section}.{kind}"), folder));
        }
    }
    components
}

/// Maps whose keys are defined by the code: the components, the parts of `service`, and targets, whose name is an
/// additional level.
fn sections() -> Vec<String> {
    let others =
        ["receivers.pprof.scrape.targets.app", "receivers.ptrace.targets.app", "service.limits", "service.telemetry"]
            .map(str::to_owned);
    components().into_iter().map(|(component, _)| component).chain(others).collect()
}

/// The reference configuration with the components that it shows but does not use.
fn with_unused() -> String {
    let config = text().replace("\nexporters:\n", &format!("\nexporters:\n{}", indent(&unused_exporters())));
    let config = config.replace("\nprocessors:\n", &format!("\nprocessors:\n{}", indent(&unused_processors())));
    config.replace("\nreceivers:\n", &format!("\nreceivers:\n{}", indent(&unused_receivers())))
}

/// The paths of all keys that the code accepts, as reported by the binary.
pub(crate) fn keys_of_code() -> &'static BTreeSet<String> {
    static KEYS: OnceLock<BTreeSet<String>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.yaml"), with_unused()).unwrap();
        let mut keys = Vec::new();
        for path in sections() {
            let before = keys.len();
            every_key(folder.path(), &path, &mut keys);
            assert!(keys.len() > before, "{path} has no keys");
        }
        keys.into_iter().collect()
    })
}

/// The values of a configuration by path, as written by `print-config`; empty for maps and lists that are not empty.
pub(crate) fn values(yaml: String) -> BTreeMap<String, String> {
    let source = Source::Text { name: "yaml".to_owned(), text: yaml };
    let config = config::load(&[source], &|_| None).unwrap_or_else(|problems| panic!("{problems}"));
    let mut values = BTreeMap::<String, String>::new();
    let mut path = Vec::new();
    for line in config.redacted_yaml().lines() {
        let text = line.trim_start();
        path.truncate((line.len() - text.len()) / 2);
        if let Some(item) = text.strip_prefix("- ") {
            let list = values.get_mut(&path.join(".")).unwrap();
            list.push_str(if list.is_empty() { "" } else { ", " });
            list.push_str(item);
        } else {
            let (key, value) = text.split_once(':').unwrap();
            path.push(key.to_owned());
            values.insert(path.join("."), value.trim().trim_matches('"').to_owned());
        }
    }
    values
}

/// The values that the reference configuration shows as defaults.
pub(crate) fn defaults() -> BTreeMap<String, String> {
    values(with_unused())
}

/// Everything shown, including the commented-out keys: they have no default, or are examples.
pub(crate) fn shown() -> BTreeMap<String, String> {
    let uncommented = |line: &str| {
        let comment = line.trim_start().strip_prefix("# ")?;
        let (key, value) = comment.trim_start().split_once(':')?;
        let is_key = !key.is_empty() && key.bytes().all(|c| c.is_ascii_lowercase() || c == b'_');
        let indent = line.len() - line.trim_start().len();
        (indent > 0 && is_key && (value.is_empty() || value.starts_with(' ')))
            .then(|| format!("{:indent$}{comment}", ""))
    };
    let lines = with_unused();
    values(lines.lines().map(|line| uncommented(line).unwrap_or_else(|| line.to_owned()) + "\n").collect())
}

/// Guarantees: the reference configuration shows every key that the code accepts and no other, even commented out. Keys
/// shared by several components, such as `tls`, are shown at one of them.
#[test]
fn shows_every_key() {
    let shown = shown();
    for path in keys_of_code() {
        let mut names = path.rsplit('.');
        let common = [names.next().unwrap(), names.next().unwrap()];
        let end = format!(".{}.{}", common[1], common[0]);
        let is_shown = shown.contains_key(path) || shown.keys().any(|known| known.ends_with(&end));
        assert!(is_shown, "config.yaml does not show {path}");
    }
    let sections = sections();
    for path in shown.keys() {
        let of_component = sections.iter().any(|section| path.starts_with(&format!("{section}.")));
        let is_known = keys_of_code().contains(path) || TARGETS.contains(&path.as_str());
        assert!(!of_component || is_known, "the code does not know {path} of config.yaml");
    }
}

/// Targets, whose names are arbitrary.
const TARGETS: [&str; 2] = ["receivers.pprof.scrape.targets.app", "receivers.ptrace.targets.app"];

fn indent(yaml: &str) -> String {
    yaml.lines().map(|line| format!("  {line}\n")).collect()
}

/// Guarantees: every value in the reference configuration equals its default, also in components that it does not use,
/// and it gives no warning.
#[test]
fn shows_the_defaults() {
    let source = Source::Text { name: "config.yaml".to_owned(), text: with_unused() };
    let config = Section::load(&[source], &|_| None).unwrap_or_else(|problems| panic!("{problems}"));
    let of = |component: &str| config.below(component);
    let receiver = |section: &Section| profbridge_receiver_otlp::Settings::read(section).unwrap();
    assert_eq!(receiver(&of("receivers.otlp")), receiver(&Section::defaults()));
    let ptrace = |section: &Section| profbridge_receiver_ptrace::Settings::read(section).unwrap();
    let target = Section::from_yaml("targets: {app: {executable: app}}").unwrap();
    assert_eq!(ptrace(&of("receivers.ptrace")), ptrace(&target));
    let pprof = |section: &Section| format!("{:?}", profbridge_receiver_pprof::Settings::read(section).unwrap());
    let target = "push: {}\nscrape: {targets: {app: {endpoint: 'http://127.0.0.1:6060'}}}";
    assert_eq!(pprof(&of("receivers.pprof")), pprof(&Section::from_yaml(target).unwrap()));
    let sdks = |section: &Section| format!("{:?}", profbridge_receiver_sentry::Settings::read(section).unwrap());
    assert_eq!(sdks(&of("receivers.sentry")), sdks(&Section::defaults()));
    let dedup: profbridge_processor_dedup::Config = of("processors.dedup").extract().unwrap();
    assert_eq!(dedup, profbridge_processor_dedup::Config::default());
    let symbolize: profbridge_processor_symbolize::Config = of("processors.symbolize").extract().unwrap();
    assert_eq!(symbolize, profbridge_processor_symbolize::Config::default());
    let chunk: profbridge_processor_chunk::Config = of("processors.chunk").extract().unwrap();
    assert_eq!(chunk, profbridge_processor_chunk::Config::default());
    let link_spans: profbridge_processor_link_spans::Config = of("processors.link_spans").extract().unwrap();
    assert_eq!(link_spans, profbridge_processor_link_spans::Config::default());
    let transactions: profbridge_processor_transactions::Config = of("processors.transactions").extract().unwrap();
    assert_eq!(transactions, profbridge_processor_transactions::Config::default());
    let sample: profbridge_processor_sample::Config = of("processors.sample").extract().unwrap();
    assert_eq!(sample, profbridge_processor_sample::Config::default());
    // Secrets cannot be compared, so the debug output is, which hides them.
    let sentry = profbridge_exporter_sentry::Config::read(&of("exporters.sentry")).unwrap();
    assert_eq!(format!("{sentry:?}"), format!("{:?}", profbridge_exporter_sentry::Config::default()));
    let file = profbridge_exporter_file::Config::read(&of("exporters.file")).unwrap();
    let default = profbridge_exporter_file::Config { path: "out/envelopes".into(), ..Default::default() };
    assert_eq!(format!("{file:?}"), format!("{default:?}"));
    let otlp: profbridge_exporter_otlp::Config = of("exporters.otlp").extract().unwrap();
    let default = profbridge_exporter_otlp::Config {
        endpoint: "backend:4317".to_owned(),
        protocol: otlp.protocol,
        ..Default::default()
    };
    assert_eq!(format!("{otlp:?}"), format!("{default:?}"));
    let debug: profbridge_exporter_debug::Config = of("exporters.debug").extract().unwrap();
    assert_eq!(debug, profbridge_exporter_debug::Config::default());
    assert_eq!(ServiceSettings::new(&of("service")).unwrap(), ServiceSettings::default());
    let finished = run(tempfile::tempdir().unwrap().path(), &["validate", "--config", path().to_str().unwrap()]);
    assert!(finished.status.success() && !finished.stderr.contains("warning"), "{}", finished.stderr);
}
