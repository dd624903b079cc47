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

/// A file that a command can wait for: it spins until the file is there.
struct Gate(tempfile::TempDir);

impl Gate {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Commands of a shell that end when the gate is open.
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

/// Guarantees: a command that ends as soon as it was observed, once or some times, has been sampled in one life, by its
/// own mappings: none of its code is unknown, although its libraries are mapped after the first look at its maps. It is
/// let go as ended before its exit code is told.
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
        // The start is known to a second only, see `ps`.
        assert!(first + 1_000_000_000 > life.process.start_unix_nano, "{first} {}", life.process.start_unix_nano);
        session.finish();
    }
}

/// Guarantees: the exit code is the command's, or 128 and the signal that ended it, also when it ends while its threads
/// are being stopped for sampling.
fn exit_codes_come_back() {
    let mut session = TrapSession::start_with(true);
    for round in 0..20 {
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let ends = session.watch(shell(&format!("{busy}; exit {round}")), often());
        let killed = session.watch(shell(&format!("{busy}; kill -9 $$")), often());
        session.until("two exit codes", |seen| seen.ended.len() == 2 * (round as usize + 1));
        let code = |target| session.seen.ended.iter().find(|(id, _)| *id == target).unwrap().1;
        assert_eq!((code(ends), code(killed)), (round, 128 + 9));
    }
    session.finish();
}

/// What a program sees of what it was given: signals, capabilities, limit, priority, descriptors.
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
            // The C library keeps two of the others for itself.
            ignored: ignored & 0x7fff_ffff,
            descriptors: descriptors.split_whitespace().map(|number| number.parse().unwrap()).collect(),
        }
    }
}

/// Guarantees: a command has the signals, limits and priority of the one who asked for it, not the sampler's, and no
/// descriptor that the owner does not hand on to its children.
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

/// Guarantees: a command that does not exist or may not be executed is a problem with a reason and a shell's exit code,
/// and the sampler goes on.
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

/// Guarantees: a command that executes another program is attached to anew, under another number, and its exit code
/// still comes.
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

/// Guarantees: a sampler that is stopped leaves the command it started running, neither stopped nor traced.
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
