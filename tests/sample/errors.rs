//! Messages if nothing can be sampled.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::permitted;
use crate::process::{finished, program, run, untested};
use crate::targets::TargetProgram;

/// Guarantees: the target is either a process or a command, and a mistake is explained.
#[test]
fn arguments() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], parts: &[&str]| {
        let finished = run(folder.path(), &[&["sample"], arguments].concat());
        assert_eq!(finished.status.code(), Some(2), "{arguments:?}: {}", finished.stderr);
        for part in parts {
            assert!(finished.stderr.contains(part), "{arguments:?}: no `{part}`:\n{}", finished.stderr);
        }
    };
    refused(&[], &["--pid", "COMMAND"]);
    refused(&["--"], &["--pid", "COMMAND"]);
    refused(&["--pid", "1", "--", "true"], &["cannot be used with"]);
    refused(&["--pid", "1", "--name", "a"], &["cannot be used with"]);
    refused(&["--pid", "1,0"], &["--pid"]);
    refused(&["--name", ""], &["--name"]);
    refused(&["--pid", "0"], &["--pid"]);
    refused(&["--pid", "1", "--rate", "5000"], &["1 to 1000"]);
    refused(&["--pid", "1", "--duration", "soon"], &["duration"]);
    refused(&["--pid", "1", "--mode", "gpu"], &["wall", "cpu"]);
    refused(&["--pid", "1", "--stops", "seldom"], &["user-bound", "never", "always"]);
    refused(&["--pid", "1", "-o", "profile.txt"], &["`.txt`", ".svg", ".speedscope.json", ".envelope", "--to"]);
    refused(&["--pid", "1", "-o", "profile.pb"], &["`.pb` stands for pprof and for OTLP", "`.pb.gz`", "`--to otlp`"]);
    refused(&["--pid", "1", "-o", "-"], &["no ending", "`--to svg|html|folded|"]);
    refused(&["--pid", "1", "--to", "svg"], &["--output"]);
    refused(&["-o", "-", "--to", "folded", "--", "true"], &["standard output is the command's", "name a file"]);
    refused(&["--pid", "1", "-o", "-", "--to", "sentry"], &["several files", "name a file"]);
    refused(&["--name", "a", "-o", "-", "--to", "pprof"], &["several files", "name a file"]);
    refused(&["--pid", "1", "--graph", "pie"], &["icicle", "flame"]);
    refused(&["true"], &["--"]);
}

/// Guarantees: if there are too few file descriptors for perf events, threads are not stopped instead, and the remedy
/// names that limit instead of a capability.
#[test]
fn few_descriptors() {
    if !permitted() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let busy = "i=0; while [ $i -lt 1500000 ]; do i=$((i+1)); done";
    let limited = format!("ulimit -n 16; exec {} sample -o out.folded -- sh -c '{busy}'", program().join(" "));
    let finished = finished(Command::new("sh").args(["-c", &limited]).current_dir(folder.path()));
    for part in ["no file descriptor is left", "not sampled for lack of what perf events need", " 0 stops"] {
        assert!(finished.stderr.contains(part), "no `{part}`: {}", finished.stderr);
    }
    assert!(!finished.stderr.contains("CAP_PERFMON"), "{}", finished.stderr);
}

/// Guarantees: the help explains which runtimes have names, and the exit statuses.
#[test]
fn help() {
    let folder = tempfile::tempdir().unwrap();
    // Without its line breaks.
    let help = run(folder.path(), &["sample", "--help"]).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let runtimes = ["Python (3.8 to 3.14)", "PHP (7.3 to 8.5)", "Node (18, 20, 22, 24)"];
    for part in runtimes.into_iter().chain(["127", "Ctrl-C", ".envelope", "profile-PID.svg"]) {
        assert!(help.contains(part), "no `{part}`:\n{help}");
    }
    let help = run(folder.path(), &["profiler", "--help"]).stdout;
    assert!(["start", "stop", "status"].iter().all(|action| help.contains(action)), "{help}");
}

/// Guarantees: stopping all running threads gives a warning about its effect on long system calls, and only then.
#[test]
fn stops() {
    let folder = tempfile::tempdir().unwrap();
    for (stops, warned) in [("always", true), ("never", false), ("user-bound", false)] {
        let finished = run(folder.path(), &["sample", "--stops", stops, "-o", "out.folded", "--", "true"]);
        assert!(finished.status.success(), "{}", finished.stderr);
        let warning = finished.stderr.lines().find(|line| line.starts_with("warning: stops: always"));
        assert_eq!(warning.is_some_and(|line| line.contains("early")), warned, "{}", finished.stderr);
    }
}

/// Guarantees: a missing process or command is reported, and nothing is written.
#[test]
fn missing() {
    let folder = tempfile::tempdir().unwrap();
    // The largest possible pid is one less (proc(5), `/proc/sys/kernel/pid_max`).
    let finished = run(folder.path(), &["sample", "--pid", "4194304"]);
    assert_eq!(finished.status.code(), Some(1));
    assert!(finished.stderr.contains("4194304"), "{}", finished.stderr);
    let finished = run(folder.path(), &["sample", "--", "/no/such/program"]);
    assert_eq!(finished.status.code(), Some(127), "{}", finished.stderr);
    assert!(finished.stderr.contains("/no/such/program"), "{}", finished.stderr);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Guarantees: anything that blocks the output file is detected before the command is started, also behind a link, and
/// so is a missing folder.
#[test]
fn in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("folder.svg")).unwrap();
    std::os::unix::fs::symlink("/no/such/file", folder.path().join("link.svg")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket.svg")).unwrap();
    let long = format!("{}.svg", "a".repeat(300));
    for output in ["folder.svg", "link.svg", "socket.svg", "/proc/none/out.svg", "new/folder/out.folded", &long] {
        let finished = run(folder.path(), &["sample", "-o", output, "--", "touch", "started"]);
        assert_eq!(finished.status.code(), Some(1), "{output}: {}", finished.stderr);
        assert!(finished.stderr.contains("hint: the result cannot be written there"), "{}", finished.stderr);
        assert!(!folder.path().join("started").exists(), "{output}");
    }
    assert!(!folder.path().join("new").exists());
}

/// Runs profbridge as an unprivileged user.
fn as_nobody(folder: &Path, arguments: &[&str]) -> io::Result<Output> {
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"];
    Command::new("setpriv").args(nobody).args(program()).args(arguments).current_dir(folder).output()
}

/// A folder with these permissions, for that user. `None`, with a note, if the test cannot switch to this user.
fn folder_for_nobody(mode: u32) -> Option<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
    match as_nobody(folder.path(), &["--version"]) {
        Ok(output) if output.status.success() => Some(folder),
        other => {
            untested(&format!("another user cannot be taken on: {other:?}"));
            None
        }
    }
}

/// Guarantees: without the capability to trace a process, the message names it and how to get it, and the process
/// continues.
#[test]
fn no_rights() {
    // The unprivileged user must be able to write its result.
    let Some(folder) = folder_for_nobody(0o777) else { return };
    let mut program = TargetProgram::hot("600");
    program.write_line();
    let output = as_nobody(folder.path(), &["sample", "--pid", &program.pid(), "--duration", "1"]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("CAP_SYS_PTRACE"), "{said}");
    assert!(program.is_alive());
    program.end();
}

/// Guarantees: if no profbridge listens, the command fails and names the address that was tried.
#[test]
fn nobody_listens() {
    let folder = tempfile::tempdir().unwrap();
    for action in ["start", "stop", "status"] {
        let finished = run(folder.path(), &["profiler", action, "--socket", "control.sock"]);
        assert_eq!(finished.status.code(), Some(1));
        assert!(finished.stderr.contains("control.sock"), "{}", finished.stderr);
    }
}
