//! Which processes are found, and what is reported about them.

use std::os::unix::fs::PermissionsExt;
use std::process::Command as Program;

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use profbridge_sampler::message::{Command, Detached, ProblemKind, Select, Settings, Target as Wanted, TargetId};

use crate::runner::tests;
use crate::session::{SeenEvents, TrapSession, wanted};
use crate::target::RunningTarget;

tests![
    finds_by_executable_and_again_after_a_restart,
    finds_by_command_line,
    a_wrapper_is_not_what_it_started,
    the_name_it_was_started_by,
    no_more_than_asked_for,
    secrets_of_the_environment_stay,
    what_cannot_be_sampled_says_why,
    perf_maps_that_are_traps,
    a_perf_map_of_a_short_life,
    ends_are_noticed_without_sampling,
];

/// Copies the shell to a file with another name.
fn shell_called(folder: &std::path::Path, name: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::copy("/bin/sh", &path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

const IDLE: &str = "echo ready; read line";

/// Guarantees: every process of an executable is found, also one that is started later, and after a restart its
/// successor under another number.
fn finds_by_executable_and_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let shell = shell_called(folder.path(), "pb-found-by-name");
    let start = || RunningTarget::ready(Program::new(&shell).args(["-c", IDLE]));
    let first = start();
    let mut session = TrapSession::start_with(true);
    session.watch(Select::Executable("pb-found-by-n*".to_owned()), Settings::default());
    session.until("the first", |seen| seen.lives.len() == 1);
    let second = start();
    session.until("the second", |seen| seen.lives.len() == 2);
    assert_eq!(session.seen.lives[1].process.pid, second.pid());
    drop(first);
    session.until("the first one's end", |seen| seen.detached.len() == 1);
    assert_eq!(session.seen.detached, [(session.seen.lives[0].process.id, Detached::Exited)]);
    let _third = start();
    session.until("the third", |seen| seen.lives.len() == 3);
    assert!(session.seen.processes().is_sorted_by(|one, next| one.id < next.id));
    session.finish();
}

/// Guarantees: a part of the arguments is enough to find a process; the sampler and its owner, whose arguments contain
/// that part too, are not selected.
fn finds_by_command_line() {
    let target = RunningTarget::ready(Program::new("/bin/sh").args(["-c", IDLE, "marked-by-4711"]));
    let mut session = TrapSession::start_with(true);
    session.watch(Select::CommandLine("marked-by-??11".to_owned()), Settings::default());
    session.until("it", |seen| seen.lives.len() == 1);
    assert_eq!(session.seen.lives[0].process.pid, target.pid());
    assert_eq!(session.seen.lives[0].process.arguments.last().map(String::as_str), Some("marked-by-4711"));
    let own = format!("--profbridge-ptrace-sampler * {} nice", std::process::id());
    session.watch(Select::CommandLine(own), Settings::default());
    session.watch(Select::Pid(session.sampler().as_raw().cast_unsigned()), Settings::default());
    let message = session.problem(ProblemKind::Permission);
    assert!(message.contains("profbridge itself"), "{message}");
    // The sampler was examined before this new process, which is found later.
    let _second = RunningTarget::ready(Program::new("/bin/sh").args(["-c", IDLE, "marked-by-4811"]));
    session.until("the second", |seen| seen.lives.len() > 1);
    assert!(session.finish().processes().all(|process| process.target == TargetId(1)));
}

/// Guarantees: a wrapper whose arguments contain those of the process that it started is not selected, in whatever form
/// they are written; a wrapper that was attached before it started the process is detached.
fn a_wrapper_is_not_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    // The whole machine is searched, and another user may run this test too.
    let name = format!("pb-wrapped-{}", std::process::id());
    let script = folder.path().join(&name);
    std::fs::write(&script, "#!/bin/sh\necho ready\nread line\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let select = || Select::CommandLine(format!("{name} --port 8??"));
    // The first wrapper waits before it starts its process.
    let late = format!("echo ready; read line; {script} --port 801; true");
    let mut late = RunningTarget::shell(&late);
    let mut session = TrapSession::start_with(true);
    session.watch(select(), Settings::default());
    session.until("the shell, which is all there is", |seen| seen.lives.len() == 1);
    assert_eq!(session.seen.lives[0].process.pid, late.pid());
    late.say("go on");
    session.until("what it started, instead of the shell", |seen| {
        sampled(seen).len() == 1 && !sampled(seen).contains(&late.pid())
    });
    let first = (session.seen.lives[0].process.id, Detached::Asked);
    assert!(session.seen.detached.contains(&first), "{:?}", session.seen.detached);
    let shell = RunningTarget::shell(&format!("exec 2>&1; {script} --port 802; true"));
    let timeout = RunningTarget::ready(Program::new("timeout").args(["600", script, "--port", "803"]));
    let last = RunningTarget::ready(Program::new(script).args(["--port", "804"]));
    // A process that was examined between fork and exec is detached again.
    session.until("the four, and nobody else", |seen| {
        let sampled = sampled(seen);
        let wrappers = [late.pid(), shell.pid(), timeout.pid()];
        sampled.len() == 4 && sampled.contains(&last.pid()) && !wrappers.iter().any(|pid| sampled.contains(pid))
    });
    session.finish();
}

/// The ids of the processes that are attached now.
fn sampled(seen: &SeenEvents) -> Vec<u32> {
    seen.lives.iter().filter(|life| life.detached.is_none()).map(|life| life.process.pid).collect()
}

/// Guarantees: a process that was started by a link has the link's name, and so has its executable among its mapped
/// files; it is found by the file name that the kernel reports.
fn the_name_it_was_started_by() {
    let folder = tempfile::tempdir().unwrap();
    shell_called(folder.path(), "pb-check-rdb");
    let link = folder.path().join("pb-server");
    std::os::unix::fs::symlink("pb-check-rdb", &link).unwrap();
    let _target = RunningTarget::ready(Program::new(&link).args(["-c", IDLE]));
    let mut session = TrapSession::start_with(true);
    session.watch(Select::Executable("pb-check-rdb".to_owned()), Settings::default());
    session.until("its files", |seen| {
        seen.lives.last().is_some_and(|life| life.mappings.iter().any(|(mapping, _)| mapping.main))
    });
    let folder = std::fs::canonicalize(folder.path()).unwrap();
    let seen = session.finish();
    let life = seen.last();
    assert_eq!(life.process.executable, folder.join("pb-server").to_string_lossy());
    let main: Vec<_> = life.mappings.iter().filter(|(mapping, _)| mapping.main).collect();
    assert!(main.iter().all(|(mapping, _)| mapping.path == life.process.executable && !mapping.go), "{main:?}");
}

/// Guarantees: no more processes are attached than a target allows, and the rest is reported.
fn no_more_than_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let shell = shell_called(folder.path(), "pb-too-many");
    let running: Vec<RunningTarget> =
        (0..3).map(|_| RunningTarget::ready(Program::new(&shell).args(["-c", IDLE]))).collect();
    let mut session = TrapSession::start_with(true);
    let settings = Settings { max_processes: 2, ..Settings::default() };
    session.watch(Select::Executable("pb-too-many".to_owned()), settings);
    session.problem(ProblemKind::TooMany);
    assert_eq!(session.seen.lives.len(), 2);
    drop(running);
    session.finish();
}

/// Guarantees: only the requested environment variables are received.
fn secrets_of_the_environment_stay() {
    let mut program = Program::new("/bin/sh");
    program.args(["-c", IDLE]).env("OTEL_SERVICE_NAME", "shop").env("PASSWORD", "hunter2");
    let target = RunningTarget::ready(&mut program);
    let mut session = TrapSession::start_with(true);
    session.watch_target(Wanted {
        environment: ["OTEL_SERVICE_NAME", "SENTRY_RELEASE"].map(str::to_owned).to_vec(),
        ..wanted(Select::Pid(target.pid()), Settings::default())
    });
    session.until("it", |seen| !seen.lives.is_empty());
    assert_eq!(session.seen.lives[0].process.environment, [("OTEL_SERVICE_NAME".to_owned(), "shop".to_owned())]);
    assert!(!format!("{:?}", session.seen.lives).contains("hunter2"));
    session.finish();
}

/// Guarantees: a process that does not exist and a dead process are reported differently, each once.
fn what_cannot_be_sampled_says_why() {
    let mut session = TrapSession::start_with(true);
    session.watch(Select::Pid(0x7fff_fff0), Settings::default());
    let message = session.problem(ProblemKind::Missing);
    assert!(message.contains("2147483632"), "{message}");
    let mut child = Program::new("true").spawn().unwrap();
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap());
    waitid(Id::Pid(process), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    session.watch(Select::Pid(child.id()), Settings::default());
    let message = session.problem(ProblemKind::Zombie);
    child.wait().unwrap();
    assert!(message.contains("zombie") && message.contains(&std::process::id().to_string()), "{message}");
    session.watch(Select::Pid(2), Settings::default());
    session.until("the thread of the kernel", |seen| {
        seen.problems.iter().any(|problem| problem.target == TargetId(3) || problem.pid == Some(2))
    });
    session.watch(Select::Container("short".to_owned()), Settings::default());
    session.until("the container", |seen| seen.problems.iter().any(|problem| problem.target == TargetId(4)));
    session.finish();
}

/// Guarantees: a pipe in place of the perf map blocks nothing and is reported; a real perf map is received, and again
/// when it is replaced.
fn perf_maps_that_are_traps() {
    let target = RunningTarget::shell(IDLE);
    let path = std::path::PathBuf::from(format!("/tmp/perf-{}.map", target.pid()));
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut session = TrapSession::start_with(true);
    session.watch(Select::Pid(target.pid()), Settings::default());
    let message = session.problem(ProblemKind::Malformed);
    std::fs::remove_file(&path).unwrap();
    assert!(message.contains("no regular file"), "{message}");
    std::fs::write(&path, "1000 10 first\n").unwrap();
    session.until("the map", |seen| seen.last().perf_maps == 1);
    let next = path.with_extension("next");
    std::fs::write(&next, "1000 10 second\n").unwrap();
    std::fs::rename(&next, &path).unwrap();
    session.until("its successor", |seen| seen.last().perf_maps == 2);
    std::fs::remove_file(&path).unwrap();
    session.finish();
}

/// Guarantees: the perf map of a process that ends right after it wrote the map is received before the process's end.
fn a_perf_map_of_a_short_life() {
    let target = RunningTarget::shell(IDLE);
    let path = std::path::PathBuf::from(format!("/tmp/perf-{}.map", target.pid()));
    let mut session = TrapSession::start_with(true);
    session.watch(Select::Pid(target.pid()), Settings::default());
    session.until("it", |seen| !seen.lives.is_empty());
    assert_eq!(session.seen.last().perf_maps, 0);
    std::fs::write(&path, "1000 10 first\n").unwrap();
    drop(target);
    session.until("its end", |seen| !seen.detached.is_empty());
    std::fs::remove_file(&path).unwrap();
    assert_eq!((session.seen.last().perf_maps, session.seen.last().detached), (1, Some(Detached::Exited)));
    session.finish();
}

/// Guarantees: the end of an attached process is noticed even if it is not being sampled.
fn ends_are_noticed_without_sampling() {
    let target = RunningTarget::shell(IDLE);
    let mut session = TrapSession::start_with(true);
    session.watch(Select::Pid(target.pid()), Settings::default());
    session.until("it", |seen| !seen.lives.is_empty());
    let process = session.seen.lives[0].process.id;
    session.send(Command::Sample { process, on: false });
    drop(target);
    session.until("its end", |seen| !seen.detached.is_empty());
    assert_eq!(session.seen.detached, [(process, Detached::Exited)]);
    session.finish();
}
