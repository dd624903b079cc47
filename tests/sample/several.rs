//! Several processes in one run: by id, by name, and their descendants.

use std::path::Path;
use std::process::Command;

use super::{CollapsedStacks, Sampling, stops};
use crate::process::run;
use crate::targets::{TargetProgram, worker};

/// A command line: a shell starts another shell, which starts two workers.
fn workers() -> String {
    let worker = worker().display();
    format!("exec 3<&0; sh -c '{worker} <&3 & {worker} <&3 & wait' <&3")
}

/// The names of the processes in collapsed stacks with this function.
fn processes_with(folder: &Path, function: &str) -> Vec<String> {
    let stacks = CollapsedStacks::read(&folder.join("out.folded"));
    let with = stacks.0.into_iter().filter(|(stack, _)| stack.iter().any(|name| name == function));
    let mut names: Vec<String> = with.map(|(stack, _)| stack[1].clone()).collect();
    names.sort();
    names.dedup();
    names
}

/// Starts a worker and waits until it computes.
fn working() -> TargetProgram {
    let mut program = TargetProgram::start(&mut Command::new(worker()));
    assert_eq!(program.line(), "ready\n");
    program
}

/// Guarantees: `--subprocesses` samples all descendants of a command, each as a separate process with its own
/// functions, and the exit status is still the command's.
#[test]
fn what_a_command_starts() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{}; exit 7", workers());
    let mut sampling =
        Sampling::start(folder.path(), &["-o", "out.folded", "--subprocesses", "--", "sh", "-c", &script]);
    sampling.wait_for(" worker (pid ");
    sampling.wait_for(" worker (pid ");
    let finished = sampling.ended();
    assert_eq!(finished.status.code(), Some(7), "{}", finished.stderr);
    let with = processes_with(folder.path(), "toil");
    assert!(with.len() == 2 && with.iter().all(|name| name.starts_with("worker (pid ")), "{with:?}");
    let list = finished.stderr.lines().skip_while(|line| !line.ends_with("  process"));
    let list: Vec<&str> = list.take_while(|line| !line.starts_with("running:")).collect();
    let is_worker = |line: &&&str| line.contains("  worker (pid ") && line.contains(" % toil (worker");
    assert_eq!(list[1..].iter().filter(is_worker).count(), 2, "{}", finished.stderr);
    let is_hinted = finished.stderr.contains("hint: the command waits");
    assert!(!is_hinted && !finished.stderr.contains("children:"), "{}", finished.stderr);
}

/// Guarantees: if a process given by its id does not run while its children do, the children are sampled as well, and a
/// message says so; with `--no-subprocesses` they are only named.
#[test]
fn an_idle_parent() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = TargetProgram::start(Command::new("sh").args(["-c", &workers()]));
    assert_eq!([shell.line(), shell.line()], ["ready\n", "ready\n"]);
    let sample = |arguments: &[&str]| {
        let pid = shell.pid();
        run(folder.path(), &[&["sample", "-o", "out.folded", "-d", "3", "-p", &pid], stops(), arguments].concat())
    };
    let finished = sample(&[]);
    let with = processes_with(folder.path(), "toil");
    assert!(with.len() == 2 && with.iter().all(|name| name.starts_with("worker (pid ")), "{}", finished.stderr);
    let is_said = finished.stderr.contains(&format!("note: process {} does not run, so", shell.pid()));
    assert!(is_said && !finished.stdout.contains("children:"), "{} {}", finished.stderr, finished.stdout);
    let finished = sample(&["--no-subprocesses"]);
    assert!(processes_with(folder.path(), "toil").is_empty() && !finished.stderr.contains("does not run"));
    assert!(finished.stdout.contains("are not sampled: worker (pid "), "{}", finished.stdout);
    shell.close();
}

/// Guarantees: several processes are sampled in one run, however their ids are written, each once; a missing one is
/// reported, and the others are sampled.
#[test]
fn several_ids() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, mut second) = (working(), working());
    let ids = format!("{},{}", first.pid(), second.pid());
    let arguments = ["-o", "out.folded", "--pid", &ids, "--pid", &first.pid(), "-p", "2147483632"];
    let mut sampling = Sampling::start(folder.path(), &arguments);
    sampling.wait_for(" as well");
    // Now that both are sampled, each computes for half a second more and ends.
    first.close();
    second.close();
    let finished = sampling.ended_by_itself();
    assert!(finished.status.success(), "{}", finished.stderr);
    assert!(finished.stderr.contains("there is no process 2147483632"), "{}", finished.stderr);
    let wanted = [&first, &second].map(|program| format!("worker (pid {})", program.pid()));
    let mut with = processes_with(folder.path(), "toil");
    with.retain(|name| wanted.contains(name));
    assert_eq!(with.len(), 2, "{with:?}");
    for name in &wanted {
        assert!(finished.stdout.contains(name), "no `{name}`: {}", finished.stdout);
    }
    // Their last output shows that they were not affected.
    for program in [&mut first, &mut second] {
        assert!(["0\n", "1\n"].contains(&program.line().as_str()));
    }
}

/// Guarantees: a name selects all processes that have it, including later ones; the run waits for the first one as long
/// as it would sample, says so, and fails if none appears.
#[test]
fn a_name() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("pb-work-of-a-name");
    std::fs::copy(worker(), &program).unwrap();
    let none = run(folder.path(), &["sample", "--name", "pb-work-of-a-n?me", "--duration", "0.3s"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(none.stderr.contains("waiting for a process named pb-work-of-a-n?me"), "{}", none.stderr);
    assert!(none.stderr.contains("there is no process named pb-work-of-a-n?me"), "{}", none.stderr);
    let start = || {
        let mut program = TargetProgram::start(&mut Command::new(&program));
        assert_eq!(program.line(), "ready\n");
        program
    };
    let mut sampling = Sampling::start(folder.path(), &["-o", "out.folded", "--name", "pb-work-of-a-n?me"]);
    assert!(sampling.messages.contains("waiting for a process named pb-work-of-a-n?me"), "{}", sampling.messages);
    let mut first = start();
    sampling.wait_for(&format!("sampling pb-work-of-a-name (pid {}) at", first.pid()));
    let mut second = start();
    sampling.wait_for(&format!("sampling pb-work-of-a-name (pid {}) as well", second.pid()));
    first.close();
    second.close();
    let finished = sampling.ended_by_itself();
    assert!(finished.status.success(), "{}", finished.stderr);
    let with = processes_with(folder.path(), "toil");
    assert_eq!(with.len(), 2, "{with:?}: {}", finished.stderr);
}
