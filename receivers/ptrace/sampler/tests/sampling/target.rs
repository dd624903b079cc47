//! Processes to be sampled, from `target.c`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long anything may take. Only failing tests wait for so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that ends with this.
pub(crate) struct Target {
    child: Child,
    pid: u32,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Target {
    pub(crate) fn start(kind: &str) -> Self {
        Self::of(Command::new(program()).arg(kind))
    }

    /// The child of a shell that says how it ended.
    pub(crate) fn start_in_shell(kind: &str) -> Self {
        let script = "\"$0\" \"$1\"; echo code $?";
        Self::of(Command::new("sh").args(["-c", script]).arg(program()).arg(kind))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut target = Self { child, pid: 0, input, output };
        let line = target.line();
        target.pid = line.strip_prefix("ready ").unwrap().parse().unwrap();
        target
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// What it says next.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Its two counters.
    pub(crate) fn counts(&mut self) -> (u64, u64) {
        self.input.write_all(b"c").unwrap();
        let line = self.line();
        let (first, second) = line.split_once(' ').unwrap();
        (first.parse().unwrap(), second.parse().unwrap())
    }

    /// Waits until the first of its counters has come so far.
    pub(crate) fn wait_for_count(&mut self, count: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.counts().0 < count {
            assert!(Instant::now() < deadline, "it does not count to {count}");
            std::thread::yield_now();
        }
    }

    /// Waits until it has so many threads and each waits in a system call.
    pub(crate) fn wait_until_blocked(&self, threads: usize) {
        let deadline = Instant::now() + PATIENCE;
        let waiting = |task: std::io::Result<std::fs::DirEntry>| {
            let call = std::fs::read_to_string(task.unwrap().path().join("syscall")).unwrap_or_default();
            call.starts_with(|first: char| first.is_ascii_digit())
        };
        while std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap().map(waiting).filter(|is| *is).count()
            < threads
        {
            assert!(Instant::now() < deadline, "its threads do not wait");
            std::thread::yield_now();
        }
    }

    /// Makes it do what its kind does when told to.
    pub(crate) fn go_on(&mut self) {
        self.input.write_all(b"g").unwrap();
    }

    fn stat(&self) -> Vec<String> {
        let line = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let (_, rest) = line.rsplit_once(')').unwrap();
        rest.split_whitespace().map(str::to_owned).collect()
    }

    /// Its state, as `ps` prints it.
    pub(crate) fn state(&self) -> char {
        self.stat()[0].chars().next().unwrap()
    }

    pub(crate) fn wait_for_state(&self, state: char) {
        let deadline = Instant::now() + PATIENCE;
        while self.state() != state {
            assert!(Instant::now() < deadline, "its state is {}", self.state());
            std::thread::yield_now();
        }
    }

    /// The processor time that it used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = self.stat();
        let ticks = stat[11].parse::<u64>().unwrap() + stat[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sampling/target.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sampling-{}", std::process::id()));
        let built = Command::new("cc")
            .args(["-O2", "-fomit-frame-pointer", "-pthread", "-o"])
            .arg(&program)
            .arg(&source)
            .status()
            .unwrap();
        assert!(built.success());
        program
    })
}
