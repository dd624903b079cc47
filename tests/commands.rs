//! The commands other than `run`: validate, config, components, convert, demo.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use profbridge_relay_rules::validate_json;
use profbridge_testkit::{RequestBuilder, T0, fixture, ms};
use prost::Message;

use crate::backend::sentry::{KEY, split_envelope};
use crate::client::gzip;
use crate::process::{captured, command, run};

/// The payloads in a folder of envelope files, which have one item each except for transactions.
fn payloads(folder: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let items = files.iter().map(|file| split_envelope(&std::fs::read(file).unwrap()).1.remove(0));
    items.filter(|(header, _)| header["type"] != "transaction").map(|(_, payload)| payload).collect()
}

/// Guarantees: help lists every command, and each has its own help, without lines wider than 100 columns.
#[test]
fn help() {
    let folder = tempfile::tempdir().unwrap();
    let help = run(folder.path(), &["--help"]).stdout;
    for command in ["run", "validate", "config", "components", "demo", "convert", "sample", "profiler"] {
        assert!(help.contains(command), "{help}");
        assert!(run(folder.path(), &[command, "--help"]).status.success());
    }
    for of in ["", "run", "convert", "demo", "sample", "top", "dump", "profiler", "profiler start"] {
        let arguments: Vec<&str> = of.split_whitespace().chain(["--help"]).collect();
        let help = run(folder.path(), &arguments).stdout;
        let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(!help.is_empty() && wide.is_empty(), "{of:?}: {wide:#?}");
    }
    assert!(run(folder.path(), &["convert", "--help"]).stdout.contains("exporters.sentry.environment=prod"));
    assert!(run(folder.path(), &["--version"]).stdout.starts_with("profbridge "));
    let unknown = run(folder.path(), &["convrt"]);
    assert!(!unknown.status.success() && unknown.stderr.contains("convert"), "{}", unknown.stderr);
}

/// Guarantees: a valid file is reported as valid; `config` shows the merged result without the secret.
#[test]
fn validate_and_config() {
    let folder = tempfile::tempdir().unwrap();
    let good = format!(
        "receivers: {{otlp: }}
processors: {{chunk: }}
exporters:
  sentry: {{dsn: 'https://{KEY}@sentry.example/1'}}
service:
  pipelines:
    profiles: {{receivers: [otlp], processors: [chunk], exporters: [sentry]}}
"
    );
    std::fs::write(folder.path().join("config.yaml"), &good).unwrap();
    let finished = run(folder.path(), &["validate"]);
    assert!(finished.status.success() && finished.stdout.contains("is valid"), "{}", finished.stderr);
    let shown = run(folder.path(), &["config", "--set", "service.identity.window=30s"]).stdout;
    assert!(shown.contains("30s") && !shown.contains(KEY), "{shown}");
}

/// Guarantees: every input format is recognised by its content, gzipped or not, and becomes envelopes that satisfy
/// Relay's rules; everything that was read is written.
/// rule: otep-0239#gzip-on-disk, otep-0239#same-layout
#[test]
fn convert_to_sentry() {
    let folder = tempfile::tempdir().unwrap();
    let request = fixture::request().encode_to_vec();
    let mut frames = Vec::new();
    for pid in 1..=2 {
        let one = RequestBuilder::new().process("frames", pid).on_cpu(20).sample(&["go!f", "go!g"], pid, &ms([0, 50]));
        let one = one.encode();
        frames.extend_from_slice(&(one.len() as u32).to_be_bytes());
        frames.extend_from_slice(&one);
    }
    let packed = gzip(&request);
    for (name, bytes) in [("raw", request), ("frames", frames), ("gzip", packed)] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let out = format!("{name}-out");
        let finished = run(folder.path(), &["convert", name, "-o", &out]);
        assert!(finished.status.success(), "{name}: {}", finished.stderr);
        let payloads = payloads(&folder.path().join(&out));
        assert!(payloads.len() >= 2, "{name}: {}", finished.stdout);
        for payload in payloads {
            validate_json(&payload).unwrap_or_else(|violations| panic!("{name}: {violations:?}"));
        }
    }
    let raw = payloads(&folder.path().join("raw-out"));
    assert_eq!(raw, payloads(&folder.path().join("gzip-out")), "gzip makes no difference");
}

/// Guarantees: collapsed stacks become OTLP and convert back unchanged, in the given unit; an invalid line is reported
/// and the others are kept.
#[test]
fn convert_collapsed_stacks() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in"), "main;parse 40\nmain 2\nno number\nmain;parse 2\n").unwrap();
    for (unit, expected) in [("count", "main 2\nmain;parse 42\n"), ("us", "main 2000\nmain;parse 42000\n")] {
        let finished = run(folder.path(), &["convert", "in", "-o", "x.otlp", "--folded-unit", unit]);
        assert!(finished.status.success(), "{}", finished.stderr);
        assert!(finished.stderr.contains("in: line 3: it does not end with an integer"), "{}", finished.stderr);
        let finished = run(folder.path(), &["convert", "x.otlp", "-o", "-", "--to", "folded"]);
        assert_eq!(finished.stdout, expected);
    }
}

/// Guarantees: a converted envelope is unchanged byte for byte, is not counted as a created one, and the last line
/// shows both counts.
#[test]
fn convert_counts_what_it_made() {
    let folder = tempfile::tempdir().unwrap();
    let one = RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["go!f"], 1, &ms([0, 50, 100]));
    std::fs::write(folder.path().join("otlp"), one.encode()).unwrap();
    let envelope = captured("python-2.75-profile_chunk.envelope");
    let envelope = &envelope;
    let said = |inputs: &[&str], out: &str| {
        let finished = run(folder.path(), &[&["convert"], inputs, &["-o", out]].concat());
        assert!(finished.status.success(), "{}", finished.stderr);
        finished.stdout
    };
    let made = "wrote 1 envelope with 4 samples (1 of them synthesized)";
    assert_eq!(said(&["otlp"], "made"), format!("{made} to made\n"));
    assert_eq!(said(&[envelope], "forwarded"), "wrote 1 envelope, as it came in, to forwarded\n");
    assert_eq!(said(&[envelope, "otlp"], "both"), format!("{made}, and 1 as it came in, to both\n"));
    for folder in ["forwarded", "both"].map(|name| folder.path().join(name)) {
        let copy = std::fs::read(folder.join("input-0001.envelope")).unwrap();
        assert_eq!(split_envelope(&copy), split_envelope(&std::fs::read(envelope).unwrap()));
    }
    assert_eq!(std::fs::read_dir(folder.path().join("both")).unwrap().count(), 2);
}

/// Guarantees: sampled time that is not shown is reported, however little it is, in a fitting unit; if everything is
/// shown there is no such report.
#[test]
fn convert_says_what_time_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    // The period is 10 ms, but samples are taken at these distances, in nanoseconds.
    for (spacing, said) in [(5_000_000, Some("ms of time are not shown")), (9_999_000, None), (10_000_000, None)] {
        let times: Vec<u64> = (0..100).map(|n| T0 + n * spacing).collect();
        let request = RequestBuilder::new().process("p", 1).on_cpu(100).sample(&["go!f", "go!main"], 7, &times);
        std::fs::write(folder.path().join("in"), request.encode()).unwrap();
        let finished = run(folder.path(), &["convert", "in", "-o", "out"]);
        assert!(finished.status.success(), "{}", finished.stderr);
        assert_eq!(finished.stderr.contains("of time are not shown"), said.is_some(), "{}", finished.stderr);
        assert!(said.is_none_or(|said| finished.stderr.contains(said)), "{}", finished.stderr);
    }
}

/// Guarantees: `--set` affects a conversion like `run`: how chunks are made, where windows end, and how resends in OTLP
/// are handled; a window that reached its bounds is written with all its observations.
#[test]
fn convert_follows_set() {
    let folder = tempfile::tempdir().unwrap();
    let one =
        RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["shop!f", "go!main"], 1, &ms([0, 50, 4_000, 4_050]));
    std::fs::write(folder.path().join("in"), one.encode()).unwrap();
    let convert = |out: &str, sets: &[&str]| {
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        let arguments: Vec<&str> = ["convert", "in", "in", "-o", out].into_iter().chain(sets).collect();
        let finished = run(folder.path(), &arguments);
        assert!(finished.status.success(), "{}", finished.stderr);
        (folder.path().join(out), finished.stdout)
    };
    let chunks = |path: &Path| -> Vec<serde_json::Value> {
        payloads(path).iter().map(|payload| serde_json::from_slice(payload).unwrap()).collect()
    };
    let (plain, _) = convert("plain", &[]);
    let (set, _) = convert("set", &["exporters.sentry.environment=prod", "exporters.sentry.max_gap=1s"]);
    assert!(chunks(&plain).iter().all(|chunk| chunk["environment"] == "production"));
    assert!(chunks(&set).iter().all(|chunk| chunk["environment"] == "prod"));
    assert_eq!((chunks(&plain).len(), chunks(&set).len()), (1, 2));
    let (cut, _) = convert("cut", &["service.identity.window=2s"]);
    assert_eq!(chunks(&cut).len(), 2);

    assert!(convert("once.otlp", &[]).1.starts_with("wrote 4 observations"));
    assert!(convert("twice.otlp", &["processors.dedup.resends=keep"]).1.starts_with("wrote 8 observations"));
    let early = ["processors.dedup.resends=keep", "processors.dedup.max_observations=1"];
    assert!(convert("early.otlp", &early).1.starts_with("wrote 8 observations"));
    let finished = run(folder.path(), &["convert", "early.otlp", "-o", "early.folded"]);
    assert!(finished.stderr.contains("read 8 observations"), "{}", finished.stderr);
}

/// Guarantees: an unknown file is named, the others are still converted, and the exit status shows the failure.
#[test]
fn convert_goes_on_after_a_bad_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bad"), b"this is no profile\n").unwrap();
    std::fs::write(folder.path().join("good"), fixture::request().encode_to_vec()).unwrap();
    let finished = run(folder.path(), &["convert", "bad", "missing", "good", "-o", "out"]);
    assert!(!finished.status.success());
    assert!(finished.stderr.contains("bad: ") && finished.stderr.contains("missing: "), "{}", finished.stderr);
    assert!(!payloads(&folder.path().join("out")).is_empty());
}

/// Guarantees: when a conversion waits for the reader of a pipe, it says so and names the pipe; once there is a reader
/// the result is written.
#[test]
fn convert_says_that_it_waits_for_a_reader() {
    let folder = tempfile::tempdir().unwrap();
    let one = RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["go!f"], 1, &ms([0, 50]));
    std::fs::write(folder.path().join("otlp"), one.encode()).unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut child = command(folder.path(), &["convert", "otlp", "--to", "folded", "-o", "pipe"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("waiting until somebody reads pipe")), "it ended without a word");
    let stacks = std::fs::read_to_string(&pipe).unwrap();
    assert!(stacks.ends_with("f 100000000\n"), "{stacks}");
    assert!(child.wait().unwrap().success());
}

/// Guarantees: `view` serves the page of its files, or of the difference of two, on the loopback and under names of the
/// loopback only, with the page's policy, and SIGINT ends it.
#[test]
fn view_serves_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let one = RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["go!hot", "go!main"], 1, &ms([0, 50]));
    std::fs::write(folder.path().join("otlp"), one.encode()).unwrap();
    for (arguments, what) in [(&["otlp"][..], "\"difference\":null"), (&["--diff", "otlp", "otlp"], "\"difference\":{")]
    {
        let arguments: Vec<&str> = ["view", "--no-open"].into_iter().chain(arguments.iter().copied()).collect();
        let mut child =
            command(folder.path(), &arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find(|line| line.starts_with("http://127.0.0.1:")).unwrap();
        let address = line.split('/').nth(2).unwrap();
        let answer = |host: &str, path: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let page = answer(address, "/");
        assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("\"main\"") && page.contains(what), "{page}");
        assert!(page.contains("\r\ncontent-security-policy: default-src 'none'; script-src 'sha256-"), "{page}");
        assert!(answer("localhost", "/favicon.ico").starts_with("HTTP/1.1 404 "));
        assert!(answer("shop.example", "/").starts_with("HTTP/1.1 403 "), "a page elsewhere must not read it");
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        assert!(child.wait().unwrap().success());
    }
    let refused = run(folder.path(), &["view", "--diff", "otlp"]);
    assert!(refused.status.code() == Some(2) && refused.stderr.contains("compares two files"), "{}", refused.stderr);
}
