//! OTLP spans, held against prost as the independent reading of the same protocol.

pub(crate) mod arbitrary;
mod attacks;
mod changes;
mod oracle;
