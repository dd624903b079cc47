//! The machine: assigns cores, reads Linux's data about processes, and checks whether the machine's speed is constant.

use std::io::Write;
use std::time::Duration;
use std::{fs, io, thread};

use flate2::{Compression, write::ZlibEncoder};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use profbridge_testkit::thread_time::thread_cpu;

use super::Error;

/// The core that the load generator and the sink share.
pub(crate) const HELPERS_CORE: usize = 0;

/// The core of the measured process.
pub(crate) const TARGET_CORE: usize = 1;

/// Pins this thread, and all threads and processes that it starts from now on, to one core.
pub(crate) fn pin(core: usize) -> Result<(), Error> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &cores)?)
}

/// Runs `work` on a thread pinned to `core`.
pub(crate) fn on<T: Send + 'static>(
    core: usize,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let thread = thread::spawn(move || pin(core).and_then(|()| work()));
    thread.join().map_err(|_| "a thread panicked")?
}

/// Measures the speed of the machine: returns the minimum CPU time, in nanoseconds, of a constant piece of work over
/// several repetitions. If it increases, the machine has become slower.
pub(crate) fn calibrate() -> Result<f64, Error> {
    let mut least = Duration::MAX;
    for _ in 0..12 {
        let before = thread_cpu()?;
        std::hint::black_box(calibrator());
        least = least.min(thread_cpu()? - before);
    }
    Ok(least.as_nanos() as f64)
}

/// Compresses one megabyte of text with zlib at level 1. Returns the compressed size.
fn calibrator() -> usize {
    let mut rng = fastrand::Rng::with_seed(1);
    let text: Vec<u8> = (0..1 << 20).map(|_| b"profiles of threads"[rng.usize(..19)]).collect();
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(1));
    // Writing to a vector cannot fail.
    encoder.write_all(&text).and_then(|()| encoder.finish()).map_or(0, |out| out.len())
}

/// One tick of `/proc/PID/stat` (`USER_HZ`): 10 ms on every architecture that Linux runs on today.
const TICK: Duration = Duration::from_millis(10);

fn odd(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("cannot read {what}"))
}

/// Returns the CPU time of all threads of a process, ended ones included, with a resolution of 10 ms. The kernel scales
/// it to the exact run time, so it does not depend on which thread ran at a tick (`kernel/sched/cputime.c`).
pub(crate) fn cpu(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    ticks(&stat).map(|ticks| TICK * ticks).ok_or_else(|| odd("/proc/PID/stat"))
}

/// Returns the sum of user and system time in a line of `/proc/PID/stat`, in ticks. The name in it may contain any
/// characters.
fn ticks(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u32>().ok();
    Some(next()? + next()?)
}

/// Returns the CPU time of the threads of a process and of its descendants, in nanoseconds. A thread's time is updated
/// when it leaves its core. Requires a kernel with `CONFIG_SCHED_INFO`.
pub(crate) fn exact_cpu(pid: u32) -> io::Result<Duration> {
    let mut all = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?.path();
        // A thread that ended meanwhile is not counted.
        let Ok(text) = fs::read_to_string(thread.join("schedstat")) else { continue };
        let nanos = text.split_ascii_whitespace().next().and_then(|nanos| nanos.parse().ok());
        all += nanos.map(Duration::from_nanos).ok_or_else(|| odd("/proc/PID/task/TID/schedstat"))?;
        let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
        for child in children.split_ascii_whitespace().filter_map(|child| child.parse().ok()) {
            all += exact_cpu(child).unwrap_or_default();
        }
    }
    Ok(all)
}

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryUse {
    /// The current resident memory.
    pub(crate) resident: u64,
    /// The peak resident memory.
    pub(crate) peak: u64,
}

/// The memory of a process.
pub(crate) fn memory(pid: u32) -> io::Result<MemoryUse> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let of = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    };
    match (of("VmRSS:"), of("VmHWM:")) {
        (Some(resident), Some(peak)) => Ok(MemoryUse { resident, peak }),
        _ => Err(odd("/proc/PID/status")),
    }
}
