//! The receiver `otlp`: OTLP profiles and traces over gRPC and HTTP.
//!
//! ```text
//! socket --net--> request --body--> bytes --call--> unpacked, decoded --Intake--> pipelines
//!                 grpc, http: each protocol's form of the same outcome
//! ```
//!
//! Invariants:
//!
//! * A request's memory is taken from the budget before it is allocated: for the received, decompressed and decoded
//!   data. A claimed length is compared with the limits, but memory is taken only as bytes arrive.
//! * A request is one buffer from the socket to the pipelines: the decoder points into it.
//! * Bad input never counts as an internal error: the answers follow opentelemetry-proto `docs/specification.md`, and
//!   name the place and the broken rule.
//! * The threads that serve sockets do no work that grows with a request.

mod call;
mod config;
mod fault;
mod grpc;
mod host;
mod http;
mod known_peers;
mod message;
mod origin;
mod producers;
mod receiver;
mod signal_forwarder;
mod version;

#[cfg(test)]
mod tests;

pub use config::{Config, ProtocolSettings, ResourceSettings, Settings};
pub use host::ThisHost;
pub use receiver::{FACTORY, OtlpReceiver};
