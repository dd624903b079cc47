//! The measured process: profbridge's binary, the control, or a Collector. It is killed when the harness ends.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::Sink;
use crate::Error;
use crate::machine::{self, TARGET_CORE};

/// How long a process may take until it accepts connections.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    /// Starts a process on the target's core and reads both of its outputs.
    fn start(mut command: Command) -> Result<Self, Error> {
        // Settings of the machine must not affect the measurement.
        for name in ["SENTRY_DSN", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = machine::on(TARGET_CORE, move || {
            command.spawn().map_err(|error| format!("cannot start {command:?}: {error}").into())
        })?;
        let (sender, lines) = channel();
        let outputs: [Option<Box<dyn Read + Send>>; 2] =
            [child.stdout.take().map(|out| Box::new(out) as _), child.stderr.take().map(|out| Box::new(out) as _)];
        for output in outputs.into_iter().flatten() {
            let sender = sender.clone();
            thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                lines.map(|line| sender.send(line)).take_while(Result::is_ok).for_each(drop);
            });
        }
        Ok(Self { child, lines })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that contains `text`. Returns the listening addresses printed so far, each with the text before
    /// it.
    fn wait_for(&self, text: &str) -> Result<Vec<(String, SocketAddr)>, Error> {
        let until = Instant::now() + PATIENCE;
        let (mut printed_lines, mut addresses) = (Vec::new(), Vec::new());
        loop {
            let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) else {
                return Err(format!("`{text}` did not appear; the process said:\n{}", printed_lines.join("\n")).into());
            };
            if let Some((name, place)) = line.split_once("listening on ") {
                // Without the scheme and the path of a URL.
                let place = place.trim().trim_start_matches("http://").split('/').next();
                let address = place.and_then(|place| place.parse().ok());
                addresses.extend(address.map(|address| (name.trim_end().to_owned(), address)));
            }
            if line.contains(text) {
                return Ok(addresses);
            }
            printed_lines.push(line);
        }
    }

    /// Returns the lines that the process has printed since it started to listen.
    pub(crate) fn printed_lines(&mut self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Whether the process is still running.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors mean that it has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A running target.
#[derive(Debug)]
pub(crate) struct BenchTarget {
    pub(crate) process: Running,
    /// The target's address for OTLP over gRPC.
    pub(crate) grpc: SocketAddr,
    /// The target's address for OTLP over HTTP, which the control does not support.
    pub(crate) http: Option<SocketAddr>,
}

impl BenchTarget {
    /// Starts profbridge with this configuration, which is written to a file in `folder`.
    pub(crate) fn profbridge(binary: &Path, folder: &Path, yaml: &str) -> Result<Self, Error> {
        let config = folder.join("config.yaml");
        fs::write(&config, yaml)?;
        let mut command = Command::new(binary.canonicalize()?);
        command.args(["run", "--config"]).arg(&config).current_dir(folder);
        let process = Running::start(command)?;
        let addresses = process.wait_for("profbridge is running")?;
        let of = |end: &str| addresses.iter().find(|(name, _)| name.ends_with(end)).map(|(_, address)| *address);
        let grpc = of("otlp/grpc").ok_or("profbridge does not say where it listens")?;
        Ok(Self { process, grpc, http: of("otlp/http") })
    }

    /// Starts the control in front of a sink.
    pub(crate) fn control(sink: &Sink) -> Result<Self, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["control-server", "--sink", &sink.address.to_string()]);
        let process = Running::start(command)?;
        let addresses = process.wait_for("listening on ")?;
        let (_, grpc) = addresses.first().ok_or("the control does not say where it listens")?;
        Ok(Self { process, grpc: *grpc, http: None })
    }

    /// Starts a Collector with one pipeline of traces: the receiver `otlp` and this exporter, with their defaults but
    /// for the exporter's keys.
    pub(crate) fn collector(binary: &Path, folder: &Path, exporter: &str, keys: &str) -> Result<Self, Error> {
        // The Collector does not print its ports, so the harness picks free ones.
        let free = || TcpListener::bind("127.0.0.1:0")?.local_addr();
        let (grpc, http) = (free()?, free()?);
        let config = folder.join("collector.yaml");
        fs::write(
            &config,
            format!(
                "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{grpc}'}}, http: {{endpoint: '{http}'}}}}}}}}\n\
                 exporters: {{{exporter}: {{{keys}}}}}\n\
                 service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
                 pipelines: {{traces: {{receivers: [otlp], exporters: [{exporter}]}}}}\n"
            ),
        )?;
        let mut command = Command::new(binary.canonicalize()?);
        command.arg("--config").arg(&config).current_dir(folder);
        let process = Running::start(command)?;
        process.wait_for("Everything is ready")?;
        Ok(Self { process, grpc, http: Some(http) })
    }
}
