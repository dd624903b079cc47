//! CPU time per span with real processes, OTLP in and OTLP out: profbridge's binary compared with a Collector's.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use profbridge_testkit::workload::{SEED, traces};
use prost::Message;
use serde_json::json;

use crate::Error;
use crate::end_to_end::target::BenchTarget;
use crate::end_to_end::{self, Blocks, Load, Protocol, RequestCompression, Side, Sink};
use crate::report::{Goal, Report};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct TracesOptions {
    /// The binary of profbridge
    #[arg(long, default_value = "target/dist/profbridge")]
    binary: PathBuf,
    /// The binary of a Collector with the receiver `otlp` and the exporter `otlp`; without it, profbridge is only
    /// compared with itself
    #[arg(long)]
    collector: Option<PathBuf>,
    /// The protocol of incoming requests; outgoing ones use gRPC
    #[arg(long, default_value = "grpc")]
    protocol: Protocol,
    /// The compression of incoming and outgoing requests
    #[arg(long, default_value = "none")]
    compression: RequestCompression,
    /// How to measure
    #[command(flatten)]
    blocks: Blocks,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The number of different requests, which are sent repeatedly in rotation.
const REQUESTS: u64 = 12;

/// Traces per request, for about the 512 spans that an SDK's batch processor exports at once
/// (`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`).
const TRACES: usize = 512 / traces::SPANS;

/// The maximum number of requests that wait for the sink. profbridge accepts spans faster than the sink, which shares a
/// core with the load generator. The default of a thousand requests would queue 250 MB, which does not fit into any
/// cache.
const QUEUE: &str = ", queue_size: 16";

/// The goal, relative to the Collector's CPU time.
const GOAL: Goal = Goal::AtMost(0.25);

/// The configuration of profbridge: one pipeline of traces without processors. Receiver and exporter have their
/// defaults except for these keys; a full queue makes senders wait.
pub(crate) fn yaml(
    receiver: &str,
    compression: RequestCompression,
    queue: &str,
    limits: &str,
    sink: SocketAddr,
) -> String {
    let any = "endpoint: '127.0.0.1:0'";
    format!(
        "receivers: {{otlp: {{protocols: {{grpc: {{{any}}}, http: {{{any}}}}}{receiver}}}}}\n\
         exporters:\n  otlp: {{endpoint: '{sink}', compression: {}, tls: {{insecure: true}}, \
         sending_queue: {{block_on_overflow: true{queue}}}}}\n\
         service:\n  shutdown_timeout: 10m\n  limits: {limits}\n  \
         telemetry: {{metrics: {{address: '127.0.0.1:0'}}, health: {{address: '127.0.0.1:0'}}}}\n  \
         pipelines: {{traces: {{receivers: [otlp], exporters: [otlp]}}}}\n",
        compression.name()
    )
}

fn profbridge(options: &TracesOptions, folder: &Path, receiver: &str) -> Result<Side, Error> {
    let sink = Sink::start(false)?;
    let yaml = yaml(receiver, options.compression, QUEUE, "{}", sink.address);
    Ok(Side { target: BenchTarget::profbridge(&options.binary, folder, &yaml)?, sink })
}

/// Measures and reports.
pub(crate) fn run(options: &TracesOptions) -> Result<(), Error> {
    let TracesOptions { protocol, compression, blocks, .. } = options;
    let folder = end_to_end::begin()?;
    let requests: Vec<Vec<u8>> =
        (0..REQUESTS).map(|number| traces::request(TRACES, SEED + number).encode_to_vec()).collect();
    let load = Load::traces(&requests, *protocol, *compression)?;
    let spans = REQUESTS * (TRACES * traces::SPANS) as u64;
    let mut report = Report::new("traces");
    let way = match protocol {
        Protocol::Grpc => "gRPC",
        Protocol::Http => "HTTP",
    };
    let way = format!("{way}, {}", compression.name());
    let bytes: usize = requests.iter().map(Vec::len).sum();
    report.figure("a span on the wire", bytes as f64 / spans as f64, "bytes", None);

    let forwards = profbridge(options, folder.path(), "")?;
    let Some(collector) = &options.collector else {
        let itself = blocks.pairs(blocks.pairs, &load, &forwards, &forwards)?;
        report.ratio(format!("{way}: profbridge against itself"), &itself, None);
        report.figure(format!("{way}: profbridge"), itself.a, "ns/span", None);
        return report.finish(options.json.as_deref());
    };
    let sink = Sink::start(false)?;
    let collector = Side { target: BenchTarget::collector(collector, folder.path(), *compression, &sink)?, sink };
    // Inserting an attribute into each resource forces requests to be encoded again.
    let writes = profbridge(options, folder.path(), ", resource: {insert: {deployment.region: eu-central}}")?;
    let theirs = collector.once(&load)?;
    for (what, ours) in [("forwarded", &forwards), ("written anew", &writes)] {
        // Figures are only comparable if both programs deliver the same spans.
        let mine = ours.once(&load)?;
        if mine.spans != theirs.spans || mine.spans != spans {
            return Err(format!("profbridge delivers {mine:?}, the Collector {theirs:?}").into());
        }
        report.detail(&format!("one round of requests, {what}"), json!({ "profbridge": mine, "collector": theirs }));
        let outcome = blocks.pairs(blocks.pairs, &load, &collector, ours)?;
        let name = format!("{way}, {what}");
        report.ratio(format!("{name}: CPU per span, profbridge's by the Collector's"), &outcome, Some(GOAL));
        report.figure(format!("{name}: profbridge"), outcome.b, "ns/span", None);
        report.figure(format!("{name}: Collector"), outcome.a, "ns/span", None);
    }
    report.finish(options.json.as_deref())
}
