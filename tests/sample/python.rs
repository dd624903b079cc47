//! Python programs, on every Python version found.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use profbridge_model::Line;
use profbridge_wire::otlp::Limits;

use super::{CollapsedStacks, alone, by_some_run, measured, stops};
use crate::process::{Finished, run, untested};

/// A program whose innermost function runs the whole time, called through a method, C code (`sorted`), a lambda,
/// generators and `eval`, while another thread waits.
const PROGRAM: &str = r#"
import sys, threading, time

class Späte:
    def methode(self, n):
        if n:
            return self.methode(n - 1)
        return sorted([1], key=lambda _: list(outer(2)))

def outer(n):
    yield from inner(n)

def inner(n):
    yield eval("busy(float(sys.argv[1]))")

def busy(seconds):
    end = time.process_time() + seconds
    total = 0
    while time.process_time() < end:
        for i in range(10000):
            total += i * 3 % 7
    # What ran last may be read somewhat later, and its callers are only known while it has not returned.
    time.sleep(0.3)
    return total

def waits(event):
    event.wait()

event = threading.Event()
thread = threading.Thread(target=waits, args=(event,))
thread.start()
Späte().methode(3)
event.set()
thread.join()
"#;

/// A program whose two threads run in parallel, as far as the interpreter allows: the same function with different
/// callers.
const AT_ONCE: &str = r#"
import sys, threading, time

def first(seconds):
    spin(seconds)

def second(seconds):
    spin(seconds)

def spin(seconds):
    end = time.thread_time() + seconds
    total = 0
    while time.thread_time() < end:
        for i in range(10000):
            total += i * 3 % 7
    # As above.
    time.sleep(0.3)
    return total

thread = threading.Thread(target=first, args=(float(sys.argv[1]),))
thread.start()
second(float(sys.argv[1]))
thread.join()
"#;

/// The native function that executes Python code; without the leading underscore, like symbols of its parts.
const EVALUATION: &str = "PyEval_EvalFrameDefault";

/// The Pythons of this machine from 3.8 to 3.14 with their minor versions, each executable once.
pub(super) fn pythons() -> Vec<(u32, PathBuf)> {
    let versions = std::env::home_dir().and_then(|home| std::fs::read_dir(home.join(".pyenv/versions")).ok());
    let versions = versions.into_iter().flatten().flatten().map(|version| version.path().join("bin/python3"));
    // Additional ones named by the environment variable.
    let named = std::env::var_os("PROFBRIDGE_TEST_PYTHONS").unwrap_or_default();
    let named: Vec<PathBuf> = std::env::split_paths(&named).collect();
    let system = ["/usr/bin/python3", "python3"].map(PathBuf::from);
    let question =
        "import os, sys; print(sys.version_info[1], sys.implementation.name, os.path.realpath(sys.executable))";
    let answer = |python: PathBuf| {
        let answer = Command::new(&python).args(["-c", question]).output().ok()?;
        let said = String::from_utf8(answer.stdout).ok()?;
        let (minor, rest) = said.trim().split_once(' ')?;
        let (name, executable) = rest.split_once(' ')?;
        (name == "cpython").then_some((minor.parse().ok()?, executable.to_owned(), python))
    };
    let mut found: Vec<(u32, String, PathBuf)> =
        system.into_iter().chain(versions).chain(named).filter_map(answer).collect();
    found.sort();
    found.dedup_by(|one, other| one.1 == other.1);
    found.into_iter().map(|(minor, _, python)| (minor, python)).filter(|(minor, _)| (8..=14).contains(minor)).collect()
}

/// Samples a program from start to end.
fn sampled(folder: &Path, python: &Path, arguments: &[&str]) -> CollapsedStacks {
    let python = python.to_str().unwrap();
    let arguments = [&["sample", "-o", "out.folded"], stops(), &["--", python], arguments].concat();
    let alone = alone();
    let finished = run(folder, &arguments);
    drop(alone);
    assert!(finished.status.success(), "{}", finished.stderr);
    CollapsedStacks::read(&folder.join("out.folded"))
}

/// Whether these functions are on the stack, in this order.
pub(super) fn has_in_order(stack: &[String], wanted: &[&str]) -> bool {
    let mut stack = stack.iter();
    wanted.iter().all(|wanted| stack.any(|name| name == wanted))
}

/// Guarantees: for a program that runs and its waiting thread, all Python functions are on the stack, from the
/// outermost to the running one, in order and at the places of their native frames; and no frame of the evaluation
/// function is left.
#[test]
fn every_version() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program.py");
    std::fs::write(&program, PROGRAM).unwrap();
    let pythons = pythons();
    for minor in 8..=14 {
        if pythons.iter().all(|(known, _)| *known != minor) {
            untested(&format!("there is no Python 3.{minor}"));
        }
    }
    for (minor, python) in pythons {
        by_some_run(|| {
            let stacks = sampled(folder.path(), &python, &[program.to_str().unwrap(), "2"]);
            let (running, waiting): (Vec<_>, Vec<_>) = stacks.0.iter().partition(|(stack, _)| stack[0] != "[waiting]");
            let method = "Späte.methode";
            // Before 3.11 only methods have a qualified name.
            let lambda = if minor >= 11 { "Späte.methode.<locals>.<lambda>" } else { "<lambda>" };
            // Ignores the time before the program runs and after it ends.
            let busy = |name: &str, (stack, _): &&&(Vec<String>, u64)| stack.iter().any(|frame| frame == name);
            let nano = |stacks: &[&&(Vec<String>, u64)]| stacks.iter().map(|(_, nano)| nano).sum::<u64>();
            let own: Vec<_> = running.iter().filter(|stack| busy("busy", stack)).collect();
            let wanted = ["<module>", method, method, method, method, lambda, "outer", "inner", "<module>", "busy"];
            type Of<'a> = Vec<&'a (Vec<String>, u64)>;
            let (whole, partly): (Of<'_>, Of<'_>) =
                own.iter().map(|stack| **stack).partition(|stack| has_in_order(&stack.0, &wanted));
            // In one of a hundred samples some callers may be unreadable and missing; the others are in order.
            for (stack, _) in &partly {
                let shown: Vec<&str> = stack.iter().map(String::as_str).filter(|name| wanted.contains(name)).collect();
                let wanted: Vec<String> = wanted.map(str::to_owned).to_vec();
                assert!(has_in_order(&wanted, &shown), "{python:?}: {stack:?}");
            }
            let left_out: u64 = partly.iter().map(|(_, nano)| nano).sum();
            measured!(left_out < 150_000_000, "{python:?}: {left_out} ns");
            for (stack, _) in &whole {
                assert!(!stack.iter().any(|name| name.contains(EVALUATION)), "{python:?}: {stack:?}");
                let sorted = stack.iter().position(|name| name == "builtin_sorted" || name == "list_sort_impl");
                let calling = stack.iter().position(|name| name == lambda).unwrap();
                assert!(sorted.is_none_or(|sorted| sorted < calling), "{python:?}: {stack:?}");
            }
            let (own, all) = (nano(&own), nano(&running.iter().collect::<Vec<_>>()));
            measured!(own > 1_800_000_000, "{python:?}: {own} of {all} ns");
            let waits: Vec<_> = waiting.iter().filter(|stack| busy("waits", stack)).collect();
            for (stack, _) in &waits {
                let wanted = ["Thread._bootstrap", "Thread.run", "waits", "Event.wait"];
                assert!(has_in_order(stack, &wanted), "{python:?}: {stack:?}");
            }
            measured!(nano(&waits) > 1_800_000_000, "{python:?}: {} ns", nano(&waits));
            Ok(())
        });
    }
}

/// Guarantees: a script started by a relative path is shown with its absolute path, whatever Python stores.
#[test]
fn whole_path_of_a_script() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("program.py"), PROGRAM).unwrap();
    let path = folder.path().canonicalize().unwrap().join("program.py").into_os_string().into_encoded_bytes();
    for (_, python) in pythons() {
        let arguments = ["sample", "-o", "out.otlp", "--", python.to_str().unwrap(), "./program.py", "0.5"];
        assert!(run(folder.path(), &arguments).status.success());
        let written = std::fs::read(folder.path().join("out.otlp")).unwrap();
        assert!(written.windows(path.len()).any(|bytes| bytes == path), "{python:?}");
    }
}

/// Guarantees: threads that run in parallel, also without the global lock, where each executes its own copy of the
/// function's instructions, have only their own callers, and all of their time. In one of a hundred samples some
/// callers may be unreadable and missing.
#[test]
fn threads_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program.py");
    std::fs::write(&program, AT_ONCE).unwrap();
    for (_, python) in pythons() {
        by_some_run(|| {
            let stacks = sampled(folder.path(), &python, &[program.to_str().unwrap(), "1.5"]);
            let (mut own, mut left_out) = ([0; 2], 0);
            for (stack, nano) in &stacks.0 {
                if stack[0] == "[waiting]" || stack.iter().all(|name| name != "spin") {
                    continue;
                }
                match ["first", "second"].map(|caller| has_in_order(stack, &[caller, "spin"])) {
                    [true, true] => panic!("{python:?}: {stack:?}"),
                    [false, false] => left_out += nano,
                    [_, is_second] => own[usize::from(is_second)] += nano,
                }
            }
            // By chance a few of three hundred samples may have unreadable callers in a row.
            measured!(left_out < 150_000_000, "{python:?}: {left_out} ns");
            measured!(own.iter().all(|nano| *nano > 1_200_000_000), "{python:?}: {own:?} ns");
            Ok(())
        });
    }
}

/// A program of two pairs of functions that call each other alternately, some hundred times a second: the innermost
/// function determines which callers are impossible.
const IN_TURN: &str = r#"
import sys, time

def inner_hot(n):
    s = 0
    for i in range(n):
        s += i * i % 7
    return s

def inner_cool(n):
    s = 0
    for i in range(n):
        s += i % 3
    return s

class Shop:
    def rank(self, n):
        return inner_hot(n)

    def price(self, n):
        return inner_cool(n)

shop, end = Shop(), time.time() + float(sys.argv[1])
while time.time() < end:
    shop.rank(20000)
    shop.price(20000)
"#;

/// A program whose three threads wait for the interpreter, for a CPU and for a timeout in one function after the other,
/// each with its own name for a fifth of a second. It prints when each began and ended.
const ONE_AFTER_THE_OTHER: &str = r#"
import sys, threading, time

def work(end):
    while time.monotonic() < end:
        sum(range(500))
        if time.monotonic() * 1000 % 20 < 1:
            time.sleep(0.002)

until = time.monotonic() + float(sys.argv[1])
number = 0
while time.monotonic() < until:
    exec(f"def turn_{number}(end): work(end)")
    begin, end = time.time_ns(), time.monotonic() + 0.2
    threads = [threading.Thread(target=globals()[f"turn_{number}"], args=(end,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"turn_{number}", begin, time.time_ns(), flush=True)
    number += 1
"#;

/// Guarantees: no wait is shown in a function that was not running then, though its thread had the same native stack
/// before, in other functions.
#[test]
fn waits_have_the_functions_of_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program.py");
    std::fs::write(&program, ONE_AFTER_THE_OTHER).unwrap();
    // A sample begins at most one period before its stack was read.
    let late = 50_000_000;
    for (_, python) in pythons() {
        let arguments = ["sample", "-o", "out.otlp", "--", python.to_str().unwrap(), program.to_str().unwrap(), "4"];
        let Finished { status, stdout, stderr } = run(folder.path(), &arguments);
        assert!(status.success(), "{stderr}");
        let turn = |line: &str| {
            let mut words = line.split_whitespace();
            let name = words.next()?.to_owned();
            let [begin, end] = [words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?];
            Some((name, begin - late..end + late))
        };
        let turns: HashMap<String, Range<u64>> = stdout.lines().filter_map(turn).collect();
        assert!(turns.len() > 5, "{python:?}: {turns:?}");
        let sampled = std::fs::read(folder.path().join("out.otlp")).unwrap();
        let decoded = profbridge_wire::otlp::decode(sampled.into(), &Limits::default()).unwrap();
        let profiles = &decoded.profiles;
        let dictionary = profiles.dictionary();
        let name = |line: &Line| line.function.map(|id| dictionary.function(id).name);
        let mut placed = 0;
        for sample in profiles.profiles().flat_map(|profile| profiles.samples(profile)) {
            let stack = dictionary.stack(sample.stack).flatten();
            let lines = stack.flat_map(|location| dictionary.lines(dictionary.location(location)));
            let mut names = lines.filter_map(name).map(|name| dictionary.string(name));
            let Some(turn) = names.find(|name| name.starts_with("turn_")) else { continue };
            for time in sample.timestamps() {
                assert!(turns[turn].contains(&time), "{python:?}: {turn} at {time}, it ran {:?}", turns[turn]);
                placed += 1;
            }
        }
        assert!(placed > 50, "{python:?}: {placed} observations");
    }
}

/// Guarantees: even if other programs keep all CPUs busy, no function is shown with a caller that never calls it; the
/// few unknown callers are marked by a frame.
#[test]
fn callers_are_right_or_missing() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program.py");
    std::fs::write(&program, IN_TURN).unwrap();
    let neighbours = super::Neighbours::start(2);
    for (_, python) in pythons() {
        by_some_run(|| {
            let stacks = sampled(folder.path(), &python, &[program.to_str().unwrap(), "4"]);
            let (mut all, mut impossible, mut missing) = (0, 0, 0);
            for (stack, nano) in &stacks.0 {
                let has = |name: &str| stack.iter().any(|frame| frame.rsplit('.').next() == Some(name));
                let pairs = [("inner_hot", "rank", "price"), ("inner_cool", "price", "rank")];
                let Some((_, right, wrong)) = pairs.into_iter().find(|(leaf, ..)| has(leaf)) else { continue };
                if stack[0] == "[waiting]" {
                    continue;
                }
                all += nano;
                impossible += if has(wrong) { *nano } else { 0 };
                if !has(right) && !has(wrong) {
                    missing += nano;
                    let is_said = has("[callers not known]") || has("[unknown function]");
                    assert!(is_said, "{python:?}: {stack:?}");
                }
            }
            assert!(impossible * 1_000 <= all, "{python:?}: {impossible} of {all} ns have a wrong caller");
            measured!(all > 200_000_000 && missing * 10 <= all, "{python:?}: {missing} of {all} ns");
            Ok(())
        });
    }
    drop(neighbours);
}
