//! Tests of the guarantees of `transactions`, one test per rule.

// A test that cannot continue fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod configuration;
mod conservation;
mod grouping;
mod support;
mod waiting;
