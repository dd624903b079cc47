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

/// Only a failing test ever waits this long.
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
            // Its status is being taken.
            None => std::thread::yield_now(),
        }
    }
}

/// Guarantees: nothing of a held command runs until it may, and nothing ever does of one that is dropped; the status is
/// a shell's.
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

/// Guarantees: a signal reaches the command, one that comes while it is held as soon as it runs; one that has ended
/// gets none.
fn a_command_of_the_owner_gets_signals() {
    let command = shell("while :; do :; done");
    command.signal(Signal::SIGTERM).unwrap();
    assert!(!command.ended_within(Duration::ZERO));
    command.let_run();
    assert_eq!(code(&command), 128 + 15);
    assert!(command.signal(Signal::SIGTERM).is_err());
}

/// Guarantees: the sampler finds nothing wrong with a command that is held, samples it, and is replaced by another one
/// while the command goes on.
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

/// Guarantees: what cannot be executed is an error with a shell's status and the name.
fn a_command_of_the_owner_that_cannot_be_started() {
    for (words, status) in [(&["/no/such/program"][..], 127), (&["/etc/passwd"], 126), (&[], 126)] {
        let error = start(words).unwrap_err();
        assert_eq!(error.shell_code(), status, "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
}

/// An owner of its own, for [`a_command_ends_with_its_owner`]: says that its command runs, and then nothing until it is
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
    // It ends when nobody holds it any more.
    assert_eq!(stdout.read_to_end(&mut Vec::new()).unwrap(), 0);
}
