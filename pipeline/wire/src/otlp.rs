//! OTLP profiles: protobuf bytes to a batch and back.
//!
//! The layout is that of opentelemetry-proto 1.10 (`opentelemetry/proto/profiles/v1development/profiles.proto`), which
//! 1.11 did not change; those since 1.3 are read as well. Nothing here does I/O, and no bytes make it panic.
//!
//! * [`mod@decode`]: a request to a batch, without copying what it points to.
//! * [`mod@encode`]: a batch to a request, of exactly computed size.
//! * [`mod@split`]: a batch to several that each fit a size.
//! * [`json`]: either as JSON, and traces.
//! * [`delimited`]: the Collector file exporter's frames.
//! * [`environment`]: the variable in which a program is told its attributes.
//! * [`mod@signal`]: tells requests of profiles and of spans apart.
//! * [`mod@sniff`]: tells the forms of a file apart.

pub mod decode;
pub mod delimited;
pub mod encode;
pub mod environment;
pub mod json;
pub mod signal;
pub mod sniff;
pub mod split;
pub mod traces;

pub(crate) mod error;
mod layout;
pub(crate) mod limits;
pub(crate) mod reader;

pub use decode::{Decoded, decode, decode_as, memory};
pub use encode::{EncodeOptions, encode, encoded_len, payload_may_leave};
pub use error::DecodeError;
pub use layout::Layout;
pub use limits::Limits;
pub use signal::{Signal, signal};
pub use sniff::{Kind, sniff};
pub use split::{Split, split};
