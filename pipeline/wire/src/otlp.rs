//! OTLP profiles: converts protobuf bytes to a batch and back.
//!
//! The layout is that of opentelemetry-proto 1.10 (`opentelemetry/proto/profiles/v1development/profiles.proto`), which
//! 1.11 did not change; layouts since 1.3 are accepted as well. This module does no I/O, and no bytes cause a panic.
//!
//! * [`mod@decode`]: converts a request to a batch that points into it.
//! * [`mod@encode`]: converts a batch to a request, with its size computed exactly in advance.
//! * [`mod@split`]: splits a batch into parts that each fit a size.
//! * [`json`]: profiles and traces as JSON.
//! * [`delimited`]: the Collector file exporter's frames.
//! * [`environment`]: the environment variable with a program's resource attributes.
//! * [`mod@signal`]: the signals, and how to distinguish their requests.
//! * [`mod@sniff`]: detects the format of a file.

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
pub use limits::{Limits, decode_granted};
pub use signal::{LikelySignal, Signal, signal};
pub use sniff::{ContentKind, sniff};
pub use split::{Split, split};
