//! `profbridge sample` on programs with known times, and its messages if it cannot sample.

mod answers;
mod ends;
mod errors;
mod native;
mod node;
mod php;
mod python;
mod python_processes;
mod replaced;
mod restarts;
mod ruby;
mod several;
mod supervision;
mod wrappers;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::time::Instant;

use profbridge_sampler::message::Level;
use profbridge_sampler::perf::open;

use crate::process::{Finished, PATIENCE, command, eventually, run};
use crate::targets::known;

/// Collapsed stacks with their nanoseconds, root first.
struct CollapsedStacks(Vec<(Vec<String>, u64)>);

impl CollapsedStacks {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let line = |line: &str| {
            let (stack, weight) = line.rsplit_once(' ').unwrap();
            (stack.split(';').map(str::to_owned).collect(), weight.parse().unwrap())
        };
        Self(text.lines().map(line).collect())
    }

    /// The stacks below a root, without it.
    fn under(&self, root: &str) -> Self {
        let inside = self.0.iter().filter(|(stack, _)| stack[0] == root);
        Self(inside.map(|(stack, nano)| (stack[1..].to_vec(), *nano)).collect())
    }

    /// The stacks that show where the time went, not only its amount: on a busy machine some time is not sampled.
    fn sampled(&self) -> Self {
        let sampled =
            self.0.iter().filter(|(stack, _)| stack.iter().all(|name| name != "[processor time not sampled]"));
        Self(sampled.cloned().collect())
    }

    /// The total time.
    fn nano(&self) -> u64 {
        self.0.iter().map(|(_, nano)| nano).sum()
    }

    /// The time with a function anywhere on the stack.
    fn total(&self, function: &str) -> u64 {
        self.0.iter().filter(|(stack, _)| stack.iter().any(|name| name == function)).map(|(_, nano)| nano).sum()
    }

    /// The time by innermost function.
    fn by_leaf(&self) -> HashMap<&str, u64> {
        let mut leaves = HashMap::new();
        for (stack, nano) in &self.0 {
            *leaves.entry(stack.last().unwrap().as_str()).or_default() += nano;
        }
        leaves
    }

    /// The innermost function with the most time. Functions inlined from Rust's library count for the function that
    /// uses them.
    fn hottest(&self) -> &str {
        let mut leaves: HashMap<&str, u64> = HashMap::new();
        for (stack, nano) in &self.0 {
            let is_own = |name: &&String| !["<", "core::"].iter().any(|library| name.starts_with(library));
            let own = stack.iter().rev().find(is_own).unwrap();
            *leaves.entry(own.as_str()).or_default() += nano;
        }
        leaves.into_iter().max_by_key(|&(_, nano)| nano).unwrap_or_else(|| panic!("no stacks")).0
    }

    /// A percentage of the total time.
    fn percent(&self, nano: u64) -> f64 {
        nano as f64 * 100.0 / self.nano() as f64
    }
}

/// Repeats a time measurement until it is right, at most three times: a machine that gives its CPUs to others for a
/// while shifts times at random, while a bug in the sampler shows each time. Properties that must always hold, such as
/// a function's callers, are asserted in each run.
pub(crate) fn by_some_run(mut run: impl FnMut() -> Result<(), String>) {
    let mut messages = Vec::new();
    for _ in 0..3 {
        match run() {
            Ok(()) => return,
            Err(measured) => messages.push(measured),
        }
    }
    panic!("in no run: {messages:#?}");
}

/// Checks a measured value that must be right in some run ([`by_some_run`]); otherwise returns the measurement.
macro_rules! measured {
    ($is_right:expr, $($messages:tt)+) => {
        let is_right: bool = $is_right;
        if !is_right {
            return Err(format!($($messages)+));
        }
    };
}
pub(crate) use measured;

/// The options needed to sample running threads on this machine: if the kernel permits no perf events, threads must be
/// stopped.
pub(crate) fn stops() -> &'static [&'static str] {
    if permitted() { &[] } else { &["--stops", "always"] }
}

/// Whether the kernel permits perf events.
fn permitted() -> bool {
    static PERMITTED: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        let own = std::process::id();
        open::open(&open::KernelOpener, (own, None), 1_000_000, Level::Kernel, true).is_ok()
    });
    *PERMITTED
}

/// Runs a test with known answers while no other runs: several hot programs would compete for the CPUs.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    // A failed test poisons the lock, but has already reported its failure.
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Threads that keep CPUs busy until this is dropped.
pub(crate) struct Neighbours {
    end: std::sync::Arc<std::sync::atomic::AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Neighbours {
    pub(crate) fn start(count: usize) -> Self {
        let end = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let busy = || {
            let end = std::sync::Arc::clone(&end);
            std::thread::spawn(move || {
                while !end.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::black_box((0..1_000_u64).sum::<u64>());
                }
            })
        };
        let threads = (0..count).map(|_| busy()).collect();
        Self { end, threads }
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.end.store(true, std::sync::atomic::Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Samples the known program from start to end into `out.folded`.
fn sample_known(folder: &Path, options: &[&str], what: &str, seconds: &str) -> (Finished, CollapsedStacks) {
    let program = known().to_str().unwrap();
    let arguments = [&["sample", "-o", "out.folded"], stops(), options, &["--", program, what, seconds]].concat();
    let alone = alone();
    let finished = run(folder, &arguments);
    drop(alone);
    assert!(finished.status.success(), "{}", finished.stderr);
    let stacks = CollapsedStacks::read(&folder.join("out.folded"));
    (finished, stacks)
}

/// Repeats a timed run until it has sampled the process: on a very busy machine there may be no sample at all, which
/// the run reports.
pub(crate) fn until_met(mut sample: impl FnMut() -> Finished) -> Finished {
    let end = Instant::now() + PATIENCE;
    loop {
        let finished = sample();
        if !finished.stderr.contains("not a single sample") || Instant::now() > end {
            return finished;
        }
    }
}

/// A running `profbridge sample`.
struct Sampling {
    child: Child,
    stdin: Option<ChildStdin>,
    stderr: BufReader<ChildStderr>,
    messages: String,
}

impl Sampling {
    /// Starts it, and waits until it samples.
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut child = command(folder, &[&["sample"], stops(), arguments].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut sampling = Self { stdin: child.stdin.take(), child, stderr, messages: String::new() };
        sampling.wait_for("Ctrl-C ends it");
        sampling
    }

    /// Waits for a line that contains a text.
    fn wait_for(&mut self, text: &str) {
        loop {
            let from = self.messages.len();
            assert_ne!(self.stderr.read_line(&mut self.messages).unwrap(), 0, "no `{text}`: {}", self.messages);
            if self.messages[from..].contains(text) {
                return;
            }
        }
    }

    /// Reads the next line of its standard output, which belongs to its command.
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        let stdout = self.child.stdout.as_mut().unwrap();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            assert_eq!(stdout.read(&mut byte).unwrap(), 1, "its output ended: {}", self.messages);
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    /// Sends a signal to this process only.
    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Sends it a signal and waits for its end, which must be caused by the signal.
    fn end(mut self, signal: &str) -> Finished {
        self.signal(signal);
        eventually("the run ends", || self.child.try_wait().unwrap());
        self.ended()
    }

    /// Closes the standard input shared with its command, and waits for its end.
    fn ended(mut self) -> Finished {
        drop(self.stdin.take());
        self.ended_by_itself()
    }

    /// Waits for its end and for that of all processes with its standard output, while the standard input shared with
    /// its command stays open.
    fn ended_by_itself(&mut self) -> Finished {
        let status = eventually("the run ends", || self.child.try_wait().unwrap());
        let mut stdout = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut self.messages).unwrap();
        Finished { status, stdout, stderr: std::mem::take(&mut self.messages) }
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        // It has already ended unless the test failed.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
