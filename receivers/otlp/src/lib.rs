//! The receiver `otlp`: OTLP profiles and traces over gRPC and HTTP.
//!
//! ```text
//! socket --net--> request --body--> bytes --call--> unpacked, decoded --Intake--> pipelines
//!                 grpc, http: what the two protocols call the same outcome
//! ```
//!
//! Laws that hold here:
//!
//! * A request's memory is taken from the budget before it is allocated: what arrived, what it unpacks to, what it is
//!   decoded to. A claimed length is compared with the limits and otherwise believed only as far as bytes arrive.
//! * A request is one buffer from the socket to the pipelines: the decoder points into it.
//! * Bad input is never an error of ours: the answers are those of opentelemetry-proto `docs/specification.md`, and say
//!   which place breaks which rule.
//! * The threads that serve sockets do no work that grows with a request.

mod call;
mod config;
mod elsewhere;
mod fault;
mod form;
mod grpc;
mod host;
mod http;
mod message;
mod origin;
mod producers;
mod receiver;
mod senders;
mod version;

#[cfg(test)]
mod tests;

pub use config::{Config, ProtocolSettings, ResourceSettings, Settings};
pub use host::ThisHost;
pub use receiver::{FACTORY, Otlp};
