//! What Linux knows of a process: its CPU time and its memory.

use std::{fs, io, time::Duration};

pub use crate::thread_time::thread_cpu;

/// One tick of `/proc/PID/stat` (`USER_HZ`): 10 ms on every architecture that Linux runs on today.
const TICK: Duration = Duration::from_millis(10);

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What is resident now.
    pub resident: u64,
    /// The most that ever was, or was since [`reset_peak`].
    pub peak: u64,
    /// The part of `resident` that is the process's own and not a mapped file.
    pub anonymous: u64,
}

fn odd(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("cannot read {what}"))
}

/// The CPU time of all threads of a process, ended ones included, to 10 ms. The kernel scales it to the exact run
/// time, so it does not depend on what happened to run at a tick (`kernel/sched/cputime.c`).
///
/// # Errors
/// The process is gone.
pub fn cpu(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    ticks(&stat).map(|ticks| TICK * ticks).ok_or_else(|| odd("/proc/PID/stat"))
}

/// The user and system time in a line of `/proc/PID/stat`, in ticks. The name in it may hold anything.
fn ticks(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u32>().ok();
    Some(next()? + next()?)
}

/// The CPU time of the threads that a process has, to the nanosecond, as of the last time each gave up its core.
///
/// # Errors
/// The process is gone, or the kernel does not count it (`CONFIG_SCHED_INFO`).
pub fn exact_cpu(pid: u32) -> io::Result<Duration> {
    let mut all = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that ends meanwhile takes its time with it.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let nanos = text.split_ascii_whitespace().next().and_then(|nanos| nanos.parse().ok());
        all += nanos.map(Duration::from_nanos).ok_or_else(|| odd("/proc/PID/task/TID/schedstat"))?;
    }
    Ok(all)
}

/// The same, together with the processes that it has started.
///
/// # Errors
/// As [`exact_cpu`].
pub fn exact_cpu_with_children(pid: u32) -> io::Result<Duration> {
    let mut all = exact_cpu(pid)?;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        for child in children.split_ascii_whitespace().filter_map(|child| child.parse().ok()) {
            all += exact_cpu_with_children(child).unwrap_or_default();
        }
    }
    Ok(all)
}

/// The memory of a process.
///
/// # Errors
/// The process is gone.
pub fn memory(pid: u32) -> io::Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let of = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    };
    match (of("VmRSS:"), of("VmHWM:"), of("RssAnon:")) {
        (Some(resident), Some(peak), Some(anonymous)) => Ok(Memory { resident, peak, anonymous }),
        _ => Err(odd("/proc/PID/status")),
    }
}

/// Makes the present the peak of a process's memory (`Documentation/filesystems/proc.rst`, `clear_refs`).
///
/// # Errors
/// The process is gone, or belongs to somebody else.
pub fn reset_peak(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a name with spaces and brackets does not shift the fields.
    #[test]
    fn odd_names() {
        assert_eq!(ticks("7 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20"), Some(300));
        assert_eq!(ticks("7 (a) R 1"), None);
    }

    /// Guarantees: what is read of this process is plausible: memory that is touched shows, and work takes time.
    #[test]
    fn this_process() {
        let pid = std::process::id();
        let before = memory(pid).unwrap();
        let touched = vec![1_u8; 32 << 20];
        let after = memory(pid).unwrap();
        assert!(after.resident >= before.resident + (24 << 20), "{before:?} {after:?} {}", touched.len());
        assert!(after.peak >= after.anonymous);

        let before = thread_cpu().unwrap();
        super::super::calibrator::work();
        assert!(thread_cpu().unwrap() > before);
        assert!(cpu(pid).is_ok());
    }
}
