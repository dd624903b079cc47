//! The README: its commands are extracted and run, its links work, and its picture shows what the demo draws.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use profbridge_relay_rules::validate_json;

use crate::backend::sentry::{KEY, SentryBackend, split_envelope};
use crate::process::{Profbridge, command};
#[cfg(target_os = "linux")]
use crate::{process::finished, sample::until_met};

/// The first command for a newcomer: it needs no account, no server and no special permission.
const TRY_IT: &str = "cargo run --release -- demo --own";

/// More words than this are more than a newcomer reads.
const MOST_WORDS: usize = 900;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).unwrap()
}

/// The lines of all shell blocks, in order.
fn commands() -> Vec<String> {
    let readme = readme();
    let blocks = readme.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.flat_map(str::lines).map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// The only command that begins with `start`.
fn the_command(start: &str) -> String {
    let mut found: Vec<_> = commands().into_iter().filter(|command| command.starts_with(start)).collect();
    assert_eq!(found.len(), 1, "{start}: {found:?}");
    found.remove(0)
}

/// A command line of the README, in a shell whose `profbridge` is this build.
fn shell(folder: &Path, line: &str) -> Command {
    let mut shell = command(folder, &[]);
    let binary = Path::new(env!("CARGO_BIN_EXE_profbridge"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let environment: Vec<_> =
        shell.get_envs().map(|(name, value)| (name.to_owned(), value.map(|v| v.to_owned()))).collect();
    shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(folder).stdin(Stdio::null()).env("PATH", path);
    for (name, value) in environment {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// The functions in a flame graph.
fn functions(svg: &str) -> BTreeSet<String> {
    let titles = svg.split("<title>").skip(1).filter_map(|rest| rest.lines().next());
    titles.map(str::to_owned).collect()
}

/// Guarantees: the tests below cover every command of the README. The installation command installs the binary
/// `profbridge` with the documented Rust version; the release check runs it.
#[test]
fn every_command_is_known() {
    let known = [
        TRY_IT,
        "cargo test --workspace",
        "cargo install --locked --profile dist --path pipeline/cli",
        "profbridge sample --pid ",
        "profbridge sample -- ",
        "export SENTRY_DSN=https://KEY@",
        "profbridge run",
        "ebpf-profiler -collection-agent=127.0.0.1:4317 -disable-tls -env-vars=OTEL_SERVICE_NAME,OTEL_RESOURCE_ATTRIBUTES",
        "profbridge demo",
    ];
    for command in commands() {
        assert!(known.iter().any(|known| command.starts_with(known)), "no test runs `{command}`");
    }
    known.iter().for_each(|known| drop(the_command(known)));
    let manifest = std::fs::read_to_string(root().join("pipeline/cli/Cargo.toml")).unwrap();
    assert!(manifest.contains("name = \"profbridge\""), "{manifest}");
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(workspace.contains("rust-version = \"1.89\"") && readme().contains("Rust 1.89"));
    assert!(workspace.contains("default-members = [\"pipeline/cli\"]"), "`cargo run` runs another binary");
}

/// Guarantees: the commands work unchanged to profile a process and a command.
#[cfg(target_os = "linux")]
#[test]
fn profile_a_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let line = the_command("profbridge sample --pid ");
    let met = until_met(|| finished(shell(folder.path(), &line).env("PID", busy.id().to_string())));
    busy.kill().unwrap();
    busy.wait().unwrap();
    let said = met.stderr + &met.stdout;
    assert!(met.status.success() && said.contains("running:"), "{said}");
    assert!(folder.path().join(format!("profile-{}.svg", busy.id())).is_file(), "{said}");

    let met = until_met(|| finished(&mut shell(folder.path(), &the_command("profbridge sample -- "))));
    assert!(met.status.success() && met.stderr.contains("wrote profile-"), "{}", met.stderr);
}

/// Guarantees: the three steps to Sentry work with the configuration beside the README: the demo's profile arrives in
/// the project of the DSN, and the profiler's command names a port on which profbridge listens.
#[test]
fn send_to_sentry() {
    let sentry = SentryBackend::start();
    let config = std::fs::read_to_string(root().join("config.yaml")).unwrap();
    for (port, what) in [("127.0.0.1:4317", "grpc"), ("127.0.0.1:4318", "http")] {
        assert!(config.contains(&format!("endpoint: {port}")), "config.yaml does not listen on {port} for {what}");
    }
    assert_eq!(the_command("profbridge run"), "profbridge run");
    let config = config.replace("window: 60s", "window: 1s").replace("lateness: 10s", "lateness: 0s");
    let any_port = config.replace("127.0.0.1:4317", "127.0.0.1:0").replace("127.0.0.1:4318", "127.0.0.1:0");
    let profbridge = Profbridge::start_with(&any_port, &[("SENTRY_DSN", &sentry.dsn(1))]);
    let (grpc, http) = (profbridge.address("otlp/grpc").to_string(), profbridge.address("otlp/http").to_string());
    // The addresses where the demo looks for the running pipeline.
    let found = config.replace("127.0.0.1:4317", &grpc).replace("127.0.0.1:4318", &http);
    let [health, metrics] =
        ["health", "metrics"].map(|name| profbridge.address(&format!("{name}/telemetry")).to_string());
    let found = found.replace("127.0.0.1:13133", &health).replace("127.0.0.1:8888", &metrics);
    std::fs::write(profbridge.folder().join("config.yaml"), found).unwrap();
    let output = shell(profbridge.folder(), &the_command("profbridge demo")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("sent to the pipeline that runs"), "{said}\n{}", profbridge.log());
    for chunk in sentry.wait_for_chunks(1) {
        validate_json(&serde_json::to_vec(&chunk).unwrap()).unwrap();
    }
    let (_, log) = profbridge.stop();
    assert!(!log.contains(KEY), "{log}");
}

/// Guarantees: the README's first command writes the documented files, with envelopes that satisfy Relay's rules, and
/// the picture shows exactly the functions that it draws.
#[test]
fn the_picture_is_what_the_demo_draws() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(commands()[0], TRY_IT);
    let line = TRY_IT.replace("cargo run --release --", "profbridge");
    let output = shell(folder.path(), &line).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let envelope = std::fs::read_dir(folder.path().join("out/demo/envelopes")).unwrap().next().unwrap().unwrap();
    let (_, items) = split_envelope(&std::fs::read(envelope.path()).unwrap());
    validate_json(&items[0].1).unwrap();
    assert!(readme().contains("`out/demo/flamegraph.svg`") && readme().contains("`out/demo/envelopes`"));
    let drawn = std::fs::read_to_string(folder.path().join("out/demo/flamegraph.svg")).unwrap();
    let shown = std::fs::read_to_string(root().join("examples/demo.svg")).unwrap();
    assert!(functions(&drawn).len() > 10);
    assert_eq!(
        functions(&shown),
        functions(&drawn),
        "run `profbridge demo --own` and put out/demo/flamegraph.svg in its place, without the script: a picture runs none"
    );
    assert!(!shown.contains("<script"));
    assert!(readme().contains("](examples/demo.svg)"));
}

/// Guarantees: the README can be read in three minutes.
#[test]
fn short() {
    let readme = readme();
    let words = readme.split_whitespace().count();
    assert!(words <= MOST_WORDS, "{words} words");
}
