//! `profbridge dump` on programs that stand still.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::process::{eventually, run};
use crate::sample::stops;
use crate::targets::{TargetProgram, known};

/// A program whose threads stand at known lines.
const PROGRAM: &str = r#"import select, socket, sys, threading, time

class Worker:
    def nap(self, depth):
        if depth:
            return self.nap(depth - 1)
        time.sleep(600)

def locked():
    with lock:
        pass

def selecting():
    return [wait_for(one) for one in [one]]

def wait_for(what):
    return select.select([what], [], [])

lock = threading.Lock()
lock.acquire()
one, other = socket.socketpair()
for name, target in [("sleeper", lambda: Worker().nap(1)), ("locked", locked), ("selecting", selecting)]:
    threading.Thread(target=target, name=name, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"#;

/// The threads of a dump by profbridge or py-spy: each one's name, and its frames: the name after its last dot, the
/// base name of its file, and its line.
fn threads(dump: &str) -> Vec<(String, Vec<String>)> {
    let mut threads: Vec<(String, Vec<String>)> = Vec::new();
    for line in dump.lines() {
        if line.to_lowercase().starts_with("thread ") {
            threads.push((line.split('"').nth(1).unwrap().to_owned(), Vec::new()));
        } else if let (Some(frame), Some((_, frames))) = (line.strip_prefix("    "), threads.last_mut()) {
            let (name, place) = frame.rsplit_once(" (").unwrap_or((frame, ""));
            let name = name.rsplit('.').next().unwrap_or_default();
            frames.push(format!("{name} {}", place.rsplit('/').next().unwrap_or_default().trim_end_matches(')')));
        }
    }
    threads.sort();
    threads
}

/// The py-spy that a variable names, or that of the PATH.
fn py_spy() -> Option<PathBuf> {
    let py_spy = PathBuf::from(std::env::var_os("PROFBRIDGE_TEST_PY_SPY").unwrap_or_else(|| "py-spy".into()));
    Command::new(&py_spy).arg("--version").output().is_ok_and(|output| output.status.success()).then_some(py_spy)
}

/// Guarantees: each thread of a Python program that stands still is shown with its name, what it waits for, and only
/// its Python functions with their current lines, exactly as py-spy shows them if py-spy exists. All frames are shown
/// on request.
#[test]
fn python() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shop.py"), PROGRAM).unwrap();
    let mut target = TargetProgram::start(Command::new("python3").arg("shop.py").current_dir(folder.path()));
    assert_eq!(target.line(), "ready\n");
    let dump = |options: &[&str]| {
        let finished = run(folder.path(), &[&["dump", "--pid", &target.pid()], options].concat());
        assert!(finished.status.success(), "{}", finished.stderr);
        finished.stdout
    };
    // Threads that have started may not have reached their final place.
    let text = eventually("all threads stand", || {
        let text = dump(&[]);
        let stand = ["waiting for a file or socket", "waiting for events", "waiting for a lock", "sleeping"];
        stand.iter().all(|state| text.contains(&format!("\": {state}, "))).then_some(text)
    });
    assert!(text.lines().next().unwrap().ends_with("shop.py, 4 threads"), "{text}");
    let frames = |name: &str| {
        let threads = threads(&text);
        threads.into_iter().find(|(thread, _)| thread == name).unwrap_or_else(|| panic!("no {name}:\n{text}")).1
    };
    assert_eq!(frames("MainThread"), ["<module> shop.py:25"], "{text}");
    assert_eq!(frames("sleeper")[..3], ["nap shop.py:7", "nap shop.py:6", "<lambda> shop.py:22"], "{text}");
    assert_eq!(frames("locked")[0], "locked shop.py:10", "{text}");
    assert_eq!(frames("selecting")[0], "wait_for shop.py:17", "{text}");
    match py_spy() {
        None => writeln!(std::io::stderr(), "untested here: there is no `py-spy`, nor PROFBRIDGE_TEST_PY_SPY").unwrap(),
        Some(py_spy) => {
            let output = Command::new(py_spy).args(["dump", "--pid", &target.pid()]).output().unwrap();
            let expected = String::from_utf8(output.stdout).unwrap();
            assert_eq!(threads(&text), threads(&expected), "{text}\n{expected}");
        }
    }
    let native = dump(&["--native"]);
    assert!(native.contains("time_sleep") && native.contains("(libc.so.6)"), "{native}");
    assert!(target.is_alive());
}

/// A program of which one thread sleeps with the interpreter's lock, for which the other one waits.
const HOLDER: &str = r#"import ctypes, threading

def victim():
    runs.set()
    while True:
        pass

def hold():
    print("ready", flush=True)
    ctypes.PyDLL(None).sleep(600)

runs = threading.Event()
threading.Thread(target=victim, name="victim", daemon=True).start()
runs.wait()
hold()
"#;

/// Guarantees: a thread that waits for the interpreter's lock, and looks every few milliseconds whether it has it, is
/// shown with its Python functions each time, and so is the one that holds it.
#[test]
fn interpreter_lock() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("holder.py"), HOLDER).unwrap();
    let mut target = TargetProgram::start(Command::new("python3").arg("holder.py").current_dir(folder.path()));
    assert_eq!(target.line(), "ready\n");
    let dump = || {
        let finished = run(folder.path(), &["dump", "--pid", &target.pid()]);
        assert!(finished.status.success(), "{}", finished.stderr);
        finished.stdout
    };
    eventually("the lock is held", || Some(dump()).filter(|text| text.contains("\"victim\": waiting for the GIL, ")));
    for _ in 0..5 {
        let text = dump();
        let threads = threads(&text);
        let frames = |name: &str| &threads.iter().find(|(thread, _)| thread == name).unwrap().1;
        assert_eq!(frames("MainThread")[..2], ["hold holder.py:10", "<module> holder.py:15"], "{text}");
        assert!(frames("victim")[0].starts_with("victim holder.py:"), "{text}");
        assert!(frames("victim").last().unwrap().starts_with("_bootstrap threading.py:"), "{text}");
    }
    assert!(target.is_alive());
}

/// Guarantees: running and waiting threads of a C program are shown with their current lines and what they wait for;
/// afterwards the program continues.
#[test]
fn native() {
    let folder = tempfile::tempdir().unwrap();
    let source = include_str!("targets/known.c");
    let pauses = 1 + source.lines().position(|line| line.trim() == "pause();").unwrap();
    let mut target = TargetProgram::start(Command::new(known()).args(["sleep", "1"]));
    assert_eq!(target.line(), "ready\n");
    let finished = run(folder.path(), &["dump", "--pid", &target.pid()]);
    assert!(finished.status.success(), "{}", finished.stderr);
    let text = finished.stdout;
    assert_eq!(text.matches("\"dozer\": waiting for a signal, ").count(), 8, "{text}");
    assert_eq!(text.matches(&format!("    doze (known.c:{pauses})\n    ")).count(), 8, "{text}");
    // Without perf events, the thread is not stopped either.
    if stops().is_empty() {
        // On a busy machine the thread may wait for a processor.
        let is_in = |state: &str| text.contains(&format!("\nthread {} \"known\": {state}, ", target.pid()));
        assert!(is_in("running") || is_in("waiting for a processor"), "{text}");
        assert!(text.contains("    spin (known.c:") && text.contains("    main (known.c:"), "{text}");
    }
    target.write_line();
    assert_eq!(target.line(), "seen\n");
}

/// Guarantees: if nothing can be read, the status is 1 and the error says why; a readable process is shown even if
/// another one is not readable.
#[test]
fn errors() {
    let folder = tempfile::tempdir().unwrap();
    let finished = run(folder.path(), &["dump", "--pid", "2147483632"]);
    assert_eq!((finished.status.code(), &*finished.stdout), (Some(1), ""), "{}", finished.stderr);
    assert!(finished.stderr.contains("there is no process 2147483632"), "{}", finished.stderr);
    let target = TargetProgram::start(&mut Command::new("cat"));
    let finished = run(folder.path(), &["dump", "--pid", &format!("2147483632,{}", target.pid())]);
    assert!(finished.status.success() && finished.stdout.starts_with("cat (pid "), "{}", finished.stdout);
    assert!(finished.stderr.contains("there is no process 2147483632"), "{}", finished.stderr);
}
