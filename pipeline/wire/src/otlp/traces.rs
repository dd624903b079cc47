//! Converts OTLP spans between `ExportTraceServiceRequest` and the model (opentelemetry-proto `trace/v1/trace.proto`,
//! `collector/trace/v1/trace_service.proto`).
//!
//! A request is kept as the received bytes. [`decode()`] finds its spans and validates everything that later code
//! relies on. Other fields of a span are read from the bytes on demand ([`read`]). [`encode()`] assembles the remaining
//! spans and their changes. `write` encodes spans from other formats.

pub mod decode;
pub mod encode;
mod pieces;
pub mod read;
pub(crate) mod write;

pub use decode::{DecodedSpans, RefusedSpan, decode};
pub use encode::{encode, encode_within, split};
pub use read::{AnyValue, Attributes, Event, OtherSpanFields, SpanLink};
