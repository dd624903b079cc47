//! What is measured, with a configuration of the harness: the binary of profbridge, the control, a Collector.

use std::{
    fmt::Write,
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
};

use super::{
    Error, TARGET_CORE,
    children::{self, Running},
};

/// What differs between the measurements.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where it takes OTLP over gRPC; port 0 for any.
    pub otlp: SocketAddr,
    /// The length of windows, such as `0s`.
    pub window: String,
    /// The processors in front of `chunk`, such as `dedup`.
    pub processors: Vec<String>,
    /// The window of `dedup`, where it is among them.
    pub dedup_window: &'static str,
    /// `chunk`'s `max_bytes` in MiB.
    pub window_mib: Option<u64>,
    /// The exporter's queue, in MiB.
    pub queue_mib: u64,
    /// Whether the pipeline waits where the queue is full; otherwise what does not fit is dropped and counted.
    pub blocks: bool,
    /// The codec of what leaves.
    pub compression: String,
    /// `service.limits.memory` in MiB.
    pub memory_mib: Option<u64>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            otlp: SocketAddr::from(([127, 0, 0, 1], 0)),
            window: "0s".to_owned(),
            processors: vec!["dedup".to_owned()],
            dedup_window: "0s",
            window_mib: None,
            queue_mib: 64,
            blocks: true,
            compression: "zstd".to_owned(),
            memory_mib: None,
        }
    }
}

impl Setting {
    /// The configuration file for a sink.
    ///
    /// # Errors
    /// None in practice: a text takes every line.
    pub fn yaml(&self, sink: SocketAddr) -> Result<String, Error> {
        let Self { otlp, window, processors, dedup_window, window_mib, queue_mib, blocks, compression, memory_mib } =
            self;
        let mut yaml = String::new();
        writeln!(yaml, "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: {otlp}")?;
        writeln!(yaml, "      http:\n        endpoint: 127.0.0.1:0")?;
        writeln!(yaml, "processors:\n  chunk:")?;
        if let Some(mib) = window_mib {
            writeln!(yaml, "    max_bytes: {mib}MiB")?;
        }
        for processor in processors {
            writeln!(yaml, "  {processor}:")?;
            if processor == "dedup" {
                writeln!(yaml, "    window: {dedup_window}")?;
            }
        }
        writeln!(
            yaml,
            "exporters:\n  sentry:\n    dsn: http://0123456789abcdef0123456789abcdef@{sink}/1\n    compression: {compression}"
        )?;
        writeln!(
            yaml,
            "    sending_queue:\n      sizer: bytes\n      queue_size: {queue_mib}MiB\n      block_on_overflow: {blocks}"
        )?;
        writeln!(
            yaml,
            "service:\n  shutdown_timeout: 10m\n  telemetry:\n    metrics:\n      address: 127.0.0.1:0\n    health:\n      address: 127.0.0.1:0"
        )?;
        writeln!(yaml, "  identity:\n    window: {window}")?;
        if let Some(mib) = memory_mib {
            writeln!(yaml, "  limits:\n    memory: {mib}MiB")?;
        }
        let order = processors.iter().map(String::as_str).chain(["chunk"]).collect::<Vec<_>>().join(", ");
        writeln!(
            yaml,
            "  pipelines:\n    profiles:\n      receivers: [otlp]\n      processors: [{order}]\n      exporters: [sentry]"
        )?;
        Ok(yaml)
    }
}

/// A running target.
#[derive(Debug)]
pub struct Target {
    /// The process.
    pub process: Running,
    /// Where it takes OTLP over gRPC.
    pub address: SocketAddr,
    /// Where it takes OTLP over HTTP; the control does not.
    pub http: Option<SocketAddr>,
    /// Where it answers with its metrics; the others' are not read.
    pub metrics: Option<SocketAddr>,
}

impl Target {
    /// Starts profbridge in front of a sink. Its configuration is written into `folder`.
    ///
    /// # Errors
    /// It does not start.
    pub fn profbridge(binary: &Path, folder: &Path, setting: &Setting, sink: SocketAddr) -> Result<Self, Error> {
        Self::profbridge_with(binary, folder, &setting.yaml(sink)?)
    }

    /// Starts profbridge with a configuration file of this content, which is written into `folder`.
    ///
    /// # Errors
    /// It does not start.
    pub fn profbridge_with(binary: &Path, folder: &Path, yaml: &str) -> Result<Self, Error> {
        let config = folder.join("config.yaml");
        fs::write(&config, yaml)?;
        let mut command = children::pinned(TARGET_CORE, binary.canonicalize()?);
        command.args(["run", "--config"]).arg(&config).current_dir(folder);
        let mut process = children::start(command)?;
        let (mut address, mut http, mut metrics) = (None, None, None);
        process.wait_for("`profbridge is running`", |line| {
            if let Some((name, place)) = line.split_once(" listening on ") {
                // The scheme and the path of a URL are left out.
                let place =
                    place.trim().trim_start_matches("http://").split('/').next().and_then(|place| place.parse().ok());
                if name.ends_with("otlp/grpc") {
                    address = place;
                } else if name.ends_with("otlp/http") {
                    http = place;
                } else if name.contains("metrics/") {
                    metrics = place;
                }
            }
            line.contains("profbridge is running").then_some(())
        })?;
        let address: Option<SocketAddr> = address;
        Ok(Self { process, address: address.ok_or("profbridge does not say where it listens")?, http, metrics })
    }

    /// Starts the control in front of a sink.
    ///
    /// # Errors
    /// It does not start.
    pub fn control(sink: SocketAddr) -> Result<Self, Error> {
        let command = children::myself(TARGET_CORE, &["control-server", "--sink", &sink.to_string()])?;
        let mut process = children::start(command)?;
        let address = process.address("")?;
        Ok(Self { process, address, http: None, metrics: None })
    }

    /// Starts a Collector with one pipeline of traces in front of a sink: the receiver `otlp` and the exporter `otlp`
    /// as they are by default, with this compression of what leaves.
    ///
    /// # Errors
    /// It does not start.
    pub fn collector(binary: &Path, folder: &Path, compression: &str, sink: SocketAddr) -> Result<Self, Error> {
        // It does not say which ports it got, so it is given free ones.
        let free = || TcpListener::bind("127.0.0.1:0")?.local_addr();
        let (grpc, http) = (free()?, free()?);
        let config = folder.join("collector.yaml");
        fs::write(
            &config,
            format!(
                "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{grpc}'}}, http: {{endpoint: '{http}'}}}}}}}}\n\
                 exporters: {{otlp: {{endpoint: '{sink}', compression: {compression}, tls: {{insecure: true}}}}}}\n\
                 service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
                 pipelines: {{traces: {{receivers: [otlp], exporters: [otlp]}}}}\n"
            ),
        )?;
        let mut command = children::pinned(TARGET_CORE, binary.canonicalize()?);
        command.arg("--config").arg(&config).current_dir(folder);
        let mut process = children::start(command)?;
        process.wait_for("`Everything is ready`", |line| line.contains("Everything is ready").then_some(()))?;
        Ok(Self { process, address: grpc, http: Some(http), metrics: None })
    }

    /// The sum of a metric over its series; `None` where the target has no metrics.
    ///
    /// # Errors
    /// The metrics cannot be read.
    pub fn metric(&self, name: &str) -> Result<Option<f64>, Error> {
        let Some(metrics) = self.metrics else { return Ok(None) };
        let text = children::get(metrics, "/metrics")?;
        let mine = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let values = text.lines().filter(mine).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(Some(values.sum()))
    }
}
