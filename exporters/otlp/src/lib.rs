//! Sends profiles to an OTLP receiver, over gRPC or HTTP. It knows destinations, answers and limits; requests are made
//! by `profbridge_codec`, and queue, timeout and retries are the engine's.
//!
//! The rules are those of the OTLP specification (opentelemetry-proto `docs/specification.md`), the vocabulary that of
//! the Collector's two exporters, `otlp` (`otlp_grpc`) and `otlphttp` (`otlp_http`). Laws that hold here:
//!
//! * A batch that nobody changed leaves as the bytes it came as. What has to be encoded anew is split below the limit
//!   and compressed once, before it waits (`profbridge_codec::otlp`): a retry costs nothing but the sending.
//! * What a peer answered decides about a retry, by the specification's tables and nothing else. A partial success is
//!   counted and never sent again.
//! * A peer that takes less than we send costs an attempt and no data: see `oversize`.
//! * Whatever a peer answers, nothing here panics, and no message holds a header's value, a path or a query.

mod answer;
mod config;
mod exporter;
mod factory;
mod grpc;
mod http;
mod oversize;
mod prepare;
mod settings;

pub use config::{Config, Protocol};
pub use factory::{FACTORIES, FACTORY, OTLP_GRPC, OTLP_HTTP, OTLPHTTP};

#[cfg(test)]
mod tests;
