//! The ids of threads in PID namespaces.
//!
//! A program knows its threads' ids in its own namespace; chunks use the ids in profbridge's namespace, which the
//! sampler sees.

use std::fs;

use profbridge_sampler::message::Process;

/// The id, in profbridge's namespace, of the thread that has the id `thread` in its own namespace. `None` if the
/// process has no such thread.
pub(super) fn in_our_namespace(process: &Process, thread: u32) -> Option<u32> {
    let tasks = format!("/proc/{}/task", process.pid);
    let is_same = process.namespace_pid == process.pid || process.namespace_pid == 0;
    if is_same {
        return fs::exists(format!("{tasks}/{thread}")).ok().filter(|exists| *exists).map(|_| thread);
    }
    fs::read_dir(&tasks).ok()?.flatten().find_map(|entry| {
        let ours: u32 = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        (innermost(&status)? == thread).then_some(ours)
    })
}

/// The id in the innermost namespace, from a thread's `status` (proc_pid_status(5), `NSpid`).
fn innermost(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, namespace_pid: u32) -> Process {
        Process { pid, namespace_pid, ..Process::default() }
    }

    /// Guarantees: a thread of this process is found by its own id, a thread in another namespace by the id that the
    /// kernel shows, and no other thread is found.
    #[test]
    fn threads_of_this_process() {
        let pid = std::process::id();
        assert_eq!(in_our_namespace(&process(pid, pid), pid), Some(pid));
        assert_eq!(in_our_namespace(&process(pid, pid), 1 << 30), None);
        // Pretends that this process is in another namespace: its threads have a single id, which is the innermost.
        assert_eq!(in_our_namespace(&process(pid, pid + 1), pid), Some(pid));
        assert_eq!(in_our_namespace(&process(pid, pid + 1), 1 << 30), None);
        assert_eq!(innermost("Name:\tx\nNSpid:\t4711\t32\t7\nVmPeak:\t1\n"), Some(7));
        assert_eq!(innermost("Name:\tx\n"), None);
    }
}
