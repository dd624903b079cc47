//! End-to-end tests: the real binary between real clients and fake backends in this process, on ports that the system
//! chooses, without sleeping.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "helpers of tests may fail like tests"
)]

mod backend;
mod client;
mod commands;
#[cfg(target_os = "linux")]
mod configuration_errors;
mod convert;
mod delivery;
#[cfg(target_os = "linux")]
mod dump;
#[cfg(target_os = "linux")]
mod ending;
mod examples;
mod failures;
mod linking;
#[cfg(target_os = "linux")]
mod live_contexts;
#[cfg(target_os = "linux")]
mod log;
mod main_job;
#[cfg(target_os = "linux")]
mod memory_bounds;
mod mistakes;
#[cfg(target_os = "linux")]
mod namespaces;
mod pprof;
mod process;
mod readme;
mod reference_configuration;
mod reference_pages;
#[cfg(target_os = "linux")]
mod sample;
#[cfg(target_os = "linux")]
mod sampler_to_sentry;
mod sampling;
mod sentry_envelopes;
#[cfg(target_os = "linux")]
mod targets;
#[cfg(target_os = "linux")]
mod time_owned;
#[cfg(target_os = "linux")]
mod top;
