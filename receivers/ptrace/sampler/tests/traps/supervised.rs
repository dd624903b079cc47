//! Commands that the owner starts itself.

use std::ffi::OsString;
use std::io::Read;
use std::process::{Command as Program, ExitCode, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use profbridge_sampler::message::{Command, ProblemKind, Select, Settings, Target};
use profbridge_sampler::owner::{Inherited, SuperviseError, Supervised};

use crate::runner::tests;
use crate::session::{TrapSession, wanted};

tests![
    a_held_command_has_not_begun,
    a_command_of_the_owner_gets_signals,
    a_command_of_the_owner_outlives_samplers,
    a_command_of_the_owner_that_cannot_be_started,
    a_command_ends_with_its_owner,
];

/// Only failing tests wait this long.
const PATIENCE: Duration = Duration::from_secs(120);

fn start(words: &[&str]) -> Result<Supervised, SuperviseError> {
    Supervised::start(words.iter().map(OsString::from).collect(), Inherited::now().unwrap())
}

fn shell(script: &str) -> Supervised {
    start(&["/bin/sh", "-c", script]).unwrap()
}

fn code(command: &Supervised) -> i32 {
    assert!(command.ended_within(PATIENCE));
    loop {
        match command.exit_code() {
            Some(code) => return code,
            // The exit status is just being collected.
            None => std::thread::yield_now(),
        }
    }
}

/// Guarantees: a command that is stopped at its start executes nothing until it may run, and never if it is dropped;
/// its exit code is that of a shell.
fn a_held_command_has_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("begun");
    let script = format!("echo > {}; exit 7", marker.display());
    let held = shell(&script);
    let pid = held.pid();
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(state.contains(") t ") && held.exit_code().is_none() && !marker.exists(), "{state}");
    drop(held);
    while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|state| !state.contains(") Z ")) {
        std::thread::yield_now();
    }
    assert!(!marker.exists());
    let runs = shell(&script);
    assert!(runs.is_in_own_group());
    runs.let_run();
    runs.let_run();
    assert_eq!(code(&runs), 7);
    assert!(!runs.is_in_own_group());
    std::fs::remove_file(&marker).unwrap();
    let killed = shell("kill -9 $$");
    killed.let_run();
    assert_eq!(code(&killed), 128 + 9);
}

/// Guarantees: a signal reaches the command, and one sent while the command is stopped at its start arrives as soon as
/// it runs; a command that has ended gets no signals.
fn a_command_of_the_owner_gets_signals() {
    let command = shell("while :; do :; done");
    command.signal(Signal::SIGTERM).unwrap();
    assert!(!command.ended_within(Duration::ZERO));
    command.let_run();
    assert_eq!(code(&command), 128 + 15);
    assert!(command.signal(Signal::SIGTERM).is_err());
}

/// Guarantees: the sampler reports no problem for a command that is stopped at its start, samples it later, and can be
/// replaced by another sampler while the command continues.
fn a_command_of_the_owner_outlives_samplers() {
    let command = shell("while :; do :; done");
    for _ in 0..2 {
        let mut session = TrapSession::start_with(true);
        session
            .watch_target(Target { sample_at_once: false, ..wanted(Select::Pid(command.pid()), Settings::default()) });
        session.until("to be attached", |seen| !seen.lives.is_empty());
        command.let_run();
        session.send(Command::Sample { process: session.seen.lives[0].process.id, on: true });
        session.until("samples", |seen| seen.observations() > 5);
        assert!(
            session.seen.problems.iter().all(|problem| problem.kind == ProblemKind::Events),
            "{:?}",
            session.seen.problems
        );
        nix::sys::signal::kill(session.sampler(), Signal::SIGKILL).unwrap();
        session.until("its end", |seen| seen.ending.is_some());
        assert!(!command.ended_within(Duration::ZERO));
    }
    command.signal(Signal::SIGKILL).unwrap();
    assert_eq!(code(&command), 128 + 9);
}

/// Guarantees: a program that cannot be executed gives an error with its name and a shell's exit code.
fn a_command_of_the_owner_that_cannot_be_started() {
    for (words, status) in [(&["/no/such/program"][..], 127), (&["/etc/passwd"], 126), (&[], 126)] {
        let error = start(words).unwrap_err();
        assert_eq!(error.shell_code(), status, "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
}

/// A separate owner for [`a_command_ends_with_its_owner`]: prints that its command runs, and then waits until it is
/// killed.
pub(crate) fn be_a_supervisor() -> ExitCode {
    let command = shell("trap '' TERM HUP INT; echo ready; while :; do :; done");
    command.let_run();
    command.ended_within(PATIENCE);
    ExitCode::FAILURE
}

/// Guarantees: a command whose owner is killed ends, whatever signals it ignores.
fn a_command_ends_with_its_owner() {
    let mut owner = Program::new(std::env::current_exe().unwrap())
        .arg("supervisor")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = owner.stdout.take().unwrap();
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\n");
    owner.kill().unwrap();
    owner.wait().unwrap();
    // The pipe ends when no process has it open any more.
    assert_eq!(stdout.read_to_end(&mut Vec::new()).unwrap(), 0);
}
