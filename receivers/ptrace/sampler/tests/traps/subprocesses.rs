//! The child processes of a target's processes.

use profbridge_sampler::message::{Detached, ProblemKind, Select, Settings, TargetId};

use crate::runner::tests;
use crate::session::{SeenEvents, TrapSession};
use crate::target::RunningTarget;

tests![
    children_are_found_when_they_come,
    a_child_that_executes_stays,
    children_of_other_targets_are_theirs,
    as_many_children_as_allowed,
];

fn subprocesses() -> Settings {
    Settings { subprocesses: true, ..Settings::default() }
}

/// Guarantees: all descendants of a process belong to its target, including later ones; without the setting
/// `subprocesses`, none does.
fn children_are_found_when_they_come() {
    let mut parent =
        RunningTarget::shell("exec 3<&0; echo ready; read line; sh -c 'cat <&3 & cat <&3 & wait' & cat <&3 & wait");
    let mut session = TrapSession::start_with(true);
    session.watch(Select::Pid(parent.pid()), subprocesses());
    session.until("the parent", |seen| seen.lives.len() == 1);
    parent.say("go");
    let named = |seen: &SeenEvents, name: &str| {
        let ends = |path: &str| path.rsplit('/').next() == Some(name);
        seen.processes().filter(|process| ends(&process.executable)).count()
    };
    session.until("three of them", |seen| named(seen, "cat") == 3);
    assert!(session.seen.processes().all(|process| process.target == TargetId(1)));
    let alone = RunningTarget::shell("exec 3<&0; cat <&3 & echo ready; wait");
    let before = session.seen.lives.len();
    session.watch(Select::Pid(alone.pid()), Settings::default());
    session.until("a second of it", |seen| seen.lives.get(before).is_some_and(|life| life.status.ticks > 100));
    assert!(session.seen.processes().skip(before).all(|process| process.pid == alone.pid()));
    session.finish();
}

/// Guarantees: a child that executes another program stays with its target, also after its parent has ended.
fn a_child_that_executes_stays() {
    let mut parent =
        RunningTarget::shell("exec 3<&0; (read line <&3; read line <&3; exec cat <&3) & echo ready; read line");
    let mut session = TrapSession::start_with(true);
    session.watch(Select::Pid(parent.pid()), subprocesses());
    session.until("the child", |seen| seen.lives.len() == 2);
    let child = (session.seen.lives[1].process.pid, session.seen.lives[1].process.id);
    // Each of the two readers reads one line, in any order.
    parent.say("a\nb\nc");
    session.until("another program", |seen| {
        seen.processes().any(|process| process.pid == child.0 && process.executable.ends_with("cat"))
    });
    assert!(session.seen.detached.contains(&(child.1, Detached::Executed)), "{:?}", session.seen.detached);
    session.finish();
}

/// Guarantees: a child that another target selects by a property belongs to that target.
fn children_of_other_targets_are_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("pb-other-child");
    std::fs::copy("/bin/cat", &other).unwrap();
    let script = format!("exec 3<&0; echo ready; read line; cat <&3 & {} <&3 & wait", other.display());
    let mut parent = RunningTarget::shell(&script);
    let mut session = TrapSession::start_with(true);
    session.watch(Select::Pid(parent.pid()), subprocesses());
    session.watch(Select::Executable("pb-other-child".to_owned()), Settings::default());
    session.until("the parent", |seen| !seen.lives.is_empty());
    parent.say("go");
    let target_of = |seen: &SeenEvents, name: &str| {
        let ends = |path: &str| path.rsplit('/').next() == Some(name);
        seen.processes().filter(|process| ends(&process.executable)).last().map(|process| process.target)
    };
    session.until("both", |seen| target_of(seen, "cat").is_some() && target_of(seen, "pb-other-child").is_some());
    let seen = session.finish();
    assert_eq!(["cat", "pb-other-child"].map(|name| target_of(&seen, name)), [1, 2].map(|id| Some(TargetId(id))));
}

/// Guarantees: no more processes are attached than allowed, the parent included, and the rest is reported once.
fn as_many_children_as_allowed() {
    let parent = RunningTarget::shell("exec 3<&0; cat <&3 & cat <&3 & cat <&3 & echo ready; wait");
    let mut session = TrapSession::start_with(true);
    let settings = Settings { max_processes: 2, ..subprocesses() };
    session.watch(Select::Pid(parent.pid()), settings);
    let message = session.problem(ProblemKind::TooMany);
    assert_eq!(session.seen.lives.len(), 2, "{message}");
    session.finish();
}
