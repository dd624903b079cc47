//! Wrong configurations, each with its expected report.
//!
//! `testdata/config/bad/NAME.yaml` is checked against `NAME.txt`; `UPDATE_EXPECT=1` rewrites the texts. Lines `# case:
//! env NAME=value`, `# case: then FILE` and `# case: set key=value` at the beginning of a file give it an environment,
//! more files and assignments.

// Test helpers may panic like tests; clippy only recognises functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use profbridge_engine::config::{
    self, ByteSize, Config, Duration, KnownComponents, Optional, Problem, Problems, Secret, Section, Source,
};
use serde::Deserialize;

/// Part of every secret in the test data; must not appear in any output.
const SECRET: &str = "s3cr3t";

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OtlpSection {
    protocols: Protocols,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Protocols {
    grpc: Optional<ServerSection>,
    http: Optional<ServerSection>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ServerSection {
    endpoint: String,
    max_request_size: ByteSize,
    timeout: Duration,
    tls: Option<Tls>,
}

impl Default for ServerSection {
    fn default() -> Self {
        Self {
            endpoint: "localhost:4317".into(),
            max_request_size: ByteSize::from_mib(64),
            timeout: Duration::from_secs(5),
            tls: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    cert_file: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SentrySection {
    dsn: Secret,
    headers: BTreeMap<String, Secret>,
    routes: Vec<Route>,
    timeout: Duration,
    compression: CompressionChoice,
    region: String,
    ratio: f64,
    retries: u8,
    queue: Queue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Route {
    r#match: String,
    dsn: Secret,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Queue {
    enabled: bool,
    size: u16,
    workers: u32,
    bytes: ByteSize,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CompressionChoice {
    #[default]
    Auto,
    Zstd,
    Gzip,
    None,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Debug {
    verbosity: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ChunkSection {}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Telemetry {
    logs: Logs,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Logs {
    level: String,
}

const KNOWN: KnownComponents<'_> =
    KnownComponents { receivers: &["otlp"], processors: &["chunk"], exporters: &["sentry", "debug"] };

fn read<T: serde::de::DeserializeOwned>(section: &Section, problems: &mut Vec<Problem>) -> Option<T> {
    match section.extract::<T>() {
        Ok(settings) => Some(settings),
        Err(found) => {
            problems.extend(found);
            None
        }
    }
}

/// Checks rules that only the component knows. The message quotes the value, as a careless component would.
fn check_sentry(section: &Section, problems: &mut Vec<Problem>) {
    let Some(sentry) = read::<SentrySection>(section, problems) else { return };
    let dsn = sentry.dsn.expose();
    if !dsn.is_empty() && !dsn.starts_with("https://") {
        let message = format!("`{dsn}` is no DSN, neither is its beginning `{:.12}`", sentry.dsn.expose());
        problems.push(section.problem("dsn", message, "copy it from the project settings, client keys"));
    }
    for (index, route) in sentry.routes.iter().enumerate() {
        if !route.dsn.expose().contains("://") || route.r#match.is_empty() {
            problems.push(section.problem(&format!("routes.{index}.dsn"), "no route", ""));
        }
    }
}

/// All checks that an engine makes before it starts.
fn check(config: &Config) -> Vec<Problem> {
    let mut problems = config::check_references(config, &KNOWN);
    for (id, section) in config.receivers.iter().filter(|(id, _)| id.kind == "otlp") {
        assert!(section.key_path().contains(&id.kind));
        if let Some(otlp) = read::<OtlpSection>(section, &mut problems) {
            for server in [otlp.protocols.grpc, otlp.protocols.http].iter().filter_map(Optional::as_ref) {
                let tls = server.tls.as_ref().map(|tls| tls.cert_file.as_str());
                assert!(!server.endpoint.is_empty() && server.max_request_size.get() > 0 && tls != Some("-"));
                assert!(!server.timeout.is_zero());
            }
        }
    }
    for (_, section) in config.processors.iter().filter(|(id, _)| id.kind == "chunk") {
        read::<ChunkSection>(section, &mut problems);
    }
    for (id, section) in config.exporters.iter() {
        match id.kind.as_str() {
            "sentry" => check_sentry(section, &mut problems),
            "debug" => drop(read::<Debug>(section, &mut problems)),
            _ => {}
        }
    }
    read::<Telemetry>(&config.telemetry, &mut problems);
    problems
}

/// A test file with its environment, further files and assignments.
struct Case {
    sources: Vec<Source>,
    env: BTreeMap<String, String>,
}

impl Case {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut sources = vec![Source::Text { name: name(path), text: text.clone() }];
        let mut env = BTreeMap::new();
        for line in text.lines().map_while(|line| line.strip_prefix("# case: ")) {
            let (word, rest) = line.split_once(' ').unwrap();
            match word {
                "env" => {
                    let (name, value) = rest.split_once('=').unwrap();
                    env.insert(name.to_owned(), value.to_owned());
                }
                "then" => {
                    let part = path.with_file_name(rest);
                    sources.push(Source::Text { name: name(&part), text: fs::read_to_string(part).unwrap() });
                }
                "set" => sources.push(Source::Set(rest.to_owned())),
                other => panic!("{}: unknown case line `{other}`", path.display()),
            }
        }
        Self { sources, env }
    }

    fn load(&self) -> Result<Config, Problems> {
        config::load(&self.sources, &|name| self.env.get(name).cloned())
    }

    /// Returns the report as a person reads it.
    fn problem_report(&self) -> String {
        let mut out = String::new();
        let problems = match self.load() {
            Err(problems) => problems,
            Ok(config) => {
                let debug = format!("{config:?} {:?} {}", config.pipelines, config.redacted_yaml());
                assert!(!debug.contains(SECRET), "a secret is printed: {debug}");
                Problems::new(check(&config)).expect("nothing is wrong with this")
            }
        };
        writeln!(out, "{problems}").unwrap();
        out
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn bad_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/config/bad");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

/// Guarantees: for every bad file the problems, positions, lines, carets and hints match the recorded ones exactly, and
/// no secret of the file is shown.
#[test]
fn bad_files_are_reported() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    let files = bad_files();
    assert!(files.len() >= 40, "only {} files", files.len());
    for path in files {
        let told = Case::read(&path).problem_report();
        assert!(!told.contains(SECRET), "{} shows a secret:\n{told}", path.display());
        let expected_path = path.with_extension("txt");
        if update {
            fs::write(&expected_path, &told).unwrap();
        } else if fs::read_to_string(&expected_path).unwrap_or_default() != told {
            wrong.push(format!("{}:\n{told}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "not as recorded (UPDATE_EXPECT=1 records):\n{}", wrong.join("\n"));
}
