//! The exporter `sentry`: profiles become `profile_chunk` envelopes, spans that were put together `transaction`
//! envelopes, those that an SDK of Sentry streamed containers again, and envelopes are forwarded. What sampling left
//! out before is reported.
//!
//! `prepare` has `profbridge_codec::sentry` make finished, compressed envelopes of each process window and each
//! transaction, and says where each goes; `send` posts one of them and does what the answer asks for. Queue, timeout,
//! retries and concurrency are the engine's.
//!
//! Three things are remembered for each DSN: the limits that its server set, the losses that it was not told about yet,
//! and whether it takes zstd. See [`destination`].
//!
//! A 200 of Sentry's means "queued": what is wrong with a chunk is found later, and dropped without a word
//! (getsentry/relay `relay-server/src/processing/profile_chunks`). The converter therefore checks each chunk before it
//! is sent, and the first 200 is logged for what it is.

pub mod config;
pub mod destination;
pub mod destinations;
mod exporter;
pub mod keep;
mod message;
mod onward;
mod prepare;
mod routing;
mod sampled_out;
mod send;

#[cfg(test)]
mod tests;

pub use config::{Config, Settings};
pub use exporter::SentryExporter;

use std::time::Duration;

use profbridge_engine::config::{Problems, Section};
use profbridge_engine::delivery::{DeliverySettings, DynExporter, deliver, disabled};
use profbridge_engine::registry::{Description, ExporterFactory};
use profbridge_model::TelemetryKind;

/// Makes exporters of the type `sentry`.
pub const FACTORY: ExporterFactory = ExporterFactory {
    description: Description::exporter(
        "sentry",
        "sends profiles to Sentry as profile_chunk envelopes, spans as transactions, and forwards envelopes",
        TelemetryKind::ALL,
    )
    .needs(|_| &[(TelemetryKind::Profiles, "chunk"), (TelemetryKind::Spans, "transactions")]),
    create,
};

fn create(section: &Section) -> Result<Box<dyn DynExporter>, Problems> {
    let settings = Config::read(section)?.check(section)?;
    if settings.destinations.is_empty() {
        return Ok(disabled(message::DISABLED));
    }
    // The client keeps the time: once it has the head of an answer it is known what became of the request, however
    // slowly the rest comes. A second timeout around it would forget that and send what was taken again.
    let delivery = DeliverySettings { timeout: Duration::ZERO, ..settings.delivery.clone() };
    Ok(deliver(SentryExporter::new(settings), delivery))
}
