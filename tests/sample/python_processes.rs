//! Python programs beyond one interpreter in one process: ways to call functions, forks, PID namespaces, other programs
//! that embed Python, several interpreters.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::python::{has_in_order, pythons};
use super::{CollapsedStacks, by_some_run, measured, stops};
use crate::process::{Finished, run, untested};
use crate::targets::embedded;

/// How long each process waits in its own functions. Finding a new process may take part of that time, so a process
/// counts as found if it has samples of more than `FOUND` nanoseconds.
const SECONDS: &str = "3";
const FOUND: u64 = 1_000_000_000;

/// A program of these tests.
fn target(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/targets");
    std::fs::canonicalize(folder.join(name)).unwrap().to_str().unwrap().to_owned()
}

/// Samples a command from its start to its end.
fn sampled(folder: &Path, output: &str, options: &[&str], command: &[&str]) -> Finished {
    let finished = run(folder, &[&["sample", "-o", output], stops(), options, &["--"], command].concat());
    assert!(finished.status.success(), "{}", finished.stderr);
    finished
}

/// The function, file and line of a Python frame of a chunk; `None` for native frames. Before 3.11 programs do not know
/// the qualified names of functions.
fn python_frame(frame: &Value, minor: u32) -> Option<(String, String, u64)> {
    let text = |key: &str| frame[key].as_str().map(str::to_owned);
    text("module")?;
    let mut function = text("function")?;
    if minor < 11
        && let Some((_, own)) = function.rsplit_once('.')
    {
        function = own.to_owned();
    }
    Some((function, text("abs_path").or(text("filename"))?, frame["lineno"].as_u64()?))
}

/// Guarantees: however functions are called, the frames of a waiting thread are exactly those that the program itself
/// reports: functions, files and lines.
#[test]
fn frames_are_what_the_program_says() {
    let folder = tempfile::tempdir().unwrap();
    for (minor, python) in pythons() {
        let finished =
            sampled(folder.path(), "out.envelope", &[], &[python.to_str().unwrap(), &target("forms.py"), "2"]);
        let truth: BTreeMap<String, Vec<(String, String, u64)>> = serde_json::from_str(&finished.stdout).unwrap();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let text = std::fs::read_to_string(folder.path().join("out.envelope")).unwrap();
        for chunk in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let profile = &chunk["profile"];
            for sample in profile["samples"].as_array().into_iter().flatten() {
                let thread = sample["thread_id"].as_str().unwrap();
                let stack = &profile["stacks"][sample["stack_id"].as_u64().unwrap() as usize];
                let frames = stack.as_array().unwrap().iter().rev();
                let frame = |at: &Value| &profile["frames"][at.as_u64().unwrap() as usize];
                let frames: Vec<_> = frames.filter_map(|at| python_frame(frame(at), minor)).collect();
                // The waiting function does nothing else, except for its first and last moments.
                if frames.last().is_some_and(|(function, ..)| function == "waits_here") && frames == truth[thread] {
                    *seen.entry(thread.to_owned()).or_default() += 1;
                } else if frames.iter().any(|(function, ..)| function == "waits_here") {
                    let said = &truth[thread];
                    let other = frames.iter().zip(said).find(|(one, two)| (&one.0, &one.1) != (&two.0, &two.1));
                    let lengths = (frames.len(), said.len());
                    assert!(other.is_none() && lengths.0 == lengths.1, "Python 3.{minor}: {lengths:?} {other:?}");
                }
            }
        }
        assert!(truth.len() > 20, "Python 3.{minor}: {}", truth.len());
        let unseen: Vec<_> = truth.iter().filter(|(thread, _)| !seen.contains_key(*thread)).collect();
        assert!(unseen.is_empty(), "Python 3.{minor}: {unseen:?}");
    }
}

/// The waiting time with this function on the stack, by process name. Asserts that no other function of the list is on
/// the same stack.
fn waiting(stacks: &CollapsedStacks, function: &str) -> BTreeMap<String, u64> {
    let functions = ["in_parent", "in_thread", "in_first_child", "in_second_child", "in_grandchild"];
    let mut nano = BTreeMap::new();
    for (stack, value) in &stacks.under("[waiting]").0 {
        if has_in_order(stack, &[function, "waits"]) {
            let inner = stack.iter().filter(|name| functions.contains(&name.as_str())).count();
            let outer = usize::from(function == "in_grandchild");
            assert!(inner == 1 + outer, "{stack:?}");
            *nano.entry(stack[0].clone()).or_default() += value;
        }
    }
    nano
}

/// Checks that each process of `forks.py` is shown with only its own functions. How much of it was sampled is a
/// measurement.
fn check_forks(stacks: &CollapsedStacks, python: &Path) -> Result<(), String> {
    let of = |function: &str| {
        let nano = waiting(stacks, function);
        let found: Vec<String> = nano.into_iter().filter(|(_, nano)| *nano > FOUND).map(|(name, _)| name).collect();
        found
    };
    let (parent, second, grandchild) = (of("in_parent"), of("in_second_child"), of("in_grandchild"));
    // The first process has a thread, and so has its first child.
    let threads = of("in_thread");
    let said = format!("{python:?}: {parent:?}, {second:?}, {grandchild:?}, {threads:?}");
    for (found, wanted) in [(&parent, 1), (&second, 1), (&grandchild, 1), (&threads, 2)] {
        assert!(found.len() <= wanted, "{said}");
    }
    assert!(second.iter().chain(&grandchild).all(|one| !threads.contains(one)), "{said}");
    for (found, wanted) in [(&parent, 1), (&second, 1), (&grandchild, 1), (&threads, 2)] {
        // A busy machine may find a new process late, and sample less of it.
        measured!(found.len() >= wanted, "{said}");
    }
    assert!(threads.contains(&parent[0]), "{said}");
    Ok(())
}

/// Guarantees: processes forked by a Python program, before it has other threads and after, and their own forked
/// children, are shown with the functions that each executes.
#[test]
fn forks() {
    let folder = tempfile::tempdir().unwrap();
    for (_, python) in pythons() {
        let command = [python.to_str().unwrap(), &target("forks.py"), SECONDS];
        by_some_run(|| {
            sampled(folder.path(), "out.folded", &["--subprocesses"], &command);
            check_forks(&CollapsedStacks::read(&folder.path().join("out.folded")), &python)
        });
    }
}

/// Guarantees: the same in a PID namespace, where Python's thread ids differ from the sampler's.
#[test]
fn namespaces_of_process_ids() {
    let folder = tempfile::tempdir().unwrap();
    let unshare = ["unshare", "--pid", "--fork", "--kill-child"];
    let can = Command::new(unshare[0]).args(&unshare[1..]).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        return untested("no namespace of process ids can be made");
    }
    for (_, python) in pythons() {
        let program = target("forks.py");
        let command = [&unshare[..], &[python.to_str().unwrap(), &program, SECONDS]].concat();
        by_some_run(|| {
            sampled(folder.path(), "out.folded", &["--subprocesses"], &command);
            check_forks(&CollapsedStacks::read(&folder.path().join("out.folded")), &python)
        });
    }
}

/// The shared library of a Python with its minor version, if there is one.
fn library((minor, python): (u32, PathBuf)) -> Option<(u32, PathBuf)> {
    let question =
        "import os, sysconfig as s; print(os.path.join(s.get_config_var('LIBDIR'), s.get_config_var('INSTSONAME')))";
    let output = Command::new(python).args(["-c", question]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    let is_library = path.to_str()?.contains(".so") && path.exists();
    is_library.then_some((minor, path))
}

/// Guarantees: Pythons embedded in a program of another language are read as well: loaded late, several versions in one
/// process, and several interpreters in each.
#[test]
fn embedded_interpreters() {
    let folder = tempfile::tempdir().unwrap();
    let mut libraries: Vec<(u32, PathBuf)> = pythons().into_iter().filter_map(library).collect();
    libraries.dedup_by_key(|(minor, _)| *minor);
    if libraries.is_empty() {
        return untested("no Python has a shared library");
    }
    let program = embedded().to_str().unwrap();
    for libraries in libraries.chunks(3) {
        let paths: Vec<&str> = libraries.iter().map(|(_, path)| path.to_str().unwrap()).collect();
        by_some_run(|| {
            sampled(folder.path(), "out.folded", &[], &[&[program][..], &paths].concat());
            let stacks = CollapsedStacks::read(&folder.path().join("out.folded")).under("[waiting]");
            for (minor, _) in libraries {
                for name in ["first", "second"] {
                    let function = format!("{name}_{minor}");
                    let wanted = ["python", "<module>", &function];
                    let with = stacks.0.iter().filter(|(stack, _)| has_in_order(stack, &wanted));
                    let nano: u64 = with.map(|(_, nano)| nano).sum();
                    assert_eq!(nano, stacks.total(&function), "{function}");
                    measured!(nano > 750_000_000, "{function}: {nano} ns");
                }
            }
            Ok(())
        });
    }
}
