//! The programs to sample: the tests build them from `targets/` with the compilers of this machine.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// The C program with known times.
pub(crate) fn known() -> &'static Path {
    static KNOWN: OnceLock<PathBuf> = OnceLock::new();
    KNOWN.get_or_init(|| build("known.c", "cc", &["-O2", "-g", "-pthread"]))
}

/// The C program whose threads alternately compute and wait for short times.
pub(crate) fn turns() -> &'static Path {
    static TURNS: OnceLock<PathBuf> = OnceLock::new();
    TURNS.get_or_init(|| build("turns.c", "cc", &["-O2", "-g", "-pthread"]))
}

/// The C program that computes until its standard input ends.
pub(crate) fn worker() -> &'static Path {
    static WORKER: OnceLock<PathBuf> = OnceLock::new();
    WORKER.get_or_init(|| build("worker.c", "cc", &["-O2", "-g"]))
}

/// The C program that exposes what its threads work on; one of the sampler's own targets.
pub(crate) fn contexts() -> &'static Path {
    static CONTEXTS: OnceLock<PathBuf> = OnceLock::new();
    let source = "../../receivers/ptrace/sampler/tests/targets/contexts.c";
    let options = ["-O2", "-g", "-pthread", "-rdynamic", "-Wl,--no-as-needed", "-ldl"];
    CONTEXTS.get_or_init(|| build(source, "cc", &options))
}

/// The C program that embeds Pythons whose libraries it loads late.
pub(crate) fn embedded() -> &'static Path {
    static EMBEDDED: OnceLock<PathBuf> = OnceLock::new();
    EMBEDDED.get_or_init(|| build("embedded.c", "cc", &["-O2", "-g", "-pthread", "-Wl,--no-as-needed", "-ldl"]))
}

/// The Rust program with one hot function.
pub(crate) fn hot() -> &'static Path {
    static HOT: OnceLock<PathBuf> = OnceLock::new();
    HOT.get_or_init(|| build("hot.rs", "rustc", &["--edition", "2024", "-O", "-g"]))
}

/// The C program that replaces its own code.
pub(crate) fn replaced() -> &'static Path {
    static REPLACED: OnceLock<PathBuf> = OnceLock::new();
    REPLACED.get_or_init(|| build("replaced.c", "cc", &["-O2", "-g", "-ldl"]))
}

fn build(source: &str, compiler: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/targets").join(source);
    // Beside the tests instead of in a temporary folder, so that debuggers find it; each run builds its own.
    let name = source.file_stem().unwrap().to_str().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(folder).unwrap();
    let (target, part) = (folder.join(name), folder.join(format!("{name}-{}", std::process::id())));
    let output = Command::new(compiler).args(options).arg("-o").arg(&part).arg(&source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&part, &target).unwrap();
    target
}

/// A program that runs until the test ends it.
pub(crate) struct TargetProgram {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl TargetProgram {
    /// Starts a program.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Starts the Rust program with this many seconds of processor time to use, and waits until it is ready. It starts
    /// to compute after [`write_line`](Self::write_line).
    pub(crate) fn hot(seconds: &str) -> Self {
        let mut program = Self::start(Command::new(hot()).arg(seconds));
        assert_eq!(program.line(), "started\n");
        program
    }

    /// Writes a line to its standard input.
    pub(crate) fn write_line(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Waits for its next line, which signals progress.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the program ended");
        line
    }

    /// Whether it is still running.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Closes its standard input.
    pub(crate) fn close(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Kills it.
    pub(crate) fn end(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for TargetProgram {
    fn drop(&mut self) {
        // It has already ended unless the test failed.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
