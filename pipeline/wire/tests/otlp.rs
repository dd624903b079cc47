//! Compares the OTLP decoder and encoder with prost, an independent implementation of the same protocol.

mod arbitrary;
mod oracle;

mod attacks;
mod json;
pub(crate) mod layouts;
mod mutations;
mod older;
mod older_attacks;
mod older_rules;
mod refusals;
mod round_trip;
mod split;
