//! The effects on targets, sampler and owner when one of them ends.

use std::fs::read_to_string;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command as Program, ExitCode, Stdio};

use nix::sys::signal::{Signal, kill};
use profbridge_sampler::message::{Command, Detached, Event, ProblemKind, Select, Settings, Target as Wanted};
use profbridge_sampler::{Ending, Notice, SamplerProcess, SendError, StartOptions};

use crate::process;
use crate::runner::tests;
use crate::session::{TrapSession, wanted};
use crate::target::RunningTarget;

tests![
    samples_and_lets_go,
    the_sampler_ends_with_its_owner,
    signals_for_the_owner_leave_the_sampler_alone,
    a_dropped_sampler_ends,
    the_sampler_has_no_more_than_it_needs,
    the_right_to_trace_can_be_given_up,
    commands_that_are_too_long,
];

/// Guarantees: a process is attached, sampled only while that is requested, and detached without traces.
fn samples_and_lets_go() {
    let target = RunningTarget::shell("echo ready; while :; do :; done");
    let mut session = TrapSession::start_with(true);
    let target_id = session
        .watch_target(Wanted { sample_at_once: false, ..wanted(Select::Pid(target.pid()), Settings::default()) });
    session.until("to be attached", |seen| !seen.lives.is_empty());
    let id = session.seen.lives[0].process.id;
    session.send(Command::Sample { process: id, on: true });
    session.until("samples", |seen| seen.observations() > 20);
    session.send(Command::Sample { process: id, on: false });
    session.send(Command::Unwatch(target_id));
    session.until("to be let go", |seen| !seen.detached.is_empty());
    let seen = session.finish();
    assert_eq!(seen.detached, [(id, Detached::Asked)]);
    assert!(seen.problems.iter().all(|problem| problem.kind == ProblemKind::Events), "{:?}", seen.problems);
    assert!(process::is_left_alone(target.pid()));
}

/// A separate owner for [`the_sampler_ends_with_its_owner`]: prints its sampler's id, and then waits until it is
/// killed.
pub(crate) fn be_an_owner(arguments: &[String]) -> ExitCode {
    let (sampler, mut events) = SamplerProcess::start(StartOptions::default()).unwrap();
    let target = wanted(Select::Pid(arguments[0].parse().unwrap()), Settings::default());
    sampler.send(Command::Watch(target)).unwrap();
    events.find(|notice| matches!(notice, Notice::Event(Event::Batch(_)))).unwrap();
    println!("{}", sampler.pid());
    // No more events are received: the sampler's end must not depend on that.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    ExitCode::SUCCESS
}

/// Guarantees: when an owner is killed, its sampler ends too, and the target continues to run.
fn the_sampler_ends_with_its_owner() {
    let target = RunningTarget::shell("echo ready; while :; do :; done");
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut owner = Program::new(std::env::current_exe().unwrap())
        .args(["owner", &target.pid().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let sampler: u32 = line.trim().parse().unwrap();
    assert!(read_to_string(format!("/proc/{sampler}/status")).is_ok());
    owner.kill().unwrap();
    owner.wait().unwrap();
    // The pipe ends when the last process that has it open ends: the sampler.
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    // The kernel closes a process's files before it releases the threads that the process traces.
    while !process::is_left_alone(target.pid()) {
        std::thread::yield_now();
    }
}

/// Guarantees: signals that a terminal or a service manager sends to the whole group do not end or stop the sampler.
fn signals_for_the_owner_leave_the_sampler_alone() {
    let target = RunningTarget::shell("echo ready; while :; do :; done");
    let mut session = TrapSession::start_with(true);
    session.watch(Select::Pid(target.pid()), Settings::default());
    session.until("samples", |seen| seen.observations() > 5);
    let signals = [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTSTP,
        Signal::SIGTTIN,
        Signal::SIGTTOU,
        Signal::SIGHUP,
        Signal::SIGTERM,
    ];
    for signal in signals {
        kill(session.sampler(), signal).unwrap();
    }
    let before = session.seen.observations();
    session.until("more samples", |seen| seen.observations() > before + 20);
    session.finish();
}

/// Guarantees: dropping the handle ends the sampler.
fn a_dropped_sampler_ends() {
    let (sampler, events) = SamplerProcess::start(StartOptions::default()).unwrap();
    drop(sampler);
    let last = events.last();
    assert!(matches!(last, Some(Notice::Ended(Ending::Stopped))), "{last:?}");
}

/// Guarantees: the sampler has its own name, cannot be dumped, and has no descriptors of its owner except the standard
/// streams and its socket: above all no network socket, even if it was opened to be inherited.
fn the_sampler_has_no_more_than_it_needs() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let flags = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
    nix::fcntl::fcntl(&listener, flags).unwrap();
    let session = TrapSession::start_with(true);
    let pid = session.sampler();
    let command_line = read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(command_line.starts_with("profbridge-sampler\0"), "{command_line:?}");
    assert_eq!(read_to_string(format!("/proc/{pid}/comm")).unwrap(), "profbridge-smpl\n");
    if let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) {
        let mut sockets = 0;
        for file in files {
            let target = std::fs::read_link(file.unwrap().path()).unwrap();
            sockets += u32::from(target.to_string_lossy().starts_with("socket:"));
        }
        let own = (0..3).filter(|stream| {
            std::fs::read_link(format!("/proc/{pid}/fd/{stream}"))
                .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
        });
        assert_eq!(sockets, 1 + u32::try_from(own.count()).unwrap());
    }
    session.finish();
}

/// Guarantees: if an owner had the right to trace and gave it up, its sampler still has that right; the thread that
/// receives its events never has it.
fn the_right_to_trace_can_be_given_up() {
    let target = RunningTarget::shell("echo ready; while :; do :; done");
    let mut session = TrapSession::start_with(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            profbridge_sampler::confine_host(false, true).unwrap();
            assert!(!may_trace(std::path::Path::new("/proc/thread-self")));
        });
    });
    let mut receiving = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        if read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "sampler-events") {
            assert!(!may_trace(&task));
            receiving += 1;
        }
    }
    assert!(receiving > 0);
    session.watch(Select::Pid(target.pid()), Settings::default());
    session.until("samples", |seen| seen.observations() > 5);
    session.finish();
}

/// Whether the thread with this folder in `/proc` has `CAP_SYS_PTRACE`.
fn may_trace(task: &std::path::Path) -> bool {
    let status = read_to_string(task.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:\t")).unwrap();
    u64::from_str_radix(line, 16).unwrap() >> 19 & 1 == 1
}

/// Guarantees: a command that does not fit into a packet is refused without further effects.
fn commands_that_are_too_long() {
    let mut session = TrapSession::start_with(true);
    let long = Select::Command(vec!["x".repeat(70_000).into()]);
    let result = session.process.send(Command::Watch(wanted(long, Settings::default())));
    assert!(matches!(result, Err(SendError::TooLong { length: 70_000.., .. })), "{result:?}");
    session.watch(Select::Command(vec!["true".into()]), Settings::default());
    session.until("the exit code", |seen| !seen.ended.is_empty());
    session.finish();
}
