//! Unwinding of real programs: compiled here, stopped, and held against what is known of them and against a second,
//! plain unwinder.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::expect_used, clippy::print_stderr, reason = "these are tests")]

mod known;
mod oracle;
mod programs;
mod runtimes;
mod snapshot;
mod stripped;
mod target;
