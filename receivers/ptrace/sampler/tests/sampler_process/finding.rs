//! Which processes are found, and what is told about them.

use std::os::unix::fs::PermissionsExt;
use std::process::Command as Program;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use profbridge_sampler::message::{Command, Detached, ProblemKind, Select, Settings, Stops, TargetId};

use crate::Test;
use crate::session::{RunningProgram, Session};

pub(crate) const TESTS: &[Test] = &[
    ("finds_by_executable_and_again_after_a_restart", finds_by_executable_and_again_after_a_restart),
    ("finds_by_command_line", finds_by_command_line),
    ("a_wrapper_is_not_what_it_started", a_wrapper_is_not_what_it_started),
    ("the_name_it_was_started_by", the_name_it_was_started_by),
    ("no_more_than_asked_for", no_more_than_asked_for),
    ("secrets_of_the_environment_stay", secrets_of_the_environment_stay),
    ("what_cannot_be_sampled_says_why", what_cannot_be_sampled_says_why),
    ("a_stopped_target_stays_stopped", a_stopped_target_stays_stopped),
    ("perf_maps_that_are_traps", perf_maps_that_are_traps),
    ("a_perf_map_of_a_short_life", a_perf_map_of_a_short_life),
    ("ends_are_noticed_without_sampling", ends_are_noticed_without_sampling),
];

/// A copy of the shell under another name.
fn shell_called(folder: &std::path::Path, name: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::copy("/bin/sh", &path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

const IDLE: &str = "echo ready; read line";

/// Guarantees: every process of an executable is found, one that is started later too, and its successor after a
/// restart under another number.
fn finds_by_executable_and_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let shell = shell_called(folder.path(), "pb-found-by-name");
    let start = || RunningProgram::start(Program::new(&shell).args(["-c", IDLE]));
    let first = start();
    let mut session = Session::start();
    session.watch(1, Select::Executable("pb-found-by-n*".to_owned()));
    session.wait("the first", |session| session.processes.len() == 1);
    let second = start();
    session.wait("the second", |session| session.processes.len() == 2);
    assert_eq!(session.processes[1].pid, second.pid());
    drop(first);
    session.wait("the first one's end", |session| session.detached.len() == 1);
    assert_eq!(session.detached, [(session.processes[0].id, Detached::Exited)]);
    let _third = start();
    session.wait("the third", |session| session.processes.len() == 3);
    assert!(session.processes.windows(2).all(|pair| pair[0].id < pair[1].id));
    session.stop();
}

/// Guarantees: a part of the arguments is enough, and the sampler, whose owner's arguments contain it as well, is not
/// taken for it.
fn finds_by_command_line() {
    let target = RunningProgram::start(Program::new("/bin/sh").args(["-c", IDLE, "marked-by-4711"]));
    let mut session = Session::start();
    session.watch(1, Select::CommandLine("marked-by-??11".to_owned()));
    session.wait("it", |session| session.processes.len() == 1);
    assert_eq!(session.processes[0].pid, target.pid());
    assert_eq!(session.processes[0].arguments.last().map(String::as_str), Some("marked-by-4711"));
    let own = format!("--profbridge-ptrace-sampler * {} nice", std::process::id());
    session.watch(2, Select::CommandLine(own));
    session.watch(3, Select::Pid(session.sampler.pid()));
    let message = session.problem(ProblemKind::Permission);
    assert!(message.contains("profbridge itself"), "{message}");
    // When a process that appears now is found, the sampler was looked at as well.
    let _second = RunningProgram::start(Program::new("/bin/sh").args(["-c", IDLE, "marked-by-4811"]));
    session.wait("the second", |session| session.processes.len() > 1);
    let session = session.stop();
    assert!(session.processes.iter().all(|process| process.target == TargetId(1)), "{:?}", session.processes);
}

/// Guarantees: a process that carries the arguments of the one it started is not taken for that one, however it is
/// written there; one that was attached to before it started the other is let go.
fn a_wrapper_is_not_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    // The whole machine is searched: somebody else may run this test, too.
    let name = format!("pb-wrapped-{}", std::process::id());
    let script = folder.path().join(&name);
    std::fs::write(&script, "#!/bin/sh\necho ready\nread line\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let select = || Select::CommandLine(format!("{name} --port 8??"));
    // The first one waits before it starts the other.
    let late = format!("echo ready; read line; {script} --port 801; true");
    let mut late = RunningProgram::shell(&late);
    let mut session = Session::start();
    session.watch(1, select());
    session.wait("the shell, which is all there is", |session| session.processes.len() == 1);
    assert_eq!(session.processes[0].pid, late.pid());
    std::io::Write::write_all(late.child.stdin.as_mut().unwrap(), b"go on\n").unwrap();
    session.wait("what it started, instead of the shell", |session| {
        sampled(session).len() == 1 && !sampled(session).contains(&late.pid())
    });
    let first = (session.processes[0].id, Detached::Asked);
    assert!(session.detached.contains(&first), "{:?}", session.detached);
    let shell = RunningProgram::shell(&format!("exec 2>&1; {script} --port 802; true"));
    let timeout = RunningProgram::start(Program::new("timeout").args(["600", script, "--port", "803"]));
    let last = RunningProgram::start(Program::new(script).args(["--port", "804"]));
    // One that was looked at between fork and exec is let go again.
    session.wait("the four, and nobody else", |session| {
        let sampled = sampled(session);
        let wrappers = [late.pid(), shell.pid(), timeout.pid()];
        sampled.len() == 4 && sampled.contains(&last.pid()) && !wrappers.iter().any(|pid| sampled.contains(pid))
    });
    session.stop();
}

/// The processes that are attached now.
fn sampled(session: &Session) -> Vec<u32> {
    let gone = |id| session.detached.iter().any(|(known, _)| *known == id);
    session.processes.iter().filter(|process| !gone(process.id)).map(|process| process.pid).collect()
}

/// Guarantees: a process that was started by a link goes by its name, and so does its executable among its files; it is
/// found by the name of the file that the kernel knows.
fn the_name_it_was_started_by() {
    let folder = tempfile::tempdir().unwrap();
    shell_called(folder.path(), "pb-check-rdb");
    let link = folder.path().join("pb-server");
    std::os::unix::fs::symlink("pb-check-rdb", &link).unwrap();
    let _target = RunningProgram::start(Program::new(&link).args(["-c", IDLE]));
    let mut session = Session::start();
    session.watch(1, Select::Executable("pb-check-rdb".to_owned()));
    session.wait("its files", |session| session.mappings.iter().any(|mapping| mapping.main));
    let folder = std::fs::canonicalize(folder.path()).unwrap();
    assert_eq!(session.processes[0].executable, folder.join("pb-server").to_string_lossy());
    let main: Vec<_> = session.mappings.iter().filter(|mapping| mapping.main).collect();
    assert!(main.iter().all(|mapping| mapping.path == session.processes[0].executable && !mapping.go), "{main:?}");
    session.stop();
}

/// Guarantees: no more processes are attached than a target allows, and the owner is told.
fn no_more_than_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let shell = shell_called(folder.path(), "pb-too-many");
    let running: Vec<RunningProgram> =
        (0..3).map(|_| RunningProgram::start(Program::new(&shell).args(["-c", IDLE]))).collect();
    let mut session = Session::start();
    let settings = Settings { max_processes: 2, ..Settings::default() };
    session.watch_with(1, Select::Executable("pb-too-many".to_owned()), &[], settings);
    session.problem(ProblemKind::TooMany);
    assert_eq!(session.processes.len(), 2);
    drop(running);
    session.stop();
}

/// Guarantees: of the environment only what was asked for arrives.
fn secrets_of_the_environment_stay() {
    let mut program = Program::new("/bin/sh");
    program.args(["-c", IDLE]).env("OTEL_SERVICE_NAME", "shop").env("PASSWORD", "hunter2");
    let target = RunningProgram::start(&mut program);
    let mut session = Session::start();
    session.watch_with(1, Select::Pid(target.pid()), &["OTEL_SERVICE_NAME", "SENTRY_RELEASE"], Settings::default());
    session.wait("it", |session| !session.processes.is_empty());
    assert_eq!(session.processes[0].environment, [("OTEL_SERVICE_NAME".to_owned(), "shop".to_owned())]);
    assert!(!format!("{:?}", session.processes).contains("hunter2"));
    session.stop();
}

/// Guarantees: a process that does not exist, and one that is dead, are told apart, each once.
fn what_cannot_be_sampled_says_why() {
    let mut session = Session::start();
    session.watch(1, Select::Pid(0x7fff_fff0));
    let message = session.problem(ProblemKind::Missing);
    assert!(message.contains("2147483632"), "{message}");
    let mut child = Program::new("true").spawn().unwrap();
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap());
    waitid(Id::Pid(process), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    session.watch(2, Select::Pid(child.id()));
    let message = session.problem(ProblemKind::Zombie);
    child.wait().unwrap();
    assert!(message.contains("zombie") && message.contains(&std::process::id().to_string()), "{message}");
    session.watch(3, Select::Pid(2));
    session.wait("the thread of the kernel", |session| {
        session.problems.iter().any(|problem| problem.target == TargetId(3) || problem.pid == Some(2))
    });
    session.watch(4, Select::Container("short".to_owned()));
    session.wait("the container", |session| session.problems.iter().any(|problem| problem.target == TargetId(4)));
    session.stop();
}

/// Guarantees: a target that a signal stopped is attached, said to be stopped, and stays so until somebody else
/// continues it.
fn a_stopped_target_stays_stopped() {
    let target = RunningProgram::busy();
    let pid = Pid::from_raw(i32::try_from(target.pid()).unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    waitid(Id::Pid(pid), WaitPidFlag::WSTOPPED).unwrap();
    let mut session = Session::start();
    let settings = Settings { stops: Stops::Always, ..Settings::default() };
    session.watch_with(1, Select::Pid(target.pid()), &[], settings);
    let message = session.problem(ProblemKind::Stopped);
    assert!(message.contains("kill -CONT"), "{message}");
    session.wait("a status", |session| !session.statuses.is_empty());
    assert_eq!(target.state(), ('T', 0));
    kill(pid, Signal::SIGCONT).unwrap();
    session.wait("stops of a running thread", |session| session.statuses.iter().any(|status| status.stops > 5));
    session.stop();
    assert_eq!(target.state(), ('R', 0));
}

/// Guarantees: a pipe in the place of the perf map keeps nobody waiting and is told; a proper one arrives, and again
/// when it is replaced.
fn perf_maps_that_are_traps() {
    let target = RunningProgram::shell(IDLE);
    let path = std::path::PathBuf::from(format!("/tmp/perf-{}.map", target.pid()));
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut session = Session::start();
    session.watch(1, Select::Pid(target.pid()));
    let message = session.problem(ProblemKind::Malformed);
    std::fs::remove_file(&path).unwrap();
    assert!(message.contains("no regular file"), "{message}");
    std::fs::write(&path, "1000 10 first\n").unwrap();
    session.wait("the map", |session| session.perf_maps == 1);
    let next = path.with_extension("next");
    std::fs::write(&next, "1000 10 second\n").unwrap();
    std::fs::rename(&next, &path).unwrap();
    session.wait("its successor", |session| session.perf_maps == 2);
    std::fs::remove_file(&path).unwrap();
    session.stop();
}

/// Guarantees: the map of a process that ends right after it wrote it arrives, before its end does.
fn a_perf_map_of_a_short_life() {
    let target = RunningProgram::shell(IDLE);
    let path = std::path::PathBuf::from(format!("/tmp/perf-{}.map", target.pid()));
    let mut session = Session::start();
    session.watch(1, Select::Pid(target.pid()));
    session.wait("it", |session| !session.processes.is_empty());
    assert_eq!(session.perf_maps, 0);
    std::fs::write(&path, "1000 10 first\n").unwrap();
    drop(target);
    session.wait("its end", |session| !session.detached.is_empty());
    std::fs::remove_file(&path).unwrap();
    assert_eq!((session.perf_maps, session.detached[0].1), (1, Detached::Exited));
    session.stop();
}

/// Guarantees: an attached process that is not being sampled is missed when it ends.
fn ends_are_noticed_without_sampling() {
    let target = RunningProgram::shell(IDLE);
    let mut session = Session::start();
    session.watch(1, Select::Pid(target.pid()));
    session.wait("it", |session| !session.processes.is_empty());
    let process = session.processes[0].id;
    session.sampler.send(Command::Sample { process, on: false }).unwrap();
    drop(target);
    session.wait("its end", |session| !session.detached.is_empty());
    assert_eq!(session.detached, [(process, Detached::Exited)]);
    session.stop();
}
