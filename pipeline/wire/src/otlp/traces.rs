//! OTLP spans: `ExportTraceServiceRequest` and the model (opentelemetry-proto `trace/v1/trace.proto`,
//! `collector/trace/v1/trace_service.proto`).
//!
//! A request stays the bytes that it came as. [`decode()`] finds the spans in it and checks everything that someone
//! behind it relies on; what a span says beside that is read where it stands ([`read`]), and [`encode()`] puts the
//! spans that are left together again, with what was found out about them. `write` makes requests of spans that came in
//! another form.

pub mod decode;
pub mod encode;
mod pieces;
pub mod read;
pub(crate) mod write;

pub use decode::{DecodedSpans, RefusedSpan, decode};
pub use encode::{encode, encode_within, split};
pub use read::{AnyValue, Attributes, Event, Fields};
