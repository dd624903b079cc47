//! Situations in which samplers typically fail, one test each, with real processes.
//!
//! Targets are programs in `tests/targets`, compiled once per run. Each prints a line when it is in the state that its
//! test needs, and ends with its standard input; tests wait for events of the sampler and never for time to pass. One
//! test runs at a time, since each measures its effect on a process. Tests that a machine does not allow are reported
//! as untested, with the reason.
//!
//! This program is its own test runner, since the sampler process is the same program executed again, which has to be
//! checked first.
//!
//! Not tested here: Yama's scopes and jumps of the wall clock, which would change the whole machine
//! (`tests/interop/other_kernel.py` boots another); kernels without schedstat (`CONFIG_SCHED_INFO`), with HZ of 100 or
//! `nohz_full`; suspend; other architectures than x86-64.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic and says why on the terminal"
)]

mod answers;
mod commands;
mod compile;
mod contexts;
mod drive;
mod ends;
mod events;
mod finding;
mod interpreters;
mod kill;
mod life;
mod process;
mod refusal;
#[path = "../repeated/mod.rs"]
mod repeated;
mod rights;
mod runner;
mod session;
mod signals;
mod stacks;
mod stops;
mod subprocesses;
mod supervised;
mod symbols;
mod target;
mod threads;
mod waits;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = profbridge_sampler::owner::run_if_sampler() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("drive", rest)) => return drive::run(rest),
        Some(("owner", rest)) => return ends::be_an_owner(rest),
        Some(("supervisor", _)) => return supervised::be_a_supervisor(),
        _ => {}
    }
    let tests = [
        answers::TESTS,
        commands::TESTS,
        contexts::TESTS,
        ends::TESTS,
        events::TESTS,
        finding::TESTS,
        interpreters::TESTS,
        kill::TESTS,
        life::TESTS,
        rights::TESTS,
        signals::TESTS,
        stacks::TESTS,
        stops::TESTS,
        subprocesses::TESTS,
        supervised::TESTS,
        threads::TESTS,
        waits::TESTS,
    ];
    let code = runner::run(&tests.concat(), &arguments);
    compile::remove();
    code
}
