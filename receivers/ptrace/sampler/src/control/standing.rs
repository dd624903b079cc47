//! Finds out what keeps a process from being sampled although it is permitted: it is stopped, frozen, traced by another
//! process, or dead.

use std::fs::{self, File};

use crate::control::Control;
use crate::discover::{control_group, read_at_most, text};
use crate::message::{ProblemKind, ProcessId};
use crate::probe::parse_stat;
use crate::process_files::ProcessFiles;
use crate::process_info;

impl Control {
    /// Reports why an attached process cannot be sampled, once for each reason. Sampling continues as soon as the
    /// reason is gone.
    pub(super) fn look_at_standing(&mut self, process: ProcessId) {
        let Some(attached) = self.attached.get(&process) else { return };
        let (target, pid) = (attached.target, attached.pid);
        for (kind, message) in hindrances(&attached.files, self.own.owner()) {
            self.report(target, Some(pid), kind, message);
        }
    }
}

fn hindrances(files: &ProcessFiles, owner: u32) -> Vec<(ProblemKind, String)> {
    let pid = files.pid();
    let mut hindrances = Vec::new();
    if files.stat().is_ok_and(|stat| stat.state == b'T') {
        let message = format!(
            "process {pid} is stopped by a signal and stays so: nothing of it runs until it continues (`kill -CONT {pid}`)"
        );
        hindrances.push((ProblemKind::Stopped, message));
    }
    let tracer = process_info::status(files.directory(), "status").map_or(0, |status| status.tracer);
    // Our own tracers do not count: the sampling thread while it has a thread stopped, and a thread of the owner while
    // it holds a command at its first instruction.
    let is_thread_of = |process: &str| fs::exists(format!("/proc/{process}/task/{tracer}")).unwrap_or(false);
    if tracer != 0 && !is_thread_of("self") && !is_thread_of(&owner.to_string()) {
        let message = format!(
            "process {pid} is traced by process {tracer} (a debugger, or another profiler): blocked threads are sampled, running ones are not"
        );
        hindrances.push((ProblemKind::Traced, message));
    }
    let groups = read_at_most(files.directory(), "cgroup", 64 << 10).unwrap_or_default().0;
    if is_frozen(&text(&groups)) {
        let message = format!("process {pid} is in a frozen control group: nothing of it runs until that is thawed");
        hindrances.push((ProblemKind::Frozen, message));
    }
    hindrances
}

/// Whether a process with this `/proc/PID/cgroup` is frozen. A group also counts as frozen if a group above it is.
fn is_frozen(groups: &str) -> bool {
    let unified = control_group::paths(groups).first().copied().unwrap_or("/");
    let events = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .find_map(|mount| read_group_file(&format!("{mount}{unified}/cgroup.events")));
    if events.is_some_and(|events| events.lines().any(|line| line == "frozen 1")) {
        return true;
    }
    let Some(path) = control_group::of_controller(groups, "freezer") else { return false };
    read_group_file(&format!("/sys/fs/cgroup/freezer{path}/freezer.state"))
        .is_some_and(|state| matches!(state.trim(), "FROZEN" | "FREEZING"))
}

fn read_group_file(path: &str) -> Option<String> {
    let (folder, name) = path.rsplit_once('/')?;
    let folder = File::open(folder).ok()?;
    Some(text(&read_at_most(&folder, name, 4096).ok()?.0))
}

/// The message for a process that is a zombie.
pub(super) fn zombie(directory: &File, pid: u32) -> Option<String> {
    let (stat, _) = read_at_most(directory, "stat", 4096).ok()?;
    let stat = parse_stat(&stat)?;
    if stat.state != b'Z' {
        return None;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    // The main thread has ended but others are still running: they are sampled, or something else prevents that.
    if threads > 1 {
        return None;
    }
    Some(format!(
        "process {pid} is a zombie: it ended, and its parent (process {}) did not take notice so far",
        stat.parent
    ))
}
