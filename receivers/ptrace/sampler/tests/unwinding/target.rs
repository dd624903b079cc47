//! Programs whose threads are unwound.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How long a target runs between two examinations, in nanoseconds. Otherwise it might not run at all on a busy
/// machine, and all stacks would be the same.
const APART: u64 = 300_000;

/// A program that is killed when this is dropped.
pub(crate) struct ComputingTarget {
    child: Child,
    /// The lines that it printed before an empty line.
    pub(crate) lines: Vec<String>,
}

impl ComputingTarget {
    /// Starts a program and waits until it has printed an empty line.
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        let mut child =
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let output = BufReader::new(child.stdout.take().expect("its output is piped"));
        let lines = output.lines().map(|line| line.expect("its output is text")).take_while(|line| !line.is_empty());
        let lines = lines.collect();
        Self { child, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The ids of the threads.
    pub(crate) fn threads(&self) -> Vec<i32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs");
        let mut threads: Vec<i32> = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect();
        threads.sort_unstable();
        threads
    }

    /// How long all threads have run so far, in nanoseconds.
    pub(crate) fn ran_nano(&self) -> u64 {
        let ran = |thread: i32| {
            let counters = std::fs::read_to_string(format!("/proc/{}/task/{thread}/schedstat", self.pid())).ok()?;
            counters.split_whitespace().next()?.parse::<u64>().ok()
        };
        self.threads().into_iter().filter_map(ran).sum()
    }

    /// Waits until the threads have run for [`APART`], so that they execute other code.
    pub(crate) fn run_on(&self) {
        let before = self.ran_nano();
        while self.ran_nano() < before + APART {
            std::thread::yield_now();
        }
    }

    /// Whether a thread is blocked in a system call. A running thread is sometimes in one as well, above all while it
    /// starts.
    pub(crate) fn is_blocked(&self, thread: i32) -> bool {
        let call = std::fs::read_to_string(format!("/proc/{}/task/{thread}/syscall", self.pid())).unwrap_or_default();
        call.starts_with(|first: char| first.is_ascii_digit())
    }
}

impl Drop for ComputingTarget {
    fn drop(&mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        assert!(ended.is_ok());
    }
}

/// Prints why something is not tested on this machine.
pub(crate) fn untested(why: &str) {
    std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("untested here: {why}\n")).ok();
}

/// The path of the program with this name; prints a message if there is none.
pub(crate) fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    if program.is_none() {
        untested(&format!("there is no {name}"));
    }
    program
}

/// Writes a script for an interpreter or a compiler to a file.
pub(crate) fn script(name: &str, text: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    std::fs::write(&place, text).expect("the script can be written");
    place
}

/// Runs a script with an interpreter.
pub(crate) fn interpret(interpreter: &Path, options: &[&str], script: &Path) -> ComputingTarget {
    ComputingTarget::start(interpreter, &[options, &[script.to_str().expect("a plain path")]].concat())
}

/// Compiles a C program of `targets/` with these flags. `variant` becomes part of the name of the executable.
pub(crate) fn compile(name: &str, variant: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unwinding/targets").join(name);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let made = folder.path().join("program");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "gcc".into());
    let status = Command::new(compiler).args(flags).arg("-o").arg(&made).arg(source).arg("-lpthread").status();
    assert!(status.expect("a C compiler").success());
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("unwinding-{variant}-{}", std::process::id()));
    std::fs::rename(made, &place).expect("the program can be moved");
    place
}
