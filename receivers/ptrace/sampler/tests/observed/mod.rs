//! Samples interpreters while they run, for the tests of the functions that they execute.

use std::io::{BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use profbridge_sampler::address_space::AddressSpace;
use profbridge_sampler::elf::ObjectCache;
use profbridge_sampler::message::{Function, Level, Location, Mode, ProcessId, Settings, Stops};
use profbridge_sampler::perf::open;
use profbridge_sampler::process_files::ProcessFiles;
use profbridge_sampler::sampler::{SamplerOptions, SamplerOutput, SamplingThread};

pub(crate) fn untested(why: &str) {
    std::io::stderr().write_fmt(format_args!("untested here: {why}\n")).ok();
}

/// A program that runs; dropping this kills it.
pub(crate) struct InterpreterProgram {
    pub(crate) child: Child,
    pub(crate) output: BufReader<ChildStdout>,
}

impl InterpreterProgram {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }
}

impl Drop for InterpreterProgram {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The minimum number of observations, for which a busy machine needs longer.
const ENOUGH: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(120);

/// Samples a process a thousand times a second, for `duration` and until there are enough observations. Calls `each`
/// with every function and line of an interpreter in the samples, once for each batch. Returns the number of
/// observations.
pub(crate) fn observe(pid: u32, duration: Duration, mut each: impl FnMut(&Function, u32)) -> u32 {
    let permitted = open::open(&open::KernelOpener, (std::process::id(), None), 1_000_000, Level::Kernel, true).is_ok();
    let files = Arc::new(ProcessFiles::open(pid).unwrap());
    let mut cache = ObjectCache::default();
    let space = Arc::new(AddressSpace::load(&*files, None, &mut cache).unwrap());
    let (out, outputs) = sync_channel(1024);
    let sampler = SamplingThread::start(SamplerOptions { realtime: false }, out, || {}).unwrap();
    let stops = if permitted { Stops::Never } else { Stops::Always };
    let settings = Settings { rate_hertz: 997.0, mode: Mode::Cpu, stops, ..Settings::default() };
    sampler.attach(ProcessId(1), Arc::clone(&files), space, settings);
    sampler.sample(ProcessId(1), true);
    let start = Instant::now();
    let mut functions: Vec<Function> = Vec::new();
    let mut observations = 0;
    loop {
        let end = start + if observations > ENOUGH { duration } else { PATIENCE };
        let Ok(output) = outputs.recv_timeout(end.saturating_duration_since(Instant::now())) else { break };
        match output {
            SamplerOutput::Functions { functions: told, .. } => functions.extend(told),
            SamplerOutput::Batch(batch) => {
                observations += batch.samples.iter().map(|sample| sample.observations).sum::<u32>();
                for location in &batch.locations {
                    if let Location::Interpreted { function, line } = *location {
                        each(&functions[function as usize], line);
                    }
                }
            }
            _ => {}
        }
    }
    sampler.stop();
    observations
}
