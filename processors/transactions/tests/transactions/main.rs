//! What `transactions` promises, one test per rule.

// A test that cannot go on fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod configuration;
mod conservation;
mod grouping;
mod support;
mod waiting;
