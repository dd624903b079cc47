//! CPU time per span with real processes, OTLP in, and OTLP or Sentry's forms out: profbridge's binary compared with a
//! Collector's. Also how many spans per second reach a distant destination.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
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
    /// The binary of a Collector with the receiver `otlp` and the exporters `otlp` and `otlp_http`; without it,
    /// profbridge is only compared with itself
    #[arg(long)]
    collector: Option<PathBuf>,
    /// Where spans go; a Collector's go to Sentry's OTLP endpoint in place of its containers
    #[arg(long, default_value = "otlp")]
    to: SpanOutput,
    /// How long the destination takes to answer, in milliseconds: measures spans per second instead
    #[arg(long)]
    delay: Option<u64>,
    /// The protocol of incoming requests; outgoing ones of OTLP use gRPC
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

/// Spans per second to a destination that takes [`TracesOptions::delay`].
const RATE: Goal = Goal::AtLeast(20_000.0);

/// Where spans go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpanOutput {
    /// To an OTLP backend, over gRPC.
    Otlp,
    /// To Sentry's OTLP endpoint.
    SentryOtlp,
    /// To Sentry, in containers.
    SentryStreamed,
}

impl SpanOutput {
    /// The names of profbridge's and the Collector's exporter, and the keys of each.
    fn exporters(self, sink: SocketAddr, compression: RequestCompression) -> [(&'static str, String); 2] {
        const KEY: &str = "0123456789abcdef0123456789abcdef";
        let compression = compression.name();
        let grpc = || ("otlp", format!("endpoint: '{sink}', compression: {compression}, tls: {{insecure: true}}"));
        let spans = match self {
            Self::Otlp => return [grpc(), grpc()],
            Self::SentryOtlp => "otlp",
            Self::SentryStreamed => "streamed",
        };
        let url = format!("http://{sink}/api/1/integration/otlp/v1/traces/");
        [
            ("sentry", format!("dsn: 'http://{KEY}@{sink}/1', spans: {spans}, compression: {compression}")),
            (
                "otlp_http",
                format!(
                    "traces_endpoint: '{url}', compression: {compression}, \
                     headers: {{x-sentry-auth: 'sentry sentry_key={KEY}'}}"
                ),
            ),
        ]
    }
}

/// The configuration of profbridge: one pipeline of traces without processors. Receiver and exporter have their
/// defaults except for these keys; a full queue makes senders wait.
pub(crate) fn yaml(
    receiver: &str,
    (to, compression): (SpanOutput, RequestCompression),
    queue: &str,
    limits: &str,
    sink: SocketAddr,
) -> String {
    let any = "endpoint: '127.0.0.1:0'";
    let [(exporter, keys), _] = to.exporters(sink, compression);
    format!(
        "receivers: {{otlp: {{protocols: {{grpc: {{{any}}}, http: {{{any}}}}}{receiver}}}}}\n\
         exporters:\n  {exporter}: {{{keys}, sending_queue: {{block_on_overflow: true{queue}}}}}\n\
         service:\n  shutdown_timeout: 10m\n  limits: {limits}\n  \
         telemetry: {{metrics: {{address: '127.0.0.1:0'}}, health: {{address: '127.0.0.1:0'}}}}\n  \
         pipelines: {{traces: {{receivers: [otlp], exporters: [{exporter}]}}}}\n",
    )
}

fn profbridge(options: &TracesOptions, folder: &Path, receiver: &str) -> Result<Side, Error> {
    let sink = Sink::start_distant(false, Duration::from_millis(options.delay.unwrap_or(0)))?;
    let queue = if options.delay.is_some() { "" } else { QUEUE };
    let yaml = yaml(receiver, (options.to, options.compression), queue, "{}", sink.address);
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
    let to = options.to.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let way = format!("{way} to {to}, {}", compression.name());
    let bytes: usize = requests.iter().map(Vec::len).sum();
    report.figure("a span on the wire", bytes as f64 / spans as f64, "bytes", None);

    let forwards = profbridge(options, folder.path(), "")?;
    if let Some(delay) = options.delay {
        let mut rates = (0..blocks.pairs).map(|_| blocks.rate(&load, &forwards)).collect::<Result<Vec<_>, _>>()?;
        rates.sort_by(f64::total_cmp);
        let name = |which| format!("{way}, {delay} ms to the destination: {which}");
        report.figure(name("the slowest block"), rates[0], "spans/s", Some(RATE));
        report.figure(name("median"), rates[rates.len() / 2], "spans/s", None);
        return report.finish(options.json.as_deref());
    }
    let Some(collector) = &options.collector else {
        let itself = blocks.pairs(blocks.pairs, &load, &forwards, &forwards)?;
        report.ratio(format!("{way}: profbridge against itself"), &itself, None);
        report.figure(format!("{way}: profbridge"), itself.a, "ns/span", None);
        return report.finish(options.json.as_deref());
    };
    let sink = Sink::start(false)?;
    let [_, (exporter, keys)] = options.to.exporters(sink.address, *compression);
    let collector = Side { target: BenchTarget::collector(collector, folder.path(), exporter, &keys)?, sink };
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
