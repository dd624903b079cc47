//! End-to-end tests: the real binary between real clients and backends in this process, on ports that the system
//! chooses, without a sleep.

mod backend;
mod capture;
mod client;
mod commands;
mod conformance;
mod examples;
mod failures;
mod main_job;
mod process;
mod reference_configuration;
