//! profbridge-wire

pub mod folded;
pub mod otlp;
pub mod sentry;
