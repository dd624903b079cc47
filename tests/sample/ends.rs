//! How runs end, and what they leave behind.

use std::process::Command;

use profbridge_relay_rules::validate_json;

use super::{CollapsedStacks, Sampling, by_some_run, measured, stops, until_met};
use crate::backend::sentry::split_envelope;
use crate::process::{command_with_files, run};
use crate::targets::{TargetProgram, hot, known};

/// Guarantees: the command's exit status is returned, for a signal as in a shell; a command too short to be sampled is
/// no error; standard output belongs to the command alone.
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

/// Guarantees: profbridge may open as many files as the system allows, and a command gets the limit with which
/// profbridge was started.
#[test]
fn open_files() {
    let folder = tempfile::tempdir().unwrap();
    // The command's parent is profbridge.
    let script = "ulimit -Sn; grep 'open files' /proc/$PPID/limits";
    let output = command_with_files(folder.path(), "-Sn 400", &["sample", "--", "sh", "-c", script]).output().unwrap();
    let (stdout, stderr) = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).into();
    assert!(output.status.success(), "{stderr}");
    let words: Vec<&str> = stdout.split_whitespace().collect();
    let ["400", "Max", "open", "files", soft, hard, _] = words[..] else { panic!("{stdout}") };
    assert!(soft == hard && soft != "400", "{stdout}");
}

/// Guarantees: the result is written when the requested time is over; the command continues, and profbridge waits for
/// it.
#[test]
fn duration_before_the_command_ends() {
    let folder = tempfile::tempdir().unwrap();
    let program = known().to_str().unwrap();
    by_some_run(|| {
        std::fs::remove_file(folder.path().join("out.folded")).ok();
        let finished = until_met(|| {
            let arguments = ["-d", "500ms", "-o", "out.folded", "--", program, "held", "0"];
            let mut sampling = Sampling::start(folder.path(), &arguments);
            // The command computes until then, however long writing the result takes.
            sampling.wait_for("waiting for the command to end");
            sampling.ended()
        });
        assert!(finished.status.success(), "{}", finished.stderr);
        assert!(finished.stdout.starts_with("seventy "), "it went on to its end: {}", finished.stdout);
        let at = |text: &str| finished.stderr.find(text).unwrap_or_else(|| panic!("no `{text}`:\n{}", finished.stderr));
        assert!(at("wrote out.folded") < at("waiting for the command to end"));
        // Other programs may have used the CPUs for half a second.
        let stacks = CollapsedStacks::read(&folder.path().join("out.folded"));
        measured!(stacks.under("[running]").nano() > 0, "{:?}", stacks.0);
        Ok(())
    });
}

/// Guarantees: Ctrl-C ends sampling and writes the result so far; the sampled process continues.
#[test]
fn interrupt() {
    ends_by("-INT");
}

/// Guarantees: closing the terminal does the same, so that no samples are lost.
#[test]
fn hangup() {
    ends_by("-HUP");
}

fn ends_by(signal: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut program = TargetProgram::start(Command::new(known()).args(["held", "0"]));
    let sampling = Sampling::start(folder.path(), &["--pid", &program.pid(), "-o", "out.folded"]);
    program.write_line();
    assert_eq!(program.line(), "seen\n");
    let finished = sampling.end(signal);
    assert!(finished.status.success(), "{}", finished.stderr);
    let running = CollapsedStacks::read(&folder.path().join("out.folded")).under("[running]");
    assert_eq!(running.sampled().hottest(), "seventy");
    assert!(program.is_alive());
    program.end();
}

/// Guarantees: a run without a duration ends with the process.
#[test]
fn the_process_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = TargetProgram::hot("1");
    let sampling = Sampling::start(folder.path(), &["--pid", &program.pid(), "-o", "out.folded"]);
    program.write_line();
    let finished = sampling.ended();
    assert!(finished.status.success(), "{}", finished.stderr);
    let running = CollapsedStacks::read(&folder.path().join("out.folded")).under("[running]");
    assert_eq!(running.sampled().hottest(), "hot::crunch::hot_function");
}

/// Guarantees: each file extension selects its format: an envelope satisfies Relay's rules and its hottest function is
/// the program's, `convert` reads OTLP and pprof back, and formats for people show that function as running.
#[test]
fn formats() {
    let folder = tempfile::tempdir().unwrap();
    let program = hot().to_str().unwrap();
    let views = ["out.svg", "out.speedscope.json", "out.firefox.json"];
    for name in ["out.envelope", "out.otlp", "out.otlp.json", "out.pprof"].into_iter().chain(views) {
        let finished = run(folder.path(), &[&["sample", "-o", name], stops(), &["--", program, "1"]].concat());
        assert!(finished.status.success() && finished.stderr.contains(&format!("wrote {name}")), "{}", finished.stderr);
    }
    let (_, items) = split_envelope(&std::fs::read(folder.path().join("out.envelope")).unwrap());
    validate_json(&items[0].1).unwrap_or_else(|violations| panic!("{violations:?}"));
    assert!(String::from_utf8_lossy(&items[0].1).contains("hot_function"));
    for name in ["out.envelope", "out.otlp", "out.otlp.json", "out.pprof"] {
        let finished = run(folder.path(), &["convert", name, "--to", "folded", "-o", "converted"]);
        assert!(finished.status.success(), "{name}: {}", finished.stderr);
        let stacks = CollapsedStacks::read(&folder.path().join("converted"));
        let hottest = stacks.total("hot::crunch::hot_function").max(stacks.total("crunch::hot_function"));
        assert!(hottest > 0, "{name}: {:?}", stacks.by_leaf());
    }
    for name in views {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(text.contains("hot_function"), "{name}");
    }
    let speedscope = std::fs::read(folder.path().join("out.speedscope.json")).unwrap();
    let speedscope: serde_json::Value = serde_json::from_slice(&speedscope).unwrap();
    let [first, frames] = [&speedscope["profiles"][0], &speedscope["shared"]["frames"]];
    assert!(first["name"].as_str().is_some_and(|name| !name.contains("[waiting]")), "{}", first["name"]);
    let stacks = || first["samples"].as_array().unwrap().iter().zip(first["weights"].as_array().unwrap());
    let total = |function: &str| -> u64 {
        let with = stacks().filter(|(stack, _)| {
            let mut names = stack.as_array().unwrap().iter().map(|at| &frames[at.as_u64().unwrap() as usize]["name"]);
            names.any(|name| name.as_str().unwrap().contains(function))
        });
        with.map(|(_, weight)| weight.as_u64().unwrap()).sum()
    };
    let (hot, not_sampled) = (total("crunch::hot_function"), total("[processor time not sampled]"));
    let all = first["endValue"].as_u64().unwrap();
    assert!(hot * 2 > all - not_sampled, "{hot} of {all} and {not_sampled}");
}

/// Guarantees: standard output only contains the file; messages to the user are on standard error.
#[test]
fn standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = TargetProgram::hot("600");
    program.write_line();
    let pid = program.pid();
    let to_standard = ["sample", "--pid", &pid, "--duration", "1s", "-o", "-", "--to", "speedscope"];
    by_some_run(|| {
        let finished = until_met(|| run(folder.path(), &[&to_standard, stops()].concat()));
        assert!(finished.status.success(), "{}", finished.stderr);
        let file: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
        assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
        for said in ["running: ", "wrote `-` ("] {
            assert!(finished.stderr.contains(said), "no `{said}`: {}", finished.stderr);
        }
        // Other programs may have used the CPUs for a second.
        measured!(finished.stderr.contains("hot_function"), "{}", finished.stderr);
        Ok(())
    });
    program.end();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
