//! The exporter `sentry`. Profiles become `profile_chunk` envelopes. Spans go to Sentry's OTLP endpoint, or become
//! `transaction` envelopes or containers of spans; those that an SDK streamed in containers become containers again.
//! Received envelopes are forwarded. Sampled-out items are added to client reports.
//!
//! `prepare` uses `profbridge_codec::sentry` to turn each process window and each transaction into a finished,
//! compressed envelope, and chooses its destination. `send` posts one envelope and acts on the answer. The engine
//! provides queue, timeout, retries and concurrency.
//!
//! Each DSN has three pieces of state: the server's rate limits, the losses not reported yet, and whether the server
//! accepts zstd. See [`destination`].
//!
//! A 200 from Sentry means "queued": errors in a chunk are found later, and the chunk is dropped silently
//! (getsentry/relay `relay-server/src/processing/profile_chunks`). The converter therefore validates each chunk before
//! it is sent, and the log line of the first 200 says what it means.

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
mod spans;

#[cfg(test)]
mod tests;

pub use config::{Config, Settings, SpanMode};
pub use exporter::SentryExporter;

use std::time::Duration;

use profbridge_engine::config::{Problems, Section};
use profbridge_engine::delivery::{DeliverySettings, DynExporter, deliver, disabled};
use profbridge_engine::registry::{Description, ExporterFactory};
use profbridge_model::TelemetryKind;

/// Creates exporters of the type `sentry`.
pub const FACTORY: ExporterFactory = ExporterFactory {
    description: Description::exporter(
        "sentry",
        "sends profiles to Sentry as profile_chunk envelopes, spans as OTLP or otherwise, and forwards envelopes",
        TelemetryKind::ALL,
    )
    .needs(|_| &[(TelemetryKind::Profiles, "chunk")]),
    create,
};

fn create(section: &Section) -> Result<Box<dyn DynExporter>, Problems> {
    let settings = Settings::read(section)?;
    if settings.destinations.is_empty() {
        return Ok(disabled(message::DISABLED));
    }
    // The HTTP client enforces the timeout: the head of an answer decides the outcome, however slowly the rest arrives.
    // A second timeout around it would discard that outcome and resend an accepted request.
    let delivery = DeliverySettings { timeout: Duration::ZERO, ..settings.delivery.clone() };
    Ok(deliver(SentryExporter::new(settings), delivery))
}
