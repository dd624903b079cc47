//! The processor `link_spans` as its users see it.

#![allow(clippy::unwrap_used, reason = "tests report by panicking")]

mod brute_force;
mod clocks;
mod configuration;
mod contract;
mod forked;
mod linking;
mod named_by_samples;
mod namespaces;
mod pointers;
mod profilers;
mod report;
mod reused_pointers;
mod samples;
mod samples_brute_force;
mod samples_of_clients;
mod stateless;
mod support;
mod thread_names;
