//! Reads the state of a target from `/proc`, independently of the sampler.

use std::{fs, path::Path};

fn status_field(path: &Path, key: &str) -> Option<String> {
    let status = fs::read_to_string(path.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(|value| value.trim().to_owned())
}

/// The folders of a process's threads.
fn threads(pid: u32) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).collect()
}

/// The state letters of a process's threads.
pub(crate) fn states(pid: u32) -> String {
    threads(pid).iter().filter_map(|thread| status_field(thread, "State")?.chars().next()).collect()
}

/// The tracers of a process's threads.
pub(crate) fn tracers(pid: u32) -> Vec<String> {
    threads(pid).iter().filter_map(|thread| status_field(thread, "TracerPid")).filter(|tracer| tracer != "0").collect()
}

/// Whether a process has no stopped or traced thread.
pub(crate) fn is_left_alone(pid: u32) -> bool {
    let states = states(pid);
    !states.is_empty() && !states.contains(['t', 'T']) && tracers(pid).is_empty()
}

/// The system call in which a thread waits.
pub(crate) fn system_call(pid: u32, thread: u32) -> Option<u32> {
    let line = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")).ok()?;
    line.split(' ').next()?.parse().ok()
}

/// User and system time of all threads, in ticks of the kernel.
pub(crate) fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0 };
    rest.split_ascii_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// The processes that a process has started.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let of = |thread: &std::path::PathBuf| fs::read_to_string(thread.join("children")).unwrap_or_default();
    threads(pid)
        .iter()
        .map(of)
        .flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}
