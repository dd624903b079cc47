//! Commands that the sampler starts.

use std::ffi::OsString;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use profbridge_sampler::message::{Command, Detached, ProblemKind, Select, Settings, TargetId};

use crate::process;
use crate::runner::tests;
use crate::session::{ObservedSample, TrapSession, often, usual};

tests![
    a_command_is_sampled_from_its_start,
    exit_codes_come_back,
    a_command_gets_what_the_owner_has,
    a_command_that_cannot_be_started,
    a_command_that_executes_another_program,
    a_command_runs_on_after_stop,
];

fn shell(script: &str) -> Select {
    Select::Command(["/bin/sh", "-c", script].map(OsString::from).to_vec())
}

/// A file that a command waits for: the command spins until the file exists.
struct Gate(tempfile::TempDir);

impl Gate {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A shell command that waits until the gate is open.
    fn wait(&self) -> String {
        format!("until [ -e {} ]; do :; done", self.path().display())
    }

    fn open(&self) {
        std::fs::write(self.path(), "").unwrap();
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("open")
    }
}

/// Guarantees: a command that ends after one or a few observations is one sampled process with its own mappings: none
/// of its code is unknown, although its libraries are mapped after the first read of its maps. Its end is reported
/// before its exit code.
fn a_command_is_sampled_from_its_start() {
    for samples in [1, 4] {
        let (mut session, gate) = (TrapSession::start_with(true), Gate::new());
        let id = session.watch(shell(&format!("{}; exit 7", gate.wait())), usual());
        session.until("samples", |seen| seen.lives.last().is_some_and(|life| life.samples.len() >= samples));
        gate.open();
        session.until("the exit code", |seen| !seen.ended.is_empty());
        assert_eq!(session.seen.ended, [(id, 7)]);
        let [life] = &session.seen.lives[..] else { panic!("{} lives", session.seen.lives.len()) };
        assert_eq!(life.detached, Some(Detached::Exited));
        assert_eq!(life.process.arguments[..2], ["/bin/sh", "-c"]);
        assert!(life.mappings.iter().any(|(mapping, _)| mapping.main));
        let unknown = |observed: &&ObservedSample| observed.locations.iter().any(|location| location.is_generated());
        let unknown: Vec<_> = life.samples.iter().filter(unknown).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let first = life.samples.iter().map(|observed| observed.sample.time_unix_nano).min().unwrap();
        // The start time is rounded to seconds, see `ps`.
        assert!(first + 1_000_000_000 > life.process.start_unix_nano, "{first} {}", life.process.start_unix_nano);
        session.finish();
    }
}

/// Guarantees: the exit code is the command's, or 128 plus the signal that ended it, even if it ends while its threads
/// are being stopped for sampling.
fn exit_codes_come_back() {
    let mut session = TrapSession::start_with(true);
    for round in 0..10 {
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let ends = session.watch(shell(&format!("{busy}; exit {round}")), often());
        let killed = session.watch(shell(&format!("{busy}; kill -9 $$")), often());
        session.until("two exit codes", |seen| seen.ended.len() == 2 * (round as usize + 1));
        let code = |target| session.seen.ended.iter().find(|(id, _)| *id == target).unwrap().1;
        assert_eq!((code(ends), code(killed)), (round, 128 + 9));
    }
    session.finish();
}

/// The process attributes that a program has inherited: signals, capabilities, limits, priority, descriptors.
struct InheritedState {
    rest: Vec<String>,
    ignored: u64,
    descriptors: Vec<u32>,
}

impl InheritedState {
    fn read(path: &std::path::Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        std::fs::remove_file(path).unwrap();
        let (lines, descriptors) = text.split_once("descriptors\n").unwrap();
        let (ignored, rest): (Vec<&str>, Vec<&str>) = lines.lines().partition(|line| line.starts_with("SigIgn"));
        let ignored = u64::from_str_radix(ignored[0].trim_start_matches("SigIgn:").trim(), 16).unwrap();
        Self {
            rest: rest.into_iter().map(str::to_owned).collect(),
            // The C library reserves two of the other signals for itself.
            ignored: ignored & 0x7fff_ffff,
            descriptors: descriptors.split_whitespace().map(|number| number.parse().unwrap()).collect(),
        }
    }
}

/// Guarantees: a command has the signals, limits and priority of the owner, not the sampler's, and only descriptors
/// that the owner passes on to its children.
fn a_command_gets_what_the_owner_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("given");
    let script = format!(
        "exec >{}; grep -E '^(SigBlk|SigIgn|Cap)' /proc/self/status; ulimit -Sn; ulimit -Hn; nice; echo descriptors; ls /proc/$$/fd",
        path.display()
    );
    let own = std::process::Command::new("/bin/sh").args(["-c", &script]).status().unwrap();
    assert!(own.success());
    let own = InheritedState::read(&path);
    let mut session = TrapSession::start_with(true);
    session.watch(shell(&script), Settings::default());
    session.until("the exit code", |seen| !seen.ended.is_empty());
    assert_eq!(session.seen.ended, [(TargetId(1), 0)]);
    let command = InheritedState::read(&path);
    assert_eq!(command.rest, own.rest);
    assert_eq!(command.ignored, own.ignored);
    assert!(command.descriptors.iter().all(|number| own.descriptors.contains(number)), "{:?}", command.descriptors);
    session.finish();
}

/// Guarantees: a command that does not exist or may not be executed is reported as a problem with a reason and a
/// shell's exit code, and the sampler continues.
fn a_command_that_cannot_be_started() {
    let mut session = TrapSession::start_with(true);
    session.watch(Select::Command(vec!["/no/such/program".into()]), Settings::default());
    session.watch(Select::Command(vec!["/etc/passwd".into()]), Settings::default());
    session.watch(Select::Command(vec![]), Settings::default());
    session.watch(shell("exit 3"), Settings::default());
    session.until("all exit codes", |seen| seen.ended.len() == 4);
    session.seen.ended.sort_unstable();
    assert_eq!(session.seen.ended, [(TargetId(1), 127), (TargetId(2), 126), (TargetId(3), 126), (TargetId(4), 3)]);
    let problems: Vec<_> =
        session.seen.problems.iter().filter(|problem| problem.kind == ProblemKind::Command).collect();
    assert_eq!(problems.len(), 3);
    assert!(problems[0].message.contains("/no/such/program"), "{}", problems[0].message);
    session.finish();
}

/// Guarantees: a command that executes another program is attached again, under another number, and its exit code is
/// still reported.
fn a_command_that_executes_another_program() {
    let (mut session, gate) = (TrapSession::start_with(true), Gate::new());
    session.watch(shell(&format!("exec /bin/bash -c '{}; exit 5'", gate.wait())), Settings::default());
    session.until("the second program", |seen| seen.lives.len() == 2);
    gate.open();
    session.until("the exit code", |seen| !seen.ended.is_empty());
    assert_eq!(session.seen.ended, [(TargetId(1), 5)]);
    let seen = session.finish();
    let [first, second] = &seen.lives[..] else { panic!("{} lives", seen.lives.len()) };
    assert_ne!(first.process.id, second.process.id);
    assert_eq!(first.process.pid, second.process.pid);
    assert_eq!(first.process.start_unix_nano, second.process.start_unix_nano);
    assert!(second.process.executable.ends_with("/bash"));
    assert_eq!([first.detached, second.detached], [Some(Detached::Executed), Some(Detached::Exited)]);
}

/// Guarantees: when the sampler is stopped, the command that it started keeps running, neither stopped nor traced.
fn a_command_runs_on_after_stop() {
    let mut session = TrapSession::start_with(true);
    session.watch(shell("while :; do :; done"), Settings::default());
    session.until("samples", |seen| seen.observations() > 10);
    let pid = session.seen.lives[0].process.pid;
    session.send(Command::Unwatch(TargetId(1)));
    session.until("to be let go", |seen| !seen.detached.is_empty());
    assert_eq!(session.seen.detached[0].1, Detached::Asked);
    session.finish();
    let (states, tracers) = (process::states(pid), process::tracers(pid));
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    assert_eq!((&*states, tracers.len()), ("R", 0));
}
