//! How runs end, and what they leave behind.

use std::process::Command;

use profbridge_relay_rules::validate_json;

use super::{Sampling, Stacks, stops, until_met};
use crate::backend::sentry::split_envelope;
use crate::process::{command_with_files, run};
use crate::targets::{TargetProgram, hot, known};

/// Guarantees: the command's exit status is handed on, a signal's as shells have it; a command too short to be seen is
/// no failure; standard output is the command's alone.
#[test]
fn exit_status() {
    let folder = tempfile::tempdir().unwrap();
    for (script, code) in [("echo out; exit 7", 7), ("kill -9 $$", 137), ("exit 0", 0)] {
        let finished = run(folder.path(), &["sample", "--", "sh", "-c", script]);
        assert_eq!(finished.status.code(), Some(code), "{script}: {}", finished.stderr);
        let out = if code == 7 { "out\n" } else { "" };
        assert_eq!(finished.stdout, out, "{script}");
    }
}

/// Guarantees: profbridge may open as many files as the system allows, and a command has the limit that profbridge was
/// started with.
#[test]
fn open_files() {
    let folder = tempfile::tempdir().unwrap();
    // The command's parent is profbridge.
    let script = "ulimit -Sn; grep 'open files' /proc/$PPID/limits";
    let output = command_with_files(folder.path(), 400, &["sample", "--", "sh", "-c", script]).output().unwrap();
    let (stdout, stderr) = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).into();
    assert!(output.status.success(), "{stderr}");
    let words: Vec<&str> = stdout.split_whitespace().collect();
    let ["400", "Max", "open", "files", soft, hard, _] = words[..] else { panic!("{stdout}") };
    assert!(soft == hard && soft != "400", "{stdout}");
}

/// Guarantees: the result is written when its time is over, and the command is waited for and not harmed.
#[test]
fn duration_before_the_command_ends() {
    let folder = tempfile::tempdir().unwrap();
    let program = known().to_str().unwrap();
    let finished = until_met(|| {
        let arguments = ["-d", "500ms", "-o", "out.folded", "--", program, "held", "0"];
        let mut sampling = Sampling::start(folder.path(), &arguments);
        // The command computes until then, however long the result takes.
        sampling.wait_for("waiting for the command to end");
        sampling.ended()
    });
    assert!(finished.status.success(), "{}", finished.stderr);
    assert!(finished.stdout.starts_with("seventy "), "it went on to its end: {}", finished.stdout);
    let at = |text: &str| finished.stderr.find(text).unwrap_or_else(|| panic!("no `{text}`:\n{}", finished.stderr));
    assert!(at("wrote out.folded") < at("waiting for the command to end"));
    assert!(Stacks::read(&folder.path().join("out.folded")).under("[running]").nano() > 0);
}

/// Guarantees: Ctrl-C ends sampling and writes what there is; the process that was sampled goes on.
#[test]
fn interrupt() {
    ends_by("-INT");
}

/// Guarantees: a terminal that is closed does the same, so that what was sampled is not lost with it.
#[test]
fn hangup() {
    ends_by("-HUP");
}

fn ends_by(signal: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut program = TargetProgram::start(Command::new(known()).args(["held", "0"]));
    let sampling = Sampling::start(folder.path(), &["--pid", &program.pid(), "-o", "out.folded"]);
    program.tell();
    assert_eq!(program.line(), "seen\n");
    let finished = sampling.end(signal);
    assert!(finished.status.success(), "{}", finished.stderr);
    assert_eq!(Stacks::read(&folder.path().join("out.folded")).under("[running]").hottest(), "seventy");
    assert!(program.is_alive());
    program.end();
}

/// Guarantees: a run without a duration ends with the process.
#[test]
fn the_process_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = TargetProgram::hot("1");
    let sampling = Sampling::start(folder.path(), &["--pid", &program.pid(), "-o", "out.folded"]);
    program.tell();
    let finished = sampling.ended();
    assert!(finished.status.success(), "{}", finished.stderr);
    let running = Stacks::read(&folder.path().join("out.folded")).under("[running]");
    assert_eq!(running.hottest(), "hot::crunch::hot_function");
}

/// Guarantees: each ending has its format, all from the same samples: an envelope passes Relay's rules and its hottest
/// function is the program's, OTLP is read back by `convert`.
#[test]
fn formats() {
    let folder = tempfile::tempdir().unwrap();
    let program = hot().to_str().unwrap();
    for name in ["out.envelope", "out.otlp", "out.pb", "out.svg"] {
        let finished = run(folder.path(), &[&["sample", "-o", name], stops(), &["--", program, "1"]].concat());
        assert!(finished.status.success() && finished.stderr.contains(&format!("wrote {name}")), "{}", finished.stderr);
    }
    let (_, items) = split_envelope(&std::fs::read(folder.path().join("out.envelope")).unwrap());
    validate_json(&items[0].1).unwrap_or_else(|violations| panic!("{violations:?}"));
    assert!(String::from_utf8_lossy(&items[0].1).contains("hot_function"));
    for name in ["out.envelope", "out.otlp", "out.pb"] {
        let finished = run(folder.path(), &["convert", name, "--to", "folded", "-o", "converted"]);
        assert!(finished.status.success(), "{name}: {}", finished.stderr);
        let stacks = Stacks::read(&folder.path().join("converted"));
        let hottest = stacks.total("hot::crunch::hot_function").max(stacks.total("crunch::hot_function"));
        assert!(hottest > 0, "{name}: {:?}", stacks.by_leaf());
    }
    assert!(std::fs::read_to_string(folder.path().join("out.svg")).unwrap().contains("hot_function"));
}
