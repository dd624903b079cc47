//! Unwinds stopped threads of real programs, which are compiled here, and compares the result with their source and
//! with a second, simple unwinder.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::expect_used, clippy::print_stderr, reason = "these are tests")]

mod known;
mod oracle;
mod programs;
mod runtimes;
mod snapshot;
mod stripped;
mod target;
