//! Measures the processor time of a thread, which does not depend on other programs on the machine.

use std::time::Duration;
use std::{fs, io, thread};

/// The CPU time of this thread, with a resolution of a microsecond.
///
/// # Errors
/// If the kernel does not measure CPU time (`CONFIG_SCHED_INFO`).
pub fn thread_cpu() -> io::Result<Duration> {
    // The kernel updates the value when the thread leaves its core.
    thread::sleep(Duration::from_nanos(1));
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split_ascii_whitespace().next().and_then(|nanos| nanos.parse().ok());
    nanos.map(Duration::from_nanos).ok_or_else(|| io::Error::other("/proc/thread-self/schedstat says no time"))
}
