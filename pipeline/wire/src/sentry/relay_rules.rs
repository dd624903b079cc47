//! Relay rules.
