//! Tests of the guarantees of `dedup`, one test per rule.

// A test that cannot continue fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod configuration;
mod merging;
mod resends;
mod support;
