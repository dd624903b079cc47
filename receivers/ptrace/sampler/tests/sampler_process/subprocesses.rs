//! What the processes of a target start.

use std::process::Command as Program;

use profbridge_sampler::message::{Detached, ProblemKind, Select, Settings, TargetId};

use crate::Test;
use crate::session::{RunningProgram, Session};

pub(crate) const TESTS: &[Test] = &[
    ("children_are_found_when_they_come", children_are_found_when_they_come),
    ("a_child_that_executes_stays", a_child_that_executes_stays),
    ("children_of_other_targets_are_theirs", children_of_other_targets_are_theirs),
    ("as_many_children_as_allowed", as_many_children_as_allowed),
];

const SUBPROCESSES: Settings = Settings {
    subprocesses: true,
    rate_hertz: 101.0,
    mode: profbridge_sampler::message::Mode::Wall,
    max_cpu: 0.10,
    max_stopped: 0.02,
    max_stack: 256 << 10,
    max_processes: 64,
    stops: profbridge_sampler::message::Stops::UserBound,
    interpreters: true,
};

/// A shell that waits for a line before it starts its children.
fn shell(script: &str) -> RunningProgram {
    RunningProgram::start(Program::new("/bin/sh").args(["-c", script]))
}

/// Guarantees: the children of a process and theirs belong to its target, those too that come later; without being
/// asked for none does.
fn children_are_found_when_they_come() {
    let mut parent = shell("exec 3<&0; echo ready; read line; sh -c 'cat <&3 & cat <&3 & wait' & cat <&3 & wait");
    let mut session = Session::start();
    session.watch_with(1, Select::Pid(parent.pid()), &[], SUBPROCESSES);
    session.wait("the parent", |session| session.processes.len() == 1);
    parent.write("go\n");
    let named = |session: &Session, name: &str| {
        let ends = |path: &str| path.rsplit('/').next() == Some(name);
        session.processes.iter().filter(|process| ends(&process.executable)).count()
    };
    session.wait("three of them", |session| named(session, "cat") == 3);
    assert!(session.processes.iter().all(|process| process.target == TargetId(1)));
    let alone = shell("exec 3<&0; cat <&3 & echo ready; wait");
    let before = session.processes.len();
    session.watch(2, Select::Pid(alone.pid()));
    session.wait("the other", |session| session.processes.len() > before);
    session.wait("a second of it", |session| {
        let status = session.statuses.iter().filter(|status| status.process == session.processes[before].id);
        status.map(|status| status.ticks).max() > Some(100)
    });
    assert!(session.processes[before..].iter().all(|process| process.pid == alone.pid()));
    session.stop();
}

/// Guarantees: a child that executes another program stays with its target, also after its parent has ended.
fn a_child_that_executes_stays() {
    let mut parent = shell("exec 3<&0; (read line <&3; read line <&3; exec cat <&3) & echo ready; read line");
    let mut session = Session::start();
    session.watch_with(1, Select::Pid(parent.pid()), &[], SUBPROCESSES);
    session.wait("the child", |session| session.processes.len() == 2);
    let child = (session.processes[1].pid, session.processes[1].id);
    // One line for each reader, whichever is first.
    parent.write("a\nb\nc\n");
    session.wait("another program", |session| {
        session.processes.iter().any(|process| process.pid == child.0 && process.executable.ends_with("cat"))
    });
    assert!(session.detached.contains(&(child.1, Detached::Executed)), "{:?}", session.detached);
    session.stop();
}

/// Guarantees: a child that another target means by a property of its own belongs to that one.
fn children_of_other_targets_are_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("pb-other-child");
    std::fs::copy("/bin/cat", &other).unwrap();
    let script = format!("exec 3<&0; echo ready; read line; cat <&3 & {} <&3 & wait", other.display());
    let mut parent = shell(&script);
    let mut session = Session::start();
    session.watch_with(1, Select::Pid(parent.pid()), &[], SUBPROCESSES);
    session.watch(2, Select::Executable("pb-other-child".to_owned()));
    session.wait("the parent", |session| !session.processes.is_empty());
    parent.write("go\n");
    let of = |session: &Session, name: &str| {
        let ends = |path: &str| path.rsplit('/').next() == Some(name);
        session.processes.iter().rev().find(|process| ends(&process.executable)).map(|process| process.target)
    };
    session.wait("both", |session| of(session, "cat").is_some() && of(session, "pb-other-child").is_some());
    assert_eq!((of(&session, "cat"), of(&session, "pb-other-child")), (Some(TargetId(1)), Some(TargetId(2))));
    session.stop();
}

/// Guarantees: no more processes are attached than allowed, the parent included, and the owner is told once.
fn as_many_children_as_allowed() {
    let parent = shell("exec 3<&0; cat <&3 & cat <&3 & cat <&3 & echo ready; wait");
    let mut session = Session::start();
    let settings = Settings { max_processes: 2, ..SUBPROCESSES };
    session.watch_with(1, Select::Pid(parent.pid()), &[], settings);
    let message = session.problem(ProblemKind::TooMany);
    assert_eq!(session.processes.len(), 2, "{message}");
    session.stop();
}
