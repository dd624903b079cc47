//! Runs the real binary as a child process, with its own folder and configuration.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use profbridge_testkit::profcheck::assert_valid;
use profbridge_wire::otlp::{LikelySignal, delimited, signal};
use prost::Message as _;

/// How long a test waits for something that must happen. Only a failing test ever waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Prints why a part of the tests does not run on this machine.
pub(crate) fn untested(why: &str) {
    std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("untested here: {why}\n")).ok();
}

/// The path of a captured envelope of a real SDK.
pub(crate) fn captured(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/testdata/sentry").join(name);
    path.to_str().unwrap().to_owned()
}

/// Waits until `what` returns a value. It polls, because the awaited event (in a file or another process) cannot wake
/// it.
pub(crate) fn eventually<T>(description: &str, mut what: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = what() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "did not happen in {PATIENCE:?}: {description}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// A command of the binary in a temporary folder.
pub(crate) fn command(folder: &Path, arguments: &[&str]) -> Command {
    let [first, more @ ..] = program() else { unreachable!("there is a program") };
    let mut command = Command::new(first);
    command.args(more).args(arguments);
    prepare(&mut command, folder);
    command
}

/// Like [`command`], with a limit on open files in the notation of the shell's `ulimit`.
#[cfg(target_os = "linux")]
pub(crate) fn command_with_files(folder: &Path, limit: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit $0 && exec \"$@\"", limit]);
    command.arg(env!("CARGO_BIN_EXE_profbridge")).args(arguments);
    prepare(&mut command, folder);
    command
}

fn prepare(command: &mut Command, folder: &Path) {
    command.current_dir(folder).stdin(Stdio::null());
    // Settings of the machine must not affect a test.
    for name in [
        "SENTRY_DSN",
        "DEBUGINFOD_URLS",
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
    ] {
        command.env_remove(name);
    }
}

/// The command line that starts profbridge. Background jobs of a shell ignore SIGINT, and those of `nohup` ignore
/// SIGHUP; this resets both for the programs under test.
pub(crate) fn program() -> &'static [&'static str] {
    static IGNORED: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0").trim();
        // The lowest bit is signal 1: SIGHUP, SIGINT, SIGQUIT and SIGTERM (proc(5), signal(7)).
        u64::from_str_radix(ignored, 16).unwrap_or(0) & 0x4007 != 0
    });
    let words = &["env", "--default-signal=HUP,INT,QUIT,TERM", env!("CARGO_BIN_EXE_profbridge")];
    if *IGNORED { words } else { &words[2..] }
}

/// What a finished command printed.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command of the binary to its end. OTLP that it writes must satisfy the OTLP rules.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Finished {
    let finished = finished(&mut command(folder, arguments));
    if finished.status.success() {
        check_otlp(folder, arguments);
    }
    finished
}

/// Checks the OTLP output of a command: a message, or frames of several. Spans must be a message that the official
/// protobuf decoder accepts.
fn check_otlp(folder: &Path, arguments: &[&str]) {
    let output = arguments.windows(2).find(|pair| pair[0] == "-o").map(|pair| folder.join(pair[1]));
    let is_otlp = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "otlp" || ending == "pb");
    let Some(bytes) = output.filter(is_otlp).and_then(|path| std::fs::read(path).ok()) else { return };
    let frames: Option<Vec<_>> = delimited::frames(bytes.clone().into()).map(Result::ok).collect();
    let check = |message: &[u8]| match signal(message) {
        LikelySignal::Traces => drop(ExportTraceServiceRequest::decode(message).unwrap()),
        _ => assert_valid(message),
    };
    match frames.filter(|frames| !frames.is_empty()) {
        Some(frames) => frames.iter().for_each(|message| check(message)),
        None => check(&bytes),
    }
}

/// Runs a command to its end.
pub(crate) fn finished(command: &mut Command) -> Finished {
    let output = command.output().unwrap();
    Finished {
        status: output.status,
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The binary running pipelines.
pub(crate) struct Profbridge {
    child: Child,
    lines: Receiver<String>,
    log: Arc<Mutex<String>>,
    folder: tempfile::TempDir,
    addresses: HashMap<String, SocketAddr>,
}

impl Profbridge {
    /// Starts the binary with a configuration and waits until it listens.
    ///
    /// The configuration should use port 0; the harness sets the telemetry endpoints to port 0.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_with(config, &[])
    }

    /// Like [`Profbridge::start`], with environment variables.
    pub(crate) fn start_with(config: &str, environment: &[(&str, &str)]) -> Self {
        Self::launch(config, environment, |folder| command(folder, &["run"]))
    }

    /// Like [`Profbridge::start`], with a limit on open files in the notation of the shell's `ulimit`.
    #[cfg(target_os = "linux")]
    pub(crate) fn start_with_files(config: &str, limit: &str) -> Self {
        Self::launch(config, &[], |folder| command_with_files(folder, limit, &["run"]))
    }

    fn launch(config: &str, environment: &[(&str, &str)], command: impl FnOnce(&Path) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.yaml"), config).unwrap();
        let mut child = command(folder.path())
            .args(["--set", "service.telemetry.metrics.address=127.0.0.1:0"])
            .args(["--set", "service.telemetry.health.address=127.0.0.1:0"])
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        let log = Arc::new(Mutex::new(String::new()));
        let copy = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut copy = copy.lock().unwrap();
                copy.push_str(&line);
                copy.push('\n');
                drop(copy);
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut this = Self { child, lines, log, folder, addresses: HashMap::new() };
        loop {
            let line = this.next_line("profbridge is running");
            if line.contains("profbridge is running") {
                break;
            }
            if let Some((name, address)) = line.split_once(" listening on ") {
                let name = name.rsplit(' ').next().unwrap().to_owned();
                this.addresses.insert(name, address.trim().parse().unwrap());
            }
        }
        this
    }

    /// Its process id.
    #[cfg(target_os = "linux")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its working directory, with its `config.yaml`.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The address of one of its listeners: `otlp/grpc`, `otlp/http`, `metrics`, `health`.
    pub(crate) fn address(&self, name: &str) -> SocketAddr {
        *self.addresses.get(name).unwrap_or_else(|| panic!("no {name} among {:?}:\n{}", self.addresses, self.log()))
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    fn next_line(&mut self, wanted: &str) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(_) => panic!("no log line `{wanted}`; {:?}:\n{}", self.child.try_wait(), self.log()),
        }
    }

    /// Waits for a log line that contains `text`.
    pub(crate) fn wait_for_log(&mut self, text: &str) {
        while !self.log().contains(text) {
            self.next_line(text);
        }
    }

    /// The response of one of its HTTP endpoints to a GET: status line, then body.
    pub(crate) fn get(&self, name: &str, path: &str) -> String {
        String::from_utf8(crate::client::get(self.address(name), path)).unwrap()
    }

    /// The sum of all series of a metric whose labels contain `labels`.
    pub(crate) fn metric(&self, name: &str, labels: &str) -> f64 {
        let answer = self.get("metrics/telemetry", "/metrics");
        answer
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' ')))
            .filter(|line| line.contains(labels))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Sends it a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let killed = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }

    /// Stops it as a service manager does, and waits. Returns its exit status and its log.
    pub(crate) fn stop(mut self) -> (ExitStatus, String) {
        self.signal("TERM");
        let status = self.wait();
        (status, self.log())
    }

    /// Like [`Profbridge::stop`], and also returns the folder.
    pub(crate) fn stop_and_keep(self) -> (ExitStatus, String, PathBuf, tempfile::TempDir) {
        self.signal("TERM");
        self.ended()
    }

    /// Waits for a requested end. Returns the exit status, the log and the folder.
    pub(crate) fn ended(mut self) -> (ExitStatus, String, PathBuf, tempfile::TempDir) {
        let status = self.wait();
        let log = self.log();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        (status, log, folder.path().to_owned(), folder)
    }

    /// Waits until it has ended and its last line was read.
    fn wait(&mut self) -> ExitStatus {
        let status = eventually("the process ends", || self.child.try_wait().unwrap());
        while self.lines.recv_timeout(PATIENCE).is_ok() {}
        status
    }
}

impl Drop for Profbridge {
    fn drop(&mut self) {
        // A failed test must not leave a process behind. Otherwise it has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
