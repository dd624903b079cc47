//! Tests of the guarantees of `sample`, one test per rule.

// A test that cannot continue fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod configuration;
mod contract;
mod envelopes;
mod lifecycle;
mod rules;
mod sessions;
mod support;
mod waiting;
