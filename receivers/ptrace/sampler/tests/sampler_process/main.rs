//! The sampler as a process: started, heard, killed, left alone, and what it starts itself.
//!
//! This program is its own test runner, since the sampler process is the same program started again: that must be
//! looked at first. Nothing here waits for time to pass: tests wait for what is said, or for a pipe's end when all who
//! hold it are gone.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic and says why on the terminal"
)]

mod commands;
mod ends;
mod finding;
mod session;
mod subprocesses;
mod supervised;

use std::panic::catch_unwind;
use std::process::ExitCode;

/// A test: its name, and what it does.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    if let Some(code) = profbridge_sampler::run_if_sampler() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("owner", rest)) => return ends::be_an_owner(rest),
        Some(("supervisor", _)) => return supervised::be_a_supervisor(),
        _ => {}
    }
    let tests: Vec<Test> =
        [commands::TESTS, ends::TESTS, finding::TESTS, subprocesses::TESTS, supervised::TESTS].concat();
    if arguments.iter().any(|argument| argument == "--list") {
        for (name, _) in &tests {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let mut failed = 0;
    for (name, test) in tests {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
            continue;
        }
        let passed = catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    println!("\ntest result: {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
