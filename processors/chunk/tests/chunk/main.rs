//! Tests of the guarantees of `chunk`, one test each.

// A test that cannot continue fails.
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
