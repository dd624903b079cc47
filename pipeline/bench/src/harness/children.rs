//! Child processes, each on a core of its own choosing, that end with the harness.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use super::{Error, sink::Stats};

/// How long a process may take to say that it listens.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that runs until this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    log: Vec<String>,
    /// When it was started.
    pub started: Instant,
}

/// A command that runs on one core: `taskset` replaces itself with it, so that the process id is the command's own.
pub fn pinned(core: usize, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(core.to_string()).arg(program).stdin(Stdio::null());
    // What the machine has set must not reach what is measured.
    for name in ["SENTRY_DSN", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name);
    }
    command
}

/// This program, on one core.
///
/// # Errors
/// The program's own path is not known.
pub fn myself(core: usize, arguments: &[&str]) -> Result<Command, Error> {
    let mut command = pinned(core, std::env::current_exe()?);
    command.args(arguments);
    Ok(command)
}

/// Starts a process and reads what it says, on both outputs.
///
/// # Errors
/// It cannot be started.
pub fn start(mut command: Command) -> Result<Running, Error> {
    let started = Instant::now();
    let described = format!("{:?}", command.get_args().collect::<Vec<_>>());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("cannot start {described}: {error}"))?;
    let (sender, lines) = channel();
    let outputs: [Option<Box<dyn Read + Send>>; 2] =
        [child.stdout.take().map(|out| Box::new(out) as _), child.stderr.take().map(|out| Box::new(out) as _)];
    for output in outputs.into_iter().flatten() {
        let sender = sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    Ok(Running { child, lines, log: Vec::new(), started })
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line in which `find` finds something.
    ///
    /// # Errors
    /// It ended, or said no such thing in time.
    pub fn wait_for<T>(&mut self, what: &str, mut find: impl FnMut(&str) -> Option<T>) -> Result<T, Error> {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let found = find(&line);
                    self.log.push(line);
                    if let Some(found) = found {
                        return Ok(found);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(format!("{what} did not appear; the process said:\n{}", self.log.join("\n")).into());
                }
            }
        }
    }

    /// Waits for `... listening on ADDRESS` of the part that is called `name`.
    ///
    /// # Errors
    /// As [`Running::wait_for`].
    pub fn address(&mut self, name: &str) -> Result<SocketAddr, Error> {
        self.wait_for("an address", |line| {
            let (before, address) = line.split_once("listening on ")?;
            before.trim_end().ends_with(name).then(|| address.trim().parse().ok())?
        })
    }

    /// What it has said since the last call.
    pub fn said(&mut self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, or is asked to end.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Runs this program on a core to its end, and reads the JSON that it prints last.
///
/// # Errors
/// It failed, or printed something else.
pub fn ask<T: serde::de::DeserializeOwned>(core: usize, arguments: &[&str]) -> Result<T, Error> {
    let output = myself(core, arguments)?.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{arguments:?} failed: {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(serde_json::from_str(text.lines().last().unwrap_or_default())?)
}

/// What an HTTP server answers to a GET.
///
/// # Errors
/// There is no answer.
pub fn get(address: SocketAddr, path: &str) -> Result<String, Error> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or("an answer without a body")?;
    Ok(body.to_owned())
}

/// A sink in a process of its own.
#[derive(Debug)]
pub struct Sink {
    _process: Running,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Sink {
    /// Starts it with arguments of [`super::sink::Options`].
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(arguments: &[&str]) -> Result<Self, Error> {
        let mut process = start(myself(super::HELPERS_CORE, &[&["sink"], arguments].concat())?)?;
        let address = process.address("")?;
        Ok(Self { _process: process, address })
    }

    /// What arrived so far.
    ///
    /// # Errors
    /// It does not answer.
    pub fn stats(&self) -> Result<Stats, Error> {
        Ok(serde_json::from_str(&get(self.address, "/stats")?)?)
    }

    /// Waits until nothing has arrived for `quiet`.
    ///
    /// # Errors
    /// It does not answer, or still gets something after `most`.
    pub fn settle(&self, quiet: Duration, most: Duration) -> Result<Stats, Error> {
        let end = Instant::now() + most;
        let mut stats = self.stats()?;
        let mut since = Instant::now();
        while since.elapsed() < quiet {
            thread::sleep(Duration::from_millis(50));
            let now = self.stats()?;
            if now != stats {
                (stats, since) = (now, Instant::now());
            }
            if Instant::now() > end {
                return Err("the sink does not come to rest".into());
            }
        }
        Ok(stats)
    }
}

/// Writes files into a folder, and returns their paths as text.
///
/// # Errors
/// A file cannot be written.
pub fn write_bodies(folder: &Path, bodies: &[Vec<u8>]) -> Result<Vec<String>, Error> {
    let mut paths = Vec::new();
    for (number, body) in bodies.iter().enumerate() {
        let path = folder.join(format!("report.{number}"));
        std::fs::write(&path, body)?;
        paths.push(path.display().to_string());
    }
    Ok(paths)
}
