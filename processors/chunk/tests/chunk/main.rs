//! What `chunk` promises, one test per rule.

// A test that cannot go on fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod configuration;
mod conservation;
mod instant;
mod long;
mod owned;
mod processes;
mod support;
mod times;
mod whole;
