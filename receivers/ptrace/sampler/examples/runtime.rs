//! Reads the frames of a thread that stands still from its interpreter's memory, and prints them.
//!
//!     cargo run --example runtime -- PID TID [RECORDING]
//!
//! With a third argument, everything that was read is written to that file: the recordings in `tests/recordings` are
//! made with this (`record.py` there).

use std::time::Instant;

use profbridge_sampler::address_space::AddressSpace;
use profbridge_sampler::elf::ObjectCache;
use profbridge_sampler::message::{FunctionKind, Location};
use profbridge_sampler::process_files::ProcessFiles;
use profbridge_sampler::runtime::{Captured, Found, Functions, MAX_FRAMES, Recording, Target, ThreadKey};

/// Remembers what was read of a process.
struct Recorder {
    files: ProcessFiles,
    recording: Recording,
}

impl Target for Recorder {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        let whole = self.files.read_memory(address, bytes) == bytes.len();
        if whole {
            self.recording.add(address, bytes);
        }
        whole
    }
}

#[allow(clippy::print_stdout, reason = "this is what it is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, thread, out @ ..] = arguments.as_slice() else { return Err("usage: runtime PID TID [RECORDING]".into()) };
    let (pid, thread): (u32, u32) = (pid.parse()?, thread.parse()?);
    let files = ProcessFiles::open(pid)?;
    let space = AddressSpace::load(&files, None, &mut ObjectCache::default())?;
    for fault in space.faults() {
        println!("{}: {}", fault.path, fault.reason);
    }
    let found = space.runtimes().first().ok_or("no interpreter was found")?;
    let (runtime, version) = found.state();
    let recording = Recording { runtime, version, thread, ..Recording::default() };
    let mut target = Recorder { files, recording };
    // Detected once more, so that what this reads is recorded.
    let mut instance = Found::python(runtime, version, &mut target)?.instance();
    let (mut captured, mut resolved) = (Captured::default(), Vec::new());
    let mut functions = Functions::default();
    let key = ThreadKey { id: thread, pointer: 0 };
    if !instance.capture(key, MAX_FRAMES, Instant::now(), &mut target, &mut captured) {
        return Err("the thread has no frames".into());
    }
    instance.resolve(&captured, true, &mut target, &mut functions, &mut resolved);
    functions.unknown(FunctionKind::CPython);
    let told = functions.take_fresh().map(|(_, told)| told).unwrap_or_default();
    println!("{version:#x}, {} frames in {} calls", captured.frames.len(), captured.segments.len());
    for frame in resolved {
        let Some(Location::Interpreted { function, line }) = frame.location else { continue };
        let Some(function) = told.get(function as usize) else { continue };
        println!("{} {}:{line}", function.name, function.file);
    }
    if let [out, ..] = out {
        std::fs::write(out, target.recording.to_bytes())?;
    }
    Ok(())
}
