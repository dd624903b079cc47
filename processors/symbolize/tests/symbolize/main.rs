//! Tests of the guarantees of `symbolize`, one test per rule.

// A test that cannot continue fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod configuration;
mod contract;
mod holding;
mod naming;
#[cfg(target_os = "linux")]
mod programs;
mod support;
