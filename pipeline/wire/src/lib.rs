//! profbridge-wire

pub mod folded;
pub mod sentry;
