//! `profbridge-bench`: what the workloads are, requests as files, and the figures of profbridge. Never shipped.
//! What it measures with is the library, `harness` above all.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use profbridge_bench::{
    figures::Figures,
    fixture,
    harness::{
        self, calibrator, control, footprint, forward, layouts, load, memory, memory_bounds, parts, process, sampler,
        sink, slow_sink, there_and_back, traces,
    },
    naive,
    releases::transcode::{earlier, plain},
    workload::{self, Host, Shape},
};
use prost::Message;

/// Workloads for profbridge, and its figures.
#[derive(Parser)]
#[command(name = "profbridge-bench")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the workloads' figures against those that are wanted, one line each
    Shapes {
        /// The seed
        #[arg(long, default_value_t = workload::SEED)]
        seed: u64,
        /// Only these shapes
        shapes: Vec<Shape>,
    },
    /// Write the fixture as an ExportProfilesServiceRequest in protobuf
    WriteFixture {
        /// The file to write
        out: PathBuf,
    },
    /// Write the fixture in each earlier layout of OTLP, behind a byte with the layout's number
    WriteLayouts {
        /// The folder to write to
        out: PathBuf,
    },
    /// Print the control's chunks of an ExportProfilesServiceRequest, one JSON object per line
    Control {
        /// The request in protobuf
        input: PathBuf,
    },
    /// Write reports of a workload as files OUT.0, OUT.1, ...
    WriteReports {
        /// The shape
        shape: Shape,
        /// The files' name before the number
        out: PathBuf,
        /// How many
        #[arg(long, default_value_t = 1)]
        count: usize,
        /// The seed
        #[arg(long, default_value_t = workload::SEED)]
        seed: u64,
    },
    /// Measure the CPU time per observation of the binary, against the control's
    Process(process::Options),
    /// Measure the CPU time per observation in one process, against the control's
    Parts(parts::Options),
    /// Measure the CPU time per observation of chunks to OTLP and back, against the control's
    ThereAndBack(there_and_back::Options),
    /// Measure the CPU time per observation of requests in earlier layouts of OTLP, against the same data in today's
    Layouts(layouts::Options),
    /// Measure the most memory that one large request takes
    Memory(memory::Options),
    /// Measure the most memory that putting out, relief and a hostile request take, beside the configured limit
    MemoryBounds(memory_bounds::Options),
    /// Measure the size of the binary, its start and its idle memory
    Footprint(footprint::Options),
    /// Measure the CPU time of forwarding an envelope that nothing is read of, beside nginx as a proxy
    Forward(forward::Options),
    /// Measure the CPU time per span of forwarding OTLP traces, against a Collector's
    Traces(traces::Options),
    /// Measure the memory while the sink takes a tenth of what comes
    SlowSink(slow_sink::Options),
    /// Measure the sampler: its cost, what it does to its targets, and how much of their stacks it finds
    Sampler(sampler::Options),
    /// Print the ticks that a sampler misses, in percent
    #[command(hide = true)]
    SamplerMissedOnce(sampler::OnceOptions),
    /// Print what switches cost by events of threads
    #[command(hide = true)]
    SamplerSwitchesOnce(sampler::OnceSwitches),
    /// Convert one file and print the memory that it took
    #[command(hide = true)]
    ConvertOnce(memory::OnceOptions),
    /// Run the control as a server
    #[command(hide = true)]
    ControlServer(control::Options),
    /// Run the sink
    #[command(hide = true)]
    Sink(sink::Options),
    /// Run the load generator
    #[command(hide = true)]
    Load(load::Options),
    /// Print how long the calibrator takes, in nanoseconds
    #[command(hide = true)]
    Calibrate,
}

fn main() -> ExitCode {
    // The sampler process is this program, started again.
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

fn run(command: Command) -> Result<(), harness::Error> {
    match command {
        Command::Shapes { seed, shapes } => {
            let shapes = if shapes.is_empty() { Shape::ALL.to_vec() } else { shapes };
            print_shapes(&mut std::io::stdout().lock(), seed, &shapes)
        }
        Command::WriteFixture { out } => write(&out, &fixture::request().encode_to_vec()),
        Command::Control { input } => {
            let bytes = std::fs::read(&input).map_err(|error| format!("{}: {error}", input.display()))?;
            let mut out = std::io::stdout().lock();
            for chunk in naive::convert(&naive::decode(&bytes)?, &naive::Options::default()) {
                out.write_all(&naive::json(&chunk)?)?;
                out.write_all(b"\n")?;
            }
            Ok(())
        }
        Command::WriteLayouts { out } => {
            std::fs::create_dir_all(&out)?;
            let mut request = plain(fixture::request());
            // Where each profile has tables of its own, one is as large as all others are together.
            request.resource_profiles.truncate(1);
            for (number, (layout, bytes)) in (0_u8..).zip(earlier(&request)) {
                write(&out.join(layout), &[&[number], &bytes[..]].concat())?;
            }
            Ok(())
        }
        Command::WriteReports { shape, out, count, seed } => {
            let mut host = Host::new(shape, seed);
            for n in 0..count {
                let mut path = out.clone().into_os_string();
                path.push(format!(".{n}"));
                write(Path::new(&path), &host.report(n).encode_to_vec())?;
            }
            Ok(())
        }
        Command::Process(options) => process::run(&options),
        Command::Parts(options) => parts::run(&options),
        Command::ThereAndBack(options) => there_and_back::run(&options),
        Command::Layouts(options) => layouts::run(&options),
        Command::Memory(options) => memory::run(&options),
        Command::MemoryBounds(options) => memory_bounds::run(&options),
        Command::Footprint(options) => footprint::run(&options),
        Command::Forward(options) => forward::run(&options),
        Command::Traces(options) => traces::run(&options),
        Command::SlowSink(options) => slow_sink::run(&options),
        Command::Sampler(options) => sampler::run(&options),
        Command::SamplerMissedOnce(options) => sampler::missed_once(&options),
        Command::SamplerSwitchesOnce(options) => sampler::switches_once(&options),
        Command::ConvertOnce(options) => memory::once(&options),
        Command::ControlServer(options) => control::run(options),
        Command::Sink(options) => sink::run(options),
        Command::Load(options) => load::run(options),
        Command::Calibrate => {
            writeln!(std::io::stdout(), "{}", calibrator::nanos()?)?;
            Ok(())
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), harness::Error> {
    std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(())
}

/// One line per shape and figure: what it is, what is wanted, and the deviation; then what the control makes of the
/// request.
fn print_shapes(out: &mut impl Write, seed: u64, shapes: &[Shape]) -> Result<(), harness::Error> {
    for &shape in shapes {
        let request = Host::new(shape, seed).report(0);
        let figures = Figures::of(&request);
        let wanted = shape.wanted().unwrap_or_default();
        writeln!(out, "{shape}")?;
        for (name, have, want) in rows(&figures, &wanted) {
            match want {
                0 => writeln!(out, "  {name:<14} {have:>12}")?,
                _ => {
                    let deviation = (have as f64 / want as f64 - 1.0) * 100.0;
                    writeln!(out, "  {name:<14} {have:>12} {want:>12} {deviation:>+7.1} %")?;
                }
            }
        }
        let chunks = naive::convert(&request, &naive::Options::default());
        let idle = |chunk: &naive::Chunk| {
            let is_idle = |sample: &&naive::chunk::Sample| chunk.profile.stacks[sample.stack_id].is_empty();
            chunk.profile.samples.iter().filter(is_idle).count()
        };
        let closings: usize = chunks.iter().map(idle).sum();
        let (mut json_bytes, mut gzip_bytes) = (0, 0);
        for chunk in &chunks {
            let json = naive::json(chunk)?;
            json_bytes += json.len();
            gzip_bytes += naive::gzip(&json)?.len();
        }
        let per_observation = json_bytes as f64 / figures.observations as f64;
        writeln!(
            out,
            "  control: {} chunks, {closings} closings, {json_bytes} B of JSON ({per_observation:.0} per observation), {gzip_bytes} B gzipped",
            chunks.len()
        )?;
    }
    Ok(())
}

fn rows(have: &Figures, want: &Figures) -> [(&'static str, usize, usize); 11] {
    [
        ("wire bytes", have.wire_bytes, want.wire_bytes),
        ("observations", have.observations, want.observations),
        ("samples", have.samples, want.samples),
        ("stacks", have.stacks, want.stacks),
        ("stack indices", have.stack_indices, want.stack_indices),
        ("locations", have.locations, want.locations),
        ("functions", have.functions, want.functions),
        ("strings", have.strings, want.strings),
        ("links", have.links, want.links),
        ("resources", have.resources, want.resources),
        ("linked", have.linked, want.linked),
    ]
}
