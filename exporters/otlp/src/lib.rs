//! Exports profiles and spans to an OTLP receiver, over gRPC or HTTP. This crate handles destinations, answers and size
//! limits; `profbridge_codec` creates the requests, and the engine provides queue, timeout and retries.
//!
//! The rules are those of the OTLP specification (opentelemetry-proto `docs/specification.md`), the vocabulary that of
//! the Collector's two exporters, `otlp` (`otlp_grpc`) and `otlphttp` (`otlp_http`). Invariants:
//!
//! * An unchanged batch is sent as the bytes that were received. Others are encoded, split below the limit and
//!   compressed once, before they are queued (`profbridge_codec::otlp`), so a retry costs only the sending.
//! * The peer's answer alone decides about a retry, by the specification's tables. A partial success is counted and
//!   never sent again.
//! * A peer with a lower size limit than ours costs an attempt but no data: see `oversize`.
//! * No answer of a peer causes a panic, and no message contains a header's value, a path or a query.

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
