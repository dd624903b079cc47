//! `profbridge-bench`: measures the figures of profbridge. It is never shipped, and runs from a checkout.
//!
//! The rules of measuring, which the README explains:
//!
//! * Only ratios of adjacent runs are reported ([`pairs`]); a pair during which the machine's speed changed is
//!   discarded.
//! * CPU time counts, not wall time ([`machine`]), per observation that arrived.
//! * In end-to-end tests, the measured process has its own core ([`end_to_end`]); sender and sink are in this process,
//!   on another core.
//! * Each figure is printed with its goal, and written as JSON ([`report`]).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use profbridge_testkit::fixture;
use profbridge_testkit::releases::{earlier, plain};
use prost::Message;

mod end_to_end;
mod machine;
mod memory_bounds;
mod pairs;
mod parts;
mod process;
mod report;
mod sampler;
mod statistics;
mod traces;

/// Any error: the harness only reports it to its user.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Measures the performance of profbridge.
#[derive(Parser)]
#[command(name = "profbridge-bench")]
struct Arguments {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Write the fixture as an ExportProfilesServiceRequest in protobuf
    WriteFixture {
        /// The file to write
        out: PathBuf,
    },
    /// Write the fixture in each earlier layout of OTLP, each after a byte with the layout's number
    WriteLayouts {
        /// The folder to write to
        out: PathBuf,
    },
    /// Measure the CPU time per observation in one process, compared with the control
    Parts(parts::PartsOptions),
    /// Measure the CPU time per observation of the binary, compared with the control
    Process(process::ProcessOptions),
    /// Measure the CPU time per span of forwarding OTLP traces, compared with a Collector
    Traces(traces::TracesOptions),
    /// Measure the peak memory of flushes, memory pressure and hostile requests, relative to the configured limit
    MemoryBounds(memory_bounds::MemoryBoundsOptions),
    /// Measure the sampler: its cost compared with other profilers, and whether it names interpreted functions
    /// correctly
    Sampler(sampler::SamplerBenchOptions),
    /// Run the control as a server
    #[command(hide = true)]
    ControlServer(end_to_end::control::ControlOptions),
}

fn main() -> ExitCode {
    // The sampler process is this program, started a second time.
    if let Some(code) = profbridge_sampler::owner::run_if_sampler() {
        return code;
    }
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ignored = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: BenchCommand) -> Result<(), Error> {
    match command {
        BenchCommand::WriteFixture { out } => write(&out, &fixture::request().encode_to_vec()),
        BenchCommand::WriteLayouts { out } => {
            std::fs::create_dir_all(&out)?;
            let mut request = plain(fixture::request());
            // Layouts with tables per profile repeat the tables in each profile, so only one resource is kept.
            request.resource_profiles.truncate(1);
            for (number, (layout, bytes)) in (0_u8..).zip(earlier(&request)) {
                write(&out.join(layout), &[&[number], &bytes[..]].concat())?;
            }
            Ok(())
        }
        BenchCommand::Parts(options) => parts::run(&options),
        BenchCommand::Process(options) => process::run(&options),
        BenchCommand::Traces(options) => traces::run(&options),
        BenchCommand::MemoryBounds(options) => memory_bounds::run(&options),
        BenchCommand::Sampler(options) => sampler::run(&options),
        BenchCommand::ControlServer(options) => end_to_end::control::run(options),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(())
}
