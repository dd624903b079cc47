//! The processor time of a thread: what else runs on the machine does not count.

use std::time::Duration;
use std::{fs, io, thread};

/// The CPU time of this thread, to the microsecond.
///
/// # Errors
/// The kernel does not count it (`CONFIG_SCHED_INFO`).
pub fn thread_cpu() -> io::Result<Duration> {
    // The kernel brings the figure up to date when the thread gives up its core.
    thread::sleep(Duration::from_nanos(1));
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split_ascii_whitespace().next().and_then(|nanos| nanos.parse().ok());
    nanos.map(Duration::from_nanos).ok_or_else(|| io::Error::other("/proc/thread-self/schedstat says no time"))
}
