//! Tests of the whole converter, by rule.
//!
//! Chunks are compared in a readable form: the samples of each thread in order of time, each as the leaf's function and
//! the milliseconds since the window's start. An idle sample is `-`.

mod about;
mod attacks;
mod called;
mod chunks;
mod frames;
mod images;
mod listing;
mod modules;
mod perf_names;
mod properties;
mod runtimes;
pub(in crate::sentry) mod support;
mod time;
mod types;
mod whole;
