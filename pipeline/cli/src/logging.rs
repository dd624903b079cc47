//! The log: one line per event on standard error, so that standard output stays free for results.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts the log at a level. Libraries only speak up when something is wrong.
pub(crate) fn start(level: LevelFilter) {
    let ours = ["profbridge", "profbridge_engine", "profbridge_net", "profbridge_wire"]
        .into_iter()
        .chain(["profbridge_receiver_otlp", "profbridge_processor_dedup", "profbridge_processor_chunk"])
        .chain(["profbridge_exporter_sentry", "profbridge_exporter_otlp", "profbridge_exporter_file"])
        .chain(["profbridge_exporter_debug", "profbridge_receiver_ptrace", "profbridge_ptrace", "profbridge_symbolize"])
        .chain(["profbridge_processor_symbolize"])
        .map(|target| (target, level));
    let filter = Targets::new().with_default(LevelFilter::WARN.min(level)).with_targets(ours);
    let format = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // A second start is only possible in tests, where the first one stands.
    tracing_subscriber::registry().with(filter).with(format).try_init().ok();
}
