//! A piece of work that never changes: when it takes longer, the machine is slower.

use std::io::Write;

use flate2::{Compression, write::ZlibEncoder};

use super::{Error, TARGET_CORE, children, procfs};

/// How much is compressed, in bytes.
const BYTES: usize = 1 << 20;

/// How often, in one measurement.
const TIMES: usize = 12;

/// Compresses one megabyte of text with zlib at level 1. Returns the compressed size.
pub fn work() -> usize {
    let mut rng = fastrand::Rng::with_seed(1);
    let text: Vec<u8> = (0..BYTES).map(|_| b"profiles of threads"[rng.usize(..19)]).collect();
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(1));
    // A vector takes every write.
    encoder.write_all(&text).and_then(|()| encoder.finish()).map_or(0, |out| out.len())
}

/// The CPU time of the work on this thread, in nanoseconds: the least of some repetitions.
///
/// # Errors
/// The CPU time cannot be read.
pub fn nanos() -> Result<u64, Error> {
    let mut least = u64::MAX;
    for _ in 0..TIMES {
        let before = procfs::thread_cpu()?;
        std::hint::black_box(work());
        let took = procfs::thread_cpu()? - before;
        least = least.min(u64::try_from(took.as_nanos())?);
    }
    Ok(least)
}

/// [`nanos`] of a process of its own on the core of what is measured.
///
/// # Errors
/// The process fails.
pub fn on_target_core() -> Result<f64, Error> {
    Ok(children::ask::<u64>(TARGET_CORE, &["calibrate"])? as f64)
}
