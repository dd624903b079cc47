//! What `dedup` promises, one test per rule.

// A test that cannot go on fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod configuration;
mod merging;
mod resends;
mod support;
