//! What happens to whom when one of them ends.

use std::fs::read_to_string;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command as Program, ExitCode, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use profbridge_sampler::message::{Command, Detached, Event, ProblemKind, Select, Settings, Stops, Target, TargetId};
use profbridge_sampler::{Ending, Notice, SamplerProcess, SendError, StartOptions};

use crate::Test;
use crate::session::{RunningProgram, Session};

pub(crate) const TESTS: &[Test] = &[
    ("samples_and_lets_go", samples_and_lets_go),
    ("a_killed_sampler_harms_nobody", a_killed_sampler_harms_nobody),
    ("the_sampler_ends_with_its_owner", the_sampler_ends_with_its_owner),
    ("signals_for_the_owner_leave_the_sampler_alone", signals_for_the_owner_leave_the_sampler_alone),
    ("a_dropped_sampler_ends", a_dropped_sampler_ends),
    ("the_sampler_has_no_more_than_it_needs", the_sampler_has_no_more_than_it_needs),
    ("starting_by_hand_is_refused", starting_by_hand_is_refused),
    ("the_right_to_trace_can_be_given_up", the_right_to_trace_can_be_given_up),
    ("commands_that_are_too_long", commands_that_are_too_long),
];

fn process(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap())
}

/// Guarantees: a process is attached, sampled only while that is wished, and let go with nothing left behind.
fn samples_and_lets_go() {
    let target = RunningProgram::busy();
    let mut session = Session::start();
    let wanted = Target {
        id: TargetId(1),
        select: Select::Pid(target.pid()),
        settings: Settings::default(),
        environment: Vec::new(),
        thread_attributes: Vec::new(),
        sample_at_once: false,
    };
    session.sampler.send(Command::Watch(wanted)).unwrap();
    session.wait("to be attached", |session| !session.processes.is_empty());
    let id = session.processes[0].id;
    session.sampler.send(Command::Sample { process: id, on: true }).unwrap();
    session.wait("samples", |session| session.observations() > 20);
    session.sampler.send(Command::Sample { process: id, on: false }).unwrap();
    session.sampler.send(Command::Unwatch(TargetId(1))).unwrap();
    session.wait("to be let go", |session| !session.detached.is_empty());
    assert_eq!(session.detached, [(id, Detached::Asked)]);
    assert!(session.problems.iter().all(|problem| problem.kind == ProblemKind::Events), "{:?}", session.problems);
    let indices: Vec<u32> = session.mappings.iter().map(|mapping| mapping.index).collect();
    assert_eq!(indices, (0..u32::try_from(indices.len()).unwrap()).collect::<Vec<_>>());
    let session = session.stop();
    assert_eq!(target.state(), ('R', 0));
    drop(session);
}

/// Guarantees: when the sampler is killed, its owner hears of it, once, and the target runs on, neither stopped nor
/// traced.
fn a_killed_sampler_harms_nobody() {
    let target = RunningProgram::busy();
    for _ in 0..10 {
        let mut session = Session::start();
        let settings = Settings {
            rate_hertz: 1000.0,
            max_cpu: 1.0,
            max_stopped: 1.0,
            stops: Stops::Always,
            ..Settings::default()
        };
        session.watch_with(1, Select::Pid(target.pid()), &[], settings);
        session.wait("samples", |session| session.observations() > 20);
        kill(process(session.sampler.pid()), Signal::SIGKILL).unwrap();
        session.wait("the end", |session| session.ending.is_some());
        assert_eq!(session.ending, Some(Ending::Killed(9)));
        assert_eq!(target.state(), ('R', 0));
        assert!(matches!(session.sampler.send(Command::Stop), Err(SendError::Gone)));
    }
}

/// An owner of its own, for [`the_sampler_ends_with_its_owner`]: says its sampler's id, and then nothing until it is
/// killed.
pub(crate) fn be_an_owner(arguments: &[String]) -> ExitCode {
    let (sampler, mut events) = SamplerProcess::start(StartOptions::default()).unwrap();
    let target = Target {
        id: TargetId(1),
        select: Select::Pid(arguments[0].parse().unwrap()),
        settings: Settings::default(),
        environment: Vec::new(),
        thread_attributes: Vec::new(),
        sample_at_once: true,
    };
    sampler.send(Command::Watch(target)).unwrap();
    events.find(|notice| matches!(notice, Notice::Event(Event::Batch(_)))).unwrap();
    println!("{}", sampler.pid());
    // Nobody is heard any more: the sampler must not depend on that either.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    ExitCode::SUCCESS
}

/// Guarantees: an owner that is killed takes its sampler with it, and the target runs on.
fn the_sampler_ends_with_its_owner() {
    let target = RunningProgram::busy();
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
    // The pipe ends when the last one who holds it ends, which is the sampler.
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    // The kernel closes what a process that ends has open before it lets go of what the process traces.
    target.wait_for_state(('R', 0));
}

/// Guarantees: what a terminal or a service manager sends to the whole group does not end or stop the sampler.
fn signals_for_the_owner_leave_the_sampler_alone() {
    let target = RunningProgram::busy();
    let mut session = Session::start();
    session.watch(1, Select::Pid(target.pid()));
    session.wait("samples", |session| session.observations() > 5);
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
        kill(process(session.sampler.pid()), signal).unwrap();
    }
    let before = session.observations();
    session.wait("more samples", |session| session.observations() > before + 20);
    session.stop();
}

/// Guarantees: dropping the handle ends the sampler.
fn a_dropped_sampler_ends() {
    let (sampler, events) = SamplerProcess::start(StartOptions::default()).unwrap();
    drop(sampler);
    let last = events.last();
    assert!(matches!(last, Some(Notice::Ended(Ending::Stopped))), "{last:?}");
}

/// Guarantees: the sampler is called what it is, cannot be dumped, and holds no descriptor of its owner but the streams
/// and its socket: no network socket above all, even one that was opened to be inherited.
fn the_sampler_has_no_more_than_it_needs() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let flags = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
    nix::fcntl::fcntl(&listener, flags).unwrap();
    let session = Session::start();
    let pid = session.sampler.pid();
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
    session.stop();
}

/// Guarantees: somebody who starts the sampler by hand gets a message and an error.
fn starting_by_hand_is_refused() {
    let output = Program::new(std::env::current_exe().unwrap())
        .args(["--profbridge-ptrace-sampler", "3", "1", "nice"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("profbridge-sampler: "));
}

/// Guarantees: an owner that gave up what it does not need still has a sampler that has the right to trace, if it had
/// it; the thread that hears the sampler has it in no case.
fn the_right_to_trace_can_be_given_up() {
    let target = RunningProgram::busy();
    let mut session = Session::start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            profbridge_sampler::confine_host(false, true).unwrap();
            assert!(!may_trace(std::path::Path::new("/proc/thread-self")));
        });
    });
    let mut hearing = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        if read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "sampler-events") {
            assert!(!may_trace(&task));
            hearing += 1;
        }
    }
    assert!(hearing > 0);
    session.watch(1, Select::Pid(target.pid()));
    session.wait("samples", |session| session.observations() > 5);
    session.stop();
}

/// Whether the thread with this folder has `CAP_SYS_PTRACE`.
fn may_trace(task: &std::path::Path) -> bool {
    let status = read_to_string(task.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:\t")).unwrap();
    u64::from_str_radix(line, 16).unwrap() >> 19 & 1 == 1
}

/// Guarantees: a command that does not fit into a packet is refused, and nothing is broken by it.
fn commands_that_are_too_long() {
    let mut session = Session::start();
    let target = Target {
        id: TargetId(1),
        select: Select::Command(vec!["x".repeat(70_000).into()]),
        settings: Settings::default(),
        environment: Vec::new(),
        thread_attributes: Vec::new(),
        sample_at_once: true,
    };
    let result = session.sampler.send(Command::Watch(target));
    assert!(matches!(result, Err(SendError::TooLong { length: 70_000.., .. })), "{result:?}");
    session.watch(2, Select::Command(vec!["true".into()]));
    session.wait("the exit code", |session| !session.codes.is_empty());
    session.stop();
}
