//! Compares the reading and writing of OTLP spans with prost.

pub(crate) mod arbitrary;
mod attacks;
mod changes;
mod oracle;
