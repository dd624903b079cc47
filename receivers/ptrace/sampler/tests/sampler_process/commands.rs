//! Commands that the sampler starts.

use std::ffi::OsString;

use profbridge_sampler::message::{Command, Detached, ProblemKind, Select, Settings, Stops, TargetId};

use crate::Test;
use crate::session::Session;

pub(crate) const TESTS: &[Test] = &[
    ("a_command_is_sampled_from_its_start", a_command_is_sampled_from_its_start),
    ("exit_codes_come_back", exit_codes_come_back),
    ("a_command_gets_what_the_owner_has", a_command_gets_what_the_owner_has),
    ("a_command_that_cannot_be_started", a_command_that_cannot_be_started),
    ("a_command_that_executes_another_program", a_command_that_executes_another_program),
    ("a_command_runs_on_after_stop", a_command_runs_on_after_stop),
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

/// Guarantees: a command that ends as soon as it was observed a few times has been sampled, by its own mappings; it is
/// let go as ended before its exit code is told.
fn a_command_is_sampled_from_its_start() {
    let (mut session, gate) = (Session::start(), Gate::new());
    session.watch(1, shell(&format!("{}; exit 7", gate.wait())));
    session.wait("observations", |session| session.observations() > 3);
    gate.open();
    session.wait("the exit code", |session| !session.codes.is_empty());
    assert_eq!(session.codes, [(TargetId(1), 7)]);
    assert_eq!(session.detached, [(session.processes[0].id, Detached::Exited)]);
    let process = &session.processes[0];
    assert_eq!(process.arguments[..2], ["/bin/sh", "-c"]);
    assert!(session.mappings.iter().any(|mapping| mapping.main));
    let first = session.batches[0].samples.iter().map(|sample| sample.time_unix_nano).min().unwrap();
    // The start is known to a second only, see `ps`.
    assert!(first + 1_000_000_000 > process.start_unix_nano, "{first} {}", process.start_unix_nano);
    session.stop();
}

/// Guarantees: the exit code is the command's, or 128 and the signal that ended it, also when it ends while its threads
/// are being stopped for sampling.
fn exit_codes_come_back() {
    let mut session = Session::start();
    let settings =
        Settings { rate_hertz: 1000.0, max_cpu: 1.0, max_stopped: 1.0, stops: Stops::Always, ..Settings::default() };
    for round in 0..20 {
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        session.watch_with(2 * round, shell(&format!("{busy}; exit {round}")), &[], settings);
        session.watch_with(2 * round + 1, shell(&format!("{busy}; kill -9 $$")), &[], settings);
        session.wait("two exit codes", |session| session.codes.len() == 2 * (round as usize + 1));
        let code = |target| session.codes.iter().find(|(id, _)| *id == TargetId(target)).unwrap().1;
        assert_eq!(code(2 * round), i32::try_from(round).unwrap());
        assert_eq!(code(2 * round + 1), 128 + 9);
    }
    session.stop();
}

/// What a program sees of what it was given: signals, capabilities, limit, priority, descriptors.
struct Given {
    rest: Vec<String>,
    ignored: u64,
    descriptors: Vec<u32>,
}

impl Given {
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
    let own = Given::read(&path);
    let mut session = Session::start();
    session.watch(1, shell(&script));
    session.wait("the exit code", |session| !session.codes.is_empty());
    assert_eq!(session.codes, [(TargetId(1), 0)]);
    let command = Given::read(&path);
    assert_eq!(command.rest, own.rest);
    assert_eq!(command.ignored, own.ignored);
    assert!(command.descriptors.iter().all(|number| own.descriptors.contains(number)), "{:?}", command.descriptors);
    session.stop();
}

/// Guarantees: a command that does not exist or may not be executed is a problem with a reason and a shell's exit code,
/// and the sampler goes on.
fn a_command_that_cannot_be_started() {
    let mut session = Session::start();
    session.watch(1, Select::Command(vec!["/no/such/program".into()]));
    session.watch(2, Select::Command(vec!["/etc/passwd".into()]));
    session.watch(3, Select::Command(vec![]));
    session.watch(4, shell("exit 3"));
    session.wait("all exit codes", |session| session.codes.len() == 4);
    session.codes.sort_unstable();
    assert_eq!(session.codes, [(TargetId(1), 127), (TargetId(2), 126), (TargetId(3), 126), (TargetId(4), 3)]);
    let problems: Vec<_> = session.problems.iter().filter(|problem| problem.kind == ProblemKind::Command).collect();
    assert_eq!(problems.len(), 3);
    assert!(problems[0].message.contains("/no/such/program"), "{}", problems[0].message);
    session.stop();
}

/// Guarantees: a command that executes another program is attached to anew, under another number, and its exit code
/// still comes.
fn a_command_that_executes_another_program() {
    let (mut session, gate) = (Session::start(), Gate::new());
    session.watch(1, shell(&format!("exec /bin/bash -c '{}; exit 5'", gate.wait())));
    session.wait("the second program", |session| session.processes.len() == 2);
    gate.open();
    session.wait("the exit code", |session| !session.codes.is_empty());
    assert_eq!(session.codes, [(TargetId(1), 5)]);
    assert_eq!(session.processes.len(), 2);
    assert_ne!(session.processes[0].id, session.processes[1].id);
    assert_eq!(session.processes[0].pid, session.processes[1].pid);
    assert_eq!(session.processes[0].start_unix_nano, session.processes[1].start_unix_nano);
    assert!(session.processes[1].executable.ends_with("/bash"));
    let reasons: Vec<_> = session.detached.iter().map(|(_, why)| *why).collect();
    assert_eq!(reasons, [Detached::Executed, Detached::Exited]);
    session.stop();
}

/// Guarantees: a sampler that is stopped leaves the command it started running, neither stopped nor traced.
fn a_command_runs_on_after_stop() {
    let mut session = Session::start();
    session.watch(1, shell("while :; do :; done"));
    session.wait("samples", |session| session.observations() > 10);
    let pid = session.processes[0].pid;
    session.sampler.send(Command::Unwatch(TargetId(1))).unwrap();
    session.wait("to be let go", |session| !session.detached.is_empty());
    assert_eq!(session.detached[0].1, Detached::Asked);
    let session = session.stop();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let killed = nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap()),
        nix::sys::signal::Signal::SIGKILL,
    );
    assert!(killed.is_ok());
    assert!(status.contains("State:\tR"), "{status}");
    assert!(status.contains("TracerPid:\t0"), "{status}");
    drop(session);
}
