//! CPU per span through real processes: OTLP in, OTLP out, profbridge's binary against a Collector's.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::Args;
use prost::Message;
use serde_json::json;

use super::{
    Error,
    block::{Length, Side},
    calibrator,
    call::{Compression, Protocol},
    children::{self, Sink},
    pairs::{self, Outcome},
    report::{Goal, Report},
    sink::Stats,
    target::Target,
};
use crate::workload::{SEED, spans};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The binary of profbridge
    #[arg(long, default_value = "target/dist/profbridge")]
    binary: PathBuf,
    /// The binary of a Collector with the receiver `otlp` and the exporter `otlp`; without it profbridge is measured
    /// against itself only
    #[arg(long)]
    collector: Option<PathBuf>,
    /// How requests come in; they leave over gRPC
    #[arg(long, default_value = "grpc")]
    protocol: Protocol,
    /// How requests are compressed on both ways
    #[arg(long, default_value = "none")]
    compression: Compression,
    /// Pairs of blocks
    #[arg(long, default_value_t = 8)]
    pairs: usize,
    /// The length of a block
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// What precedes each block, unmeasured
    #[arg(long, default_value_t = 1.5)]
    warm_up: f64,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Different requests, which are sent one after the other, again and again.
const REQUESTS: u64 = 12;

/// Requests that wait for the sink at most. profbridge takes spans faster than the sink, which shares a core with the
/// load: the default's thousand requests would fill up with 250 MB, which nothing finds in a cache any more.
const QUEUE: usize = 16;

/// Of the Collector's CPU time.
const GOAL: Goal = Goal::AtMost(0.25);

/// profbridge with one pipeline of traces without processors: the receiver and the exporter as they are by default, but
/// that a full queue makes senders wait.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// Of what leaves.
    pub(super) compression: Compression,
    /// Whether every resource gets an attribute, for which requests are written anew.
    pub(super) inserts: bool,
    /// `service.limits.memory` in MiB.
    pub(super) memory_mib: Option<u64>,
    /// `queue_size` in requests.
    pub(super) queue: Option<usize>,
}

impl Default for Setting {
    fn default() -> Self {
        Self { compression: Compression::None, inserts: false, memory_mib: None, queue: None }
    }
}

impl Setting {
    /// The configuration file for a sink.
    pub(super) fn yaml(&self, sink: SocketAddr) -> String {
        let insert = if self.inserts { ", resource: {insert: {deployment.region: eu-central}}" } else { "" };
        let limits = self.memory_mib.map_or(String::new(), |mib| format!("  limits: {{memory: {mib}MiB}}\n"));
        let queue = self.queue.map_or(String::new(), |requests| format!(", queue_size: {requests}"));
        let compression = self.compression.name();
        let any = "endpoint: '127.0.0.1:0'";
        format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{{any}}}, http: {{{any}}}}}{insert}}}}}\n\
             exporters:\n  otlp: {{endpoint: '{sink}', compression: {compression}, tls: {{insecure: true}}, \
             sending_queue: {{block_on_overflow: true{queue}}}}}\n\
             service:\n  shutdown_timeout: 10m\n{limits}  \
             telemetry: {{metrics: {{address: '127.0.0.1:0'}}, health: {{address: '127.0.0.1:0'}}}}\n  \
             pipelines: {{traces: {{receivers: [otlp], exporters: [otlp]}}}}\n"
        )
    }
}

/// The blocks' common part.
struct Blocks<'a> {
    options: &'a Options,
    bodies: Vec<String>,
}

impl Blocks<'_> {
    fn arguments(&self, target: &Target) -> Result<Vec<String>, Error> {
        let Options { protocol, compression, .. } = self.options;
        let (protocol, address) = match protocol {
            Protocol::Grpc => ("grpc", target.address),
            Protocol::Http => ("http", target.http.ok_or("the target does not take HTTP")?),
        };
        let address = address.to_string();
        let fixed = ["--signal", "traces", "--protocol", protocol, "--compression", compression.name()];
        let fixed = fixed.into_iter().chain(["--target", &address]);
        Ok(fixed.chain(self.bodies.iter().map(String::as_str)).map(str::to_owned).collect())
    }

    /// Sends each body once, and returns what came out.
    fn once(&self, side: &Side) -> Result<Stats, Error> {
        side.once(&self.arguments(&side.target)?, self.bodies.len())
    }

    /// One block: the CPU time per span that arrived, in nanoseconds.
    fn block(&self, side: &Side) -> Result<f64, Error> {
        let Options { seconds, warm_up, .. } = *self.options;
        let arrived = side.block(&self.arguments(&side.target)?, Length { warm_up, seconds })?;
        if arrived.stats.spans == 0 {
            return Err(format!("no span arrives: {arrived:?}").into());
        }
        Ok(arrived.cpu.as_nanos() as f64 / arrived.stats.spans as f64)
    }

    /// The cost of B by that of A.
    fn pairs(&self, wanted: usize, a: &Side, b: &Side) -> Result<Outcome, Error> {
        pairs::measure(wanted, calibrator::on_target_core, || self.block(a), || self.block(b))
    }
}

fn profbridge(options: &Options, folder: &Path, inserts: bool) -> Result<Side, Error> {
    let sink = Sink::start(&[])?;
    let yaml =
        Setting { compression: options.compression, inserts, memory_mib: None, queue: Some(QUEUE) }.yaml(sink.address);
    Ok(Side { target: Target::profbridge_with(&options.binary, folder, &yaml)?, sink })
}

/// Measures, and reports.
///
/// # Errors
/// A process does not start, or does not do what it should.
pub fn run(options: &Options) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let bodies: Vec<Vec<u8>> = (0..REQUESTS).map(|number| spans::request(SEED, number).encode_to_vec()).collect();
    let blocks = Blocks { options, bodies: children::write_bodies(folder.path(), &bodies)? };
    let mut report = Report::new("traces");
    let way = match options.protocol {
        Protocol::Grpc => "gRPC",
        Protocol::Http => "HTTP",
    };
    let way = format!("{way}, {}", options.compression.name());
    let bytes: usize = bodies.iter().map(Vec::len).sum();
    report.figure("a span on the wire", bytes as f64 / (REQUESTS as usize * spans::SPANS) as f64, "bytes", None);

    let forwards = profbridge(options, folder.path(), false)?;
    let Some(collector) = &options.collector else {
        let itself = blocks.pairs(options.pairs, &forwards, &forwards)?;
        report.ratio(format!("{way}: profbridge against itself"), &itself, None);
        report.figure(format!("{way}: profbridge"), itself.a, "ns/span", None);
        return report.finish(options.json.as_deref());
    };
    let sink = Sink::start(&[])?;
    let collector = Target::collector(collector, folder.path(), options.compression.name(), sink.address)?;
    let collector = Side { target: collector, sink };
    let writes = profbridge(options, folder.path(), true)?;
    let theirs = blocks.once(&collector)?;
    for (what, ours) in [("forwarded", &forwards), ("written anew", &writes)] {
        // Both must deliver the same spans, before any figure means anything.
        let mine = blocks.once(ours)?;
        if mine.spans != theirs.spans || mine.spans != REQUESTS * spans::SPANS as u64 {
            return Err(format!("profbridge delivers {mine:?}, the Collector {theirs:?}").into());
        }
        report.detail(&format!("one round of requests, {what}"), json!({ "profbridge": mine, "collector": theirs }));
        let outcome = blocks.pairs(options.pairs, &collector, ours)?;
        let name = format!("{way}, {what}");
        report.ratio(format!("{name}: CPU per span, profbridge's by the Collector's"), &outcome, Some(GOAL));
        report.figure(format!("{name}: profbridge"), outcome.b, "ns/span", None);
        report.figure(format!("{name}: Collector"), outcome.a, "ns/span", None);
    }
    report.finish(options.json.as_deref())
}
