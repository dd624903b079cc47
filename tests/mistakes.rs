//! Common mistakes with `convert`, `sample` and `demo`: the messages, the files left behind, and the exit status.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use profbridge_testkit::{RequestBuilder, ms};

use crate::backend::sentry::{Behaviour, SentryBackend};
use crate::main_job::to_sentry;
use crate::process::{Finished, Profbridge, command, run};

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
    assert_eq!(finished.status.code(), Some(1), "{}{}", finished.stdout, finished.stderr);
    for part in parts {
        assert!(finished.stderr.contains(part), "no `{part}`:\n{}", finished.stderr);
    }
    assert_eq!(finished.stdout, "", "nothing is a result");
}

/// Guarantees: a missing file, a folder, an empty file and an unknown format are reported as such, and an earlier
/// result stays unchanged.
#[test]
fn nothing_to_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    std::fs::write(folder.path().join("empty"), "").unwrap();
    // Starts with the same byte as a request.
    std::fs::write(folder.path().join("other"), "\nname,value\n").unwrap();
    std::fs::write(folder.path().join("out.svg"), "from before").unwrap();
    for (input, said) in [
        ("other", "other: is neither OTLP profiles or traces in protobuf or JSON, nor"),
        ("missing", "missing: No such file or directory"),
        ("folder", "folder: it is a folder; name the files in it"),
        ("empty", "empty: is empty"),
    ] {
        let finished = run(folder.path(), &["convert", input, "-o", "out.svg"]);
        refused(&finished, &[said, "nothing was written to out.svg: no input could be read"]);
        assert!(!finished.stderr.contains("not a single stack"), "{}", finished.stderr);
        assert_eq!(std::fs::read_to_string(folder.path().join("out.svg")).unwrap(), "from before");
    }
    assert_eq!(names(folder.path()), ["empty", "folder", "other", "out.svg"]);
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

/// Guarantees: an output that is also an input, under whatever name, a file where a folder is expected, the name of a
/// folder, and a full device are refused; inputs and devices stay as they are.
#[test]
fn outputs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("in"), good()).unwrap();
    std::fs::write(path("file"), "mine").unwrap();
    let made = run(folder.path(), &["convert", "in", "-o", "x.otlp"]);
    assert!(made.status.success(), "{}", made.stderr);
    let before = std::fs::read(path("x.otlp")).unwrap();
    // The same file under another name, and a symlink of the test's own, so that a bug can only damage that.
    std::fs::hard_link(path("x.otlp"), path("same.otlp")).unwrap();
    std::os::unix::fs::symlink("/dev/full", path("full")).unwrap();
    for (arguments, part) in [
        (&["in", "x.otlp", "-o", "same.otlp"][..], "same.otlp: it is one of the inputs"),
        // Through a folder that is created for the output.
        (&["x.otlp", "-o", "made/../x.otlp", "--to", "svg"], "one of the inputs"),
        (&["in", "-o", "file"], "file is no folder"),
        (&["in", "-o", "z.svg/"], ": it names a folder"),
        (&["in", "-o", "full", "--to", "folded"], "full: No space left on device"),
    ] {
        refused(&run(folder.path(), &[&["convert"], arguments].concat()), &[part]);
    }
    assert_eq!(std::fs::read(path("x.otlp")).unwrap(), before);
    assert!(path("full").is_symlink());
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

/// Guarantees: the demo fails with the meaning of the answer if Sentry refuses the profile.
#[test]
fn demo_shows_what_sentry_answered() {
    let sentry = SentryBackend::start();
    let config = to_sentry(&sentry.dsn(1), "{window: 0s}", "");
    let profbridge = Profbridge::start(&config);
    sentry.always(Behaviour::Answer(401, vec![]));
    let (finished, _folder) = demo(&profbridge, &config);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    for part in ["error: exporter sentry: ", " came, ", ", 0 sent", "dropped as rejected_by_peer: ", "401: the DSN"] {
        assert!(finished.stderr.contains(part), "no `{part}`:\n{}", finished.stderr);
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
