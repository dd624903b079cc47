//! CPU time per observation with real processes, gRPC in and HTTP out: profbridge's binary compared with the control's.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use profbridge_testkit::workload::{Host, SEED, Shape};
use prost::Message;
use serde_json::json;

use crate::Error;
use crate::end_to_end::target::BenchTarget;
use crate::end_to_end::{self, Blocks, Load, Side, Sink};
use crate::report::{Goal, Report};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct ProcessOptions {
    /// The binary of profbridge
    #[arg(long, default_value = "target/dist/profbridge")]
    binary: PathBuf,
    /// The shape of the requests
    #[arg(long, default_value = "avg")]
    shape: Shape,
    /// The length of the windows, such as `10s`
    #[arg(long, default_value = "0s")]
    window: String,
    /// The compression of profbridge's output
    #[arg(long, default_value = "zstd")]
    compression: String,
    /// How to measure
    #[command(flatten)]
    blocks: Blocks,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A profbridge with a pipeline of profiles from OTLP to Sentry. The pipeline waits while the queue is full.
pub(crate) struct Setting<'a> {
    /// The length of windows, such as `0s`.
    pub(crate) window: &'a str,
    pub(crate) dedup_window: &'a str,
    /// The codec of the output.
    pub(crate) compression: &'a str,
    /// The exporter's queue, in MiB.
    pub(crate) queue_mib: u64,
    /// `service.limits`, in braces.
    pub(crate) limits: &'a str,
}

impl Setting<'_> {
    /// The configuration file for a sink.
    pub(crate) fn yaml(&self, sink: SocketAddr) -> String {
        let Self { window, dedup_window, compression, queue_mib, limits } = self;
        let any = "endpoint: '127.0.0.1:0'";
        format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{{any}}}, http: {{{any}}}}}}}}}\n\
             processors: {{dedup: {{window: {dedup_window}}}, chunk: {{}}}}\n\
             exporters:\n  sentry:\n    dsn: http://0123456789abcdef0123456789abcdef@{sink}/1\n    \
             compression: {compression}\n    \
             sending_queue: {{sizer: bytes, queue_size: {queue_mib}MiB, block_on_overflow: true}}\n\
             service:\n  shutdown_timeout: 10m\n  \
             telemetry: {{metrics: {{address: '127.0.0.1:0'}}, health: {{address: '127.0.0.1:0'}}}}\n  \
             identity: {{window: {window}}}\n  limits: {limits}\n  \
             pipelines: {{profiles: {{receivers: [otlp], processors: [dedup, chunk], exporters: [sentry]}}}}\n"
        )
    }
}

/// Measures and reports.
pub(crate) fn run(options: &ProcessOptions) -> Result<(), Error> {
    let ProcessOptions { shape, window, compression, blocks, .. } = options;
    let folder = end_to_end::begin()?;
    let reports = if *shape == Shape::Large { 1 } else { 12 };
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_nanos())?;
    let mut host = Host::new(*shape, SEED).starting_at(now);
    let requests = (0..reports).map(|n| host.report(n).encode_to_vec()).collect();
    // A host's successive reports fill the windows. Without windows it is enough that all requests differ.
    let holds = window != "0s";
    let load = Load::profiles(requests, if holds { host.window() } else { 1_000_000 })?;
    let sink = Sink::start(false)?;
    let control = Side { target: BenchTarget::control(&sink)?, sink };
    let sink = Sink::start(false)?;
    // The queue is small, so that the observations in it do not distort a block: the pipeline waits for the sink, as
    // the control's does.
    let yaml = Setting { window, dedup_window: "0s", compression, queue_mib: 4, limits: "{}" }.yaml(sink.address);
    let ours = Side { target: BenchTarget::profbridge(&options.binary, folder.path(), &yaml)?, sink };

    let mut report = Report::new("process");
    let name = format!("{shape}, window {window}, {compression}");
    if !holds {
        // Figures are only comparable if both programs give the same result for the same input.
        let (mine, other) = (ours.once(&load)?, control.once(&load)?);
        if mine.observations != other.observations || mine.observations == 0 {
            return Err(format!("profbridge delivers {mine:?}, the control {other:?}").into());
        }
        report.detail("one round of requests", json!({ "profbridge": mine, "control": other }));
        let bytes = mine.bytes as f64 / other.bytes as f64;
        report.figure(format!("{name}: bytes out by the control's"), bytes, "x", Some(Goal::AtMost(1.10)));
    }
    let goal = (*shape == Shape::Avg && !holds && compression == "zstd").then_some(Goal::AtLeast(4.0));
    let itself = blocks.pairs((blocks.pairs / 2).max(2), &load, &ours, &ours)?;
    report.ratio(format!("{name}: profbridge against itself"), &itself, None);
    let outcome = blocks.pairs(blocks.pairs, &load, &ours, &control)?;
    report.ratio(format!("{name}: CPU per observation, control's by profbridge's"), &outcome, goal);
    report.figure(format!("{name}: profbridge"), outcome.a, "ns/obs", None);
    report.figure(format!("{name}: control"), outcome.b, "ns/obs", None);
    report.finish(options.json.as_deref())
}
