//! The formats against independent readings of them: prost, the control of `profbridge_testkit`, and what Sentry's SDKs
//! sent.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests report by panicking and printing")]

mod attributes;
mod scramble;

mod chunk_control;
mod grouping;
mod otlp;
mod pprof;
mod sentry;
mod traces;
mod transactions;
