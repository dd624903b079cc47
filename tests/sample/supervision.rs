//! Lifetimes and signals of `profbridge sample` and its command.

use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{CollapsedStacks, Sampling, until_met};
use crate::process::{Finished, eventually, program, untested};

/// A shell that counts its signals. It ends when its standard input does, or after this many signals. The child that it
/// waits for prints when it is ready: an earlier Ctrl-C could end the child, and the shell would then wait forever.
fn counting(after: u32) -> String {
    format!(
        "n=0
        for signal in TERM HUP INT; do
            trap \"n=\\$((n + 1)); echo got $signal; [ \\$n -lt {after} ] || exit 5\" $signal
        done
        exec 3<&0
        (echo ready; exec cat <&3) &
        until wait $!; do :; done
        echo counted $n"
    )
}

fn start(folder: &Path, options: &[&str], script: &str) -> Sampling {
    let arguments = [options, &["-o", "out.folded", "--", "sh", "-c", script]].concat();
    let mut sampling = Sampling::start(folder, &arguments);
    assert_eq!(sampling.line(), "ready\n");
    sampling
}

/// Guarantees: a signal that only profbridge gets is forwarded to the command, which handles it: here its own exit
/// status is returned, and the result is written.
#[test]
fn signals_are_passed_on() {
    for name in ["TERM", "HUP", "INT"] {
        let folder = tempfile::tempdir().unwrap();
        let finished = until_met(|| start(folder.path(), &[], &counting(1)).end(&format!("-{name}")));
        assert_eq!(finished.status.code(), Some(5), "{name}: {}", finished.stderr);
        assert_eq!(finished.stdout, format!("got {name}\n"));
        assert!(finished.stderr.contains(&format!("SIG{name} was passed on to the command")), "{}", finished.stderr);
        assert!(CollapsedStacks::read(&folder.path().join("out.folded")).nano() > 0);
    }
}

/// Guarantees: Ctrl-C in a terminal reaches the command once, from the terminal, and the result is written.
#[test]
fn a_terminal_interrupts_once() {
    interrupted_by_a_terminal("sh counting.sh", "the terminal sent SIGINT to the command");
}

/// Guarantees: if the command has left the session, so that the terminal does not reach it, Ctrl-C is forwarded, with
/// the same result.
#[test]
fn a_terminal_does_not_reach_other_sessions() {
    interrupted_by_a_terminal("setsid sh counting.sh", "SIGINT was passed on to the command");
}

fn interrupted_by_a_terminal(what: &str, said: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("counting.sh"), counting(9).replace("cat <&3", "cat fifo")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.path().join("fifo")).status().unwrap().success());
    if Command::new("script").arg("--version").output().is_err() {
        untested("there is no `script`");
        return;
    }
    let finished = until_met(|| at_a_terminal(folder.path(), what));
    assert!(finished.stdout.contains("counted 1"), "{}", finished.stdout);
    assert!(finished.stdout.contains(said), "{}", finished.stdout);
    assert!(finished.status.success(), "{}", finished.stdout);
}

/// Samples a command in a separate terminal and presses Ctrl-C once it is ready.
fn at_a_terminal(folder: &Path, what: &str) -> Finished {
    // Without `exec` some shells wait for profbridge, and Ctrl-C ends them too.
    let line = format!("exec {} sample -o out.folded -- {what}", program().join(" "));
    let mut script = Command::new("script")
        .args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut terminal, mut stdout) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut shown = String::new();
    let mut wait_for = |text: &str| {
        while !shown.contains(text) {
            let mut bytes = [0; 256];
            let length = stdout.read(&mut bytes).unwrap();
            assert_ne!(length, 0, "no `{text}`: {shown}");
            shown.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
        shown.clone()
    };
    wait_for("ready");
    terminal.write_all(b"\x03").unwrap();
    wait_for("waiting for the command to end");
    wait_for("got INT");
    // The command ends only now, so it has counted all signals.
    drop(std::fs::File::options().write(true).open(folder.join("fifo")).unwrap());
    let shown = wait_for("counted");
    let status = eventually("the terminal closes", || script.try_wait().unwrap());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).ok();
    let shown = shown + &rest;
    Finished { status, stdout: shown.clone(), stderr: shown }
}

/// Guarantees: a second signal ends profbridge and a command that ignores both; no process is left, and the earlier
/// result stays.
#[test]
fn twice_ends_both() {
    let folder = tempfile::tempdir().unwrap();
    let finished = until_met(|| {
        let mut sampling = start(folder.path(), &[], "trap '' TERM INT HUP; echo ready; exec cat");
        sampling.signal("-TERM");
        sampling.wait_for("waiting for the command to end");
        // A signal that arrives too soon belongs to the first.
        eventually("the end", || {
            sampling.signal("-TERM");
            sampling.child.try_wait().unwrap()
        });
        // Standard output is closed once no process has it: neither the command, whose standard input is still open,
        // nor the sampler process.
        sampling.ended_by_itself()
    });
    assert_eq!(finished.status.code(), Some(130), "{}", finished.stderr);
    assert!(finished.stderr.contains("is killed; nothing more is written"), "{}", finished.stderr);
    assert!(CollapsedStacks::read(&folder.path().join("out.folded")).nano() > 0);
}

/// Guarantees: a process that profbridge did not start gets none of the signals, and survives the second one.
#[test]
fn a_process_of_somebody_else_is_never_signalled() {
    let folder = tempfile::tempdir().unwrap();
    let script = counting(9);
    let mut program = crate::targets::TargetProgram::start(Command::new("sh").args(["-c", &script]));
    assert_eq!(program.line(), "ready\n");
    let sampling = Sampling::start(folder.path(), &["--pid", &program.pid(), "-o", "out.folded"]);
    for signal in ["-TERM", "-HUP", "-INT"] {
        sampling.signal(signal);
    }
    drop(sampling.ended());
    assert!(program.is_alive());
    program.close();
    assert_eq!(program.line(), "counted 0\n");
}

/// Guarantees: a result that cannot be written does not end the command; profbridge waits for it.
#[test]
fn a_lost_result_is_no_reason_to_end_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let finished = until_met(|| {
        std::fs::create_dir_all(folder.path().join("out")).unwrap();
        let arguments = ["-o", "out/a.folded", "--", "sh", "-c", &counting(9)];
        let mut sampling = Sampling::start(folder.path(), &arguments);
        assert_eq!(sampling.line(), "ready\n");
        // The output folder is replaced by a file before sampling ends, which is only after the signal.
        std::fs::remove_dir_all(folder.path().join("out")).unwrap();
        std::fs::write(folder.path().join("out"), "").unwrap();
        sampling.signal("-TERM");
        sampling.wait_for("waiting for the command to end");
        assert_eq!(sampling.line(), "got TERM\n");
        std::fs::remove_file(folder.path().join("out")).unwrap();
        sampling.ended()
    });
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    assert_eq!(finished.stdout, "counted 1\n", "the signal was passed on, and nothing else came");
    assert!(finished.stderr.contains("out/a.folded"), "{}", finished.stderr);
}
