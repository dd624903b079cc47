//! Common mistakes with `convert`, `sample` and `demo`: the messages, the files left behind, and the exit status.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use profbridge_testkit::{RequestBuilder, fixture, ms};
use prost::Message;

use crate::backend::sentry::{Behaviour, Sentry};
use crate::main_job::to_sentry;
use crate::process::{Finished, Profbridge, command, run};

/// A captured envelope of a real SDK.
fn captured(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/testdata/sentry").join(name);
    path.to_str().unwrap().to_owned()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// A profile that can be converted to anything.
fn good() -> Vec<u8> {
    RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["go!hot", "go!main"], 1, &ms([0, 50])).encode()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Asserts that a command failed with status 1 and printed all of these parts.
fn refused(finished: &Finished, parts: &[&str]) {
    ended(finished, 1, parts);
}

/// Asserts that the command line was refused with all of these parts.
fn wrong(finished: &Finished, parts: &[&str]) {
    ended(finished, 2, parts);
}

fn ended(finished: &Finished, code: i32, parts: &[&str]) {
    assert_eq!(finished.status.code(), Some(code), "{}{}", finished.stdout, finished.stderr);
    for part in parts {
        assert!(finished.stderr.contains(part), "no `{part}`:\n{}", finished.stderr);
    }
    assert_eq!(finished.stdout, "", "nothing is a result");
}

/// Guarantees: an unsupported format is named, gzipped or not, with an alternative; it is not mistaken for another
/// format, and nothing is written.
#[test]
fn other_formats() {
    let otlp_json = br#"{"resourceLogs":[{"scopeLogs":[]}]}"#;
    let cpuprofile = br#"{"nodes":[],"startTime":1,"endTime":2,"samples":[],"timeDeltas":[]}"#;
    for (bytes, name) in [
        (&otlp_json[..], "OTLP logs as JSON"),
        (cpuprofile, ".cpuprofile"),
        (b"PERFILE2\0\0\0\0", "perf.data"),
        (b"FLR\0\0\x02\0\0", "JFR"),
    ] {
        for bytes in [bytes.to_vec(), gzip(bytes)] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("in"), bytes).unwrap();
            for to in ["sentry", "otlp", "folded", "svg"] {
                let finished = run(folder.path(), &["convert", "in", "-o", "out", "--to", to]);
                refused(&finished, &["in: is ", name, "not supported", "hint: ", "nothing was written to out"]);
                assert!(!finished.stderr.contains("Telegraf"), "{}", finished.stderr);
            }
            assert_eq!(names(folder.path()), ["in"]);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    // Starts with the same byte as a request.
    std::fs::write(folder.path().join("in"), "\nname,value\n").unwrap();
    refused(
        &run(folder.path(), &["convert", "in", "-o", "out"]),
        &["in: is neither OTLP profiles or traces in protobuf or JSON, nor"],
    );
    std::fs::write(folder.path().join("in"), gzip(b"who knows")).unwrap();
    refused(
        &run(folder.path(), &["convert", "in", "-o", "out"]),
        &["compressed with gzip, and what is in it is neither"],
    );
}

/// Guarantees: a missing file, a folder and an empty file are reported as such, and an earlier result stays unchanged.
#[test]
fn nothing_to_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    std::fs::write(folder.path().join("empty"), "").unwrap();
    std::fs::write(folder.path().join("out.svg"), "from before").unwrap();
    for (input, said) in [
        ("missing", "missing: No such file or directory"),
        ("folder", "folder: it is a folder; name the files in it"),
        ("empty", "empty: is empty"),
    ] {
        let finished = run(folder.path(), &["convert", input, "-o", "out.svg"]);
        refused(&finished, &[said, "nothing was written to out.svg: no input could be read"]);
        assert!(!finished.stderr.contains("not a single stack"), "{}", finished.stderr);
        assert_eq!(std::fs::read_to_string(folder.path().join("out.svg")).unwrap(), "from before");
    }
    assert_eq!(names(folder.path()), ["empty", "folder", "out.svg"]);
}

/// Guarantees: if everything was dropped, the reason is explained with the remedy, and the exit status shows that there
/// is no result; a format that supports the data accepts the same file.
#[test]
fn everything_dropped() {
    let folder = tempfile::tempdir().unwrap();
    // Allocations have neither timestamps nor a unit of time.
    let request = RequestBuilder::new().process("p", 1).profile("alloc_space", "bytes").value(&["go!f"], 7);
    let request = request.period("cpu", "nanoseconds", 10_000_000);
    std::fs::write(folder.path().join("heap"), request.encode()).unwrap();
    let finished = run(folder.path(), &["convert", "heap", "-o", "out"]);
    refused(
        &finished,
        &[
            "1 observation dropped as no_time_unit: Sentry shows where time goes",
            "the values of type \"alloc_space\" have the unit \"bytes\"",
            "nothing of what was read could be converted",
        ],
    );
    assert_eq!(names(folder.path()), ["heap"]);
    let finished = run(folder.path(), &["convert", "heap", "-o", "out.folded"]);
    assert!(finished.status.success(), "{}", finished.stderr);
}

/// Guarantees: a result of several files is written completely or not at all: if one cannot be created, the others are
/// not written, and existing files stay.
#[test]
fn all_files_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let request = RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["go!hot"], 1, &ms([0, 50]));
    std::fs::write(path("one"), request.process("q", 2).on_cpu(20).sample(&["go!hot"], 1, &ms([0, 50])).encode())
        .unwrap();
    for ending in ["envelope", "pprof"] {
        let (first, second) = (format!("x.{ending}"), format!("x-2.{ending}"));
        std::fs::write(path(&first), "from before").unwrap();
        std::fs::create_dir(path(&second)).unwrap();
        let finished = run(folder.path(), &["convert", "one", "-o", &first]);
        refused(&finished, &[&format!("{second}: it is a folder")]);
        assert_eq!(std::fs::read_to_string(path(&first)).unwrap(), "from before");
        std::fs::remove_dir(path(&second)).unwrap();
        let finished = run(folder.path(), &["convert", "one", "-o", &first]);
        assert!(finished.status.success(), "{}", finished.stderr);
        assert!(path(&second).is_file() && std::fs::read(path(&first)).unwrap() != b"from before");
    }
    assert_eq!(names(folder.path()), ["one", "x-2.envelope", "x-2.pprof", "x.envelope", "x.pprof"]);
}

/// Guarantees: an envelope without readable items gives no empty result; instead its items are listed, with a way to
/// get one that has profiles or spans. The same holds for spans in a format that does not support them.
#[test]
fn envelopes_without_a_profile() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let event = outside.path().join("event.envelope");
    std::fs::write(&event, "{}\n{\"type\":\"event\"}\n{}\n").unwrap();
    let event = event.to_str().unwrap();
    for out in ["out", "out.otlp", "out.json", "out.pprof", "out.folded", "out.svg"] {
        let parts =
            ["the envelope holds 1 event", "no profile (`profile_chunk`, `profile`)", "`transaction`", "hint: "];
        refused(&run(folder.path(), &["convert", event, "-o", out]), &parts);
    }
    for name in ["python-2.75-transaction.envelope", "node-11.1-span.envelope"] {
        for (out, why) in [
            ("out.pprof", "pprof holds profiles alone"),
            ("out.folded", "stacks are made of"),
            ("out.svg", "stacks are"),
        ] {
            let parts = ["read 2 spans", "left out 2 spans: ", why, "hint: ", "nothing was written to"];
            refused(&run(folder.path(), &["convert", &captured(name), "-o", out]), &parts);
        }
    }
    assert_eq!(names(folder.path()), [""; 0]);
}

/// Guarantees: without `--to` the file extension selects the format, as in `sample`; a name without one is a folder; an
/// unknown extension, or one that contradicts `--to sentry`, is refused with a list of extensions.
#[test]
fn endings() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("in"), good()).unwrap();
    for out in ["x.svg", "x.FOLDED", "x.otlp", "x.otlp.json", "x.json", "x.envelope", "x"] {
        let finished = run(folder.path(), &["convert", "in", "-o", out]);
        assert!(finished.status.success(), "{out}: {}", finished.stderr);
        assert_eq!(path(out).is_dir(), out == "x", "{out}");
    }
    assert!(std::fs::read_to_string(path("x.svg")).unwrap().contains("<svg"));
    assert!(std::fs::read_to_string(path("x.FOLDED")).unwrap().contains("main;hot"));
    assert!(std::fs::read_to_string(path("x.json")).unwrap().starts_with("{\"resourceProfiles\":[{"));
    assert!(std::fs::read_to_string(path("x.envelope")).unwrap().contains("profile_chunk"));
    assert_eq!(std::fs::read(path("x.otlp.json")).unwrap(), std::fs::read(path("x.json")).unwrap());
    let both = "`.pb` stands for pprof and for OTLP";
    wrong(&run(folder.path(), &["convert", "in", "-o", "x.pb"]), &[both, "`.pb.gz`", "`--to otlp`"]);
    let asked_for = run(folder.path(), &["convert", "in", "-o", "x.pb", "--to", "otlp"]);
    assert!(asked_for.status.success(), "{}", asked_for.stderr);
    assert_eq!(std::fs::read(path("x.otlp")).unwrap(), std::fs::read(path("x.pb")).unwrap());
    wrong(
        &run(folder.path(), &["convert", "in", "-o", "x.txt"]),
        &["the ending does not say", ".svg", "--to", "a folder"],
    );
    wrong(&run(folder.path(), &["convert", "in", "-o", "y.svg", "--to", "sentry"]), &["`--to sentry`", ".envelope"]);
    std::fs::write(path("file"), "mine").unwrap();
    refused(&run(folder.path(), &["convert", "in", "-o", "file"]), &["file is no folder", "hint: "]);
    // The same file under another name.
    std::fs::hard_link(path("x.otlp"), path("same.otlp")).unwrap();
    let both = run(folder.path(), &["convert", "in", "x.otlp", "-o", "same.otlp"]);
    refused(&both, &["same.otlp: it is one of the inputs", "name another output"]);
    assert_eq!(std::fs::read(path("x.otlp")).unwrap(), std::fs::read(path("same.otlp")).unwrap());
    // Through a folder that is created for the output.
    refused(&run(folder.path(), &["convert", "x.otlp", "-o", "made/../x.otlp", "--to", "svg"]), &["one of the inputs"]);
    assert_eq!(std::fs::read(path("x.otlp")).unwrap(), std::fs::read(path("same.otlp")).unwrap());
    for path in ["z.svg/", "z.svg/."] {
        refused(&run(folder.path(), &["convert", "in", "-o", path]), &[path, ": it names a folder"]);
    }
    assert!(!path("y.svg").exists() && !path("x.txt").exists());
}

/// Guarantees: a device can be written in every format and stays a device; a full one is an error.
#[test]
fn devices() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in"), good()).unwrap();
    // Own symlinks, so that a bug in the code under test can only damage those.
    for device in ["null", "full"] {
        std::os::unix::fs::symlink(format!("/dev/{device}"), folder.path().join(device)).unwrap();
    }
    for to in ["otlp", "folded", "svg", "speedscope", "firefox"] {
        let finished = run(folder.path(), &["convert", "in", "-o", "null", "--to", to]);
        assert!(finished.status.success(), "{}", finished.stderr);
        refused(&run(folder.path(), &["convert", "in", "-o", "full", "--to", to]), &["full: No space left on device"]);
    }
    refused(&run(folder.path(), &["convert", "in", "-o", "null"]), &["null is no folder", "--to svg|folded|"]);
    assert!(["null", "full"].iter().all(|name| folder.path().join(name).is_symlink()));
    assert_eq!(names(folder.path()), ["full", "in", "null"]);
}

/// Guarantees: `-` is standard input and standard output, and standard output contains only the result.
#[test]
fn standard_streams() {
    let folder = tempfile::tempdir().unwrap();
    let piped = |arguments: &[&str]| {
        let mut command = command(folder.path(), arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // If the command refuses its arguments, it does not read its input.
        child.stdin.take().unwrap().write_all(&good()).ok();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stdout, stderr) = piped(&["convert", "-", "-o", "-", "--to", "folded"]);
    assert_eq!((code, stdout.lines().count()), (Some(0), 1), "{stderr}");
    assert!(stdout.contains("main;hot "), "{stdout}");
    let (code, _, stderr) = piped(&["convert", "-", "-o", "-"]);
    assert!(code == Some(2) && stderr.contains("it has no ending that says"), "{stderr}");
    let (code, _, stderr) = piped(&["convert", "-", "-o", "-", "--to", "sentry"]);
    assert!(code == Some(2) && stderr.contains("name a folder"), "{stderr}");
    assert_eq!(names(folder.path()), [""; 0]);
}

/// Guarantees: a result that cannot be written to standard output is an error, unless the reader closed it early.
#[test]
fn full_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command(folder.path(), &["components"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("standard output: No space left on device"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(folder.path(), &["components"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

/// Guarantees: output after the reader closed the pipe is not reported as written, and is no error.
#[test]
fn early_reader() {
    let folder = tempfile::tempdir().unwrap();
    let stacks: String = (0..20_000).map(|number| format!("main;function_{number} 1\n")).collect();
    std::fs::write(folder.path().join("a.folded"), stacks).unwrap();
    let mut converting = command(folder.path(), &["convert", "a.folded", "-o", "-", "--to", "folded"]);
    let mut child = converting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut stdout, &mut [0; 10]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("the reader closed it after ") && !stderr.contains("wrote"), "{stderr}");
}

/// Guarantees: a file name cannot send terminal control sequences, reverse the text of a message, or start a new line.
#[test]
fn names_cannot_command_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let name = "a\u{1b}[2J\u{202e}gpj\nerror: b";
    std::fs::write(folder.path().join(name), "nothing known").unwrap();
    let finished = run(folder.path(), &["convert", name, "-o", "out"]);
    refused(&finished, &["a\\u{1b}[2J\\u{202e}gpj\\u{a}error: b: is neither OTLP"]);
    assert!(!finished.stderr.contains(['\u{1b}', '\u{202e}']), "{:?}", finished.stderr);
}

/// Guarantees: a configuration without `--config` before it, and a file as the demo's folder, get an error with the
/// right syntax.
#[test]
fn misplaced_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("my.yaml"), "mine").unwrap();
    for command in ["run", "validate", "config", "demo"] {
        let finished = run(folder.path(), &[command, "my.yaml"]);
        assert_eq!(finished.status.code(), Some(2));
        assert!(finished.stderr.contains("`--config my.yaml`"), "{}", finished.stderr);
    }
    refused(
        &run(folder.path(), &["demo", "--own", "-o", "my.yaml"]),
        &["my.yaml is no folder", "`-o` names the folder"],
    );
    assert_eq!(std::fs::read_to_string(folder.path().join("my.yaml")).unwrap(), "mine");
}

/// Guarantees: the help has the table of exit statuses, and the command-line page has the same text.
#[test]
fn exit_statuses_are_documented() {
    let folder = tempfile::tempdir().unwrap();
    let help = run(folder.path(), &["--help"]).stdout;
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, table) = help.split_once("Exit status:").unwrap();
    let table = words(table);
    let page = std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let (_, page) = page.split_once("## Exit status").unwrap();
    let mut rows = 0;
    let page = page.split_once("\n\n").and_then(|(_, page)| page.split("\n\n").next()).unwrap();
    for row in page.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(table.contains(&format!("{} {}", cells[0], words(cells[1]))), "help has no `{row}`:\n{help}");
        rows += 1;
    }
    assert_eq!(rows, 4);
}

/// Runs the demo through a running profbridge with this configuration.
fn demo(profbridge: &Profbridge, config: &str) -> (Finished, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.yaml"), config).unwrap();
    let set = |key: &str, name: &str| format!("{key}={}", profbridge.address(name));
    let sets = [
        set("service.telemetry.metrics.address", "metrics/telemetry"),
        set("service.telemetry.health.address", "health/telemetry"),
        set("receivers.otlp.protocols.http.endpoint", "otlp/http"),
    ];
    let mut arguments = vec!["demo", "--seconds", "2"];
    sets.iter().for_each(|set| arguments.extend(["--set", set]));
    (run(folder.path(), &arguments), folder)
}

/// Guarantees: the demo succeeds if Sentry accepted the profile, and otherwise fails with the meaning of the answer.
#[test]
fn demo_says_what_sentry_said() {
    let sentry = Sentry::start();
    let config = to_sentry(&sentry.dsn(1), "{window: 0s}", "");
    let profbridge = Profbridge::start(&config);
    let (finished, _folder) = demo(&profbridge, &config);
    assert!(finished.status.success(), "{}", finished.stderr);
    assert!(finished.stderr.contains("\nexporter sentry: "), "{}", finished.stderr);
    sentry.wait_for_chunks(1);
    sentry.always(Behaviour::Answer(401, vec![]));
    let (finished, _folder) = demo(&profbridge, &config);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    for part in ["error: exporter sentry: ", " came, ", ", 0 sent", "dropped as rejected_by_peer: ", "401: the DSN"] {
        assert!(finished.stderr.contains(part), "no `{part}`:\n{}", finished.stderr);
    }
}

/// Guarantees: the fixture of the other tests can be converted, so that they do not fail for another reason.
#[test]
fn good_ones_are_good() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in"), fixture::request().encode_to_vec()).unwrap();
    for out in ["out", "out.otlp", "out.folded", "out.svg", "out.envelope"] {
        let finished = run(folder.path(), &["convert", "in", "-o", out]);
        assert!(finished.status.success(), "{out}: {}", finished.stderr);
    }
}

/// Guarantees: a Collector configuration with `memory_limiter` gets an error that names the corresponding setting.
#[test]
fn memory_limiter_names_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    let config = to_sentry("", "{window: 0s}", "")
        .replace("processors: {", "processors: {memory_limiter: {check_interval: 1s, limit_mib: 512}, ")
        .replace("processors: [", "processors: [memory_limiter, ");
    std::fs::write(folder.path().join("config.yaml"), config).unwrap();
    let finished = run(folder.path(), &["validate"]);
    refused(&finished, &["there is no processor of the type `memory_limiter`", "set `service.limits.memory` instead"]);
}
