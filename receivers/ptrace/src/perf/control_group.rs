//! The control group of a process, for events of what is in it.
//!
//! Only version 2 is looked for: there every process is in exactly one group, and the kernel counts its processor time whatever controllers are
//! on (Documentation/admin-guide/cgroup-v2.rst).

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::discover::{read_at_most, text};

/// What of the files here is read, in bytes.
const FILE: usize = 64 << 10;

/// A control group.
#[derive(Debug, Clone)]
pub(crate) struct ControlGroup {
    /// Where it is mounted: two of one path are the same.
    path: PathBuf,
    folder: Arc<File>,
}

impl PartialEq for ControlGroup {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl ControlGroup {
    /// The group of the process with this folder in `/proc`; `None` where it is in the root, which is no group of its own, or cannot be seen.
    pub(crate) fn of(process: BorrowedFd<'_>) -> Option<Self> {
        let groups = text(&read_at_most(process, "cgroup", FILE).ok()?.0);
        let root = File::open("/proc/self").ok()?;
        let mounts = text(&read_at_most(&root, "mountinfo", FILE).ok()?.0);
        let path = path(&groups, &mounts)?;
        let folder = File::open(&path).ok()?;
        // Only the root has no such file; seen from a container its own group is `/`.
        read_at_most(folder.as_fd(), "cgroup.events", FILE).ok()?;
        Some(Self { path, folder: Arc::new(folder) })
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// The processor time of all that is or was in it.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let stat = text(&read_at_most(self.folder(), "cpu.stat", FILE).ok()?.0);
        let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(Duration::from_micros(micros.trim().parse().ok()?))
    }
}

/// Where a process's group is mounted, by its `cgroup` file and this process's `mountinfo` (cgroups(7), proc_pid_mountinfo(5)).
fn path(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = Path::new(groups.lines().find_map(|line| line.strip_prefix("0::/"))?);
    // What leads out of the namespace that can be seen here is not mounted.
    if !group.components().all(|component| matches!(component, Component::Normal(_))) {
        return None;
    }
    let mount = mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then(|| mount.split(' ').nth(4)).flatten()
    })?;
    Some(Path::new(mount).join(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the group is found where version 2 is mounted, and none where that leads out of what can be seen, or is not mounted at all.
    #[test]
    fn paths() {
        let mounts = "22 1 0:1 / / rw - ext4 /dev/root rw\n30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        let found = |groups| path(groups, mounts).map(|path| path.to_str().unwrap().to_owned());
        assert_eq!(found("0::/system.slice/x.service\n").as_deref(), Some("/sys/fs/cgroup/system.slice/x.service"));
        assert_eq!(found("3:cpu:/other\n0::/\n").as_deref(), Some("/sys/fs/cgroup/"));
        assert_eq!(found("0::/../other\n"), None);
        assert_eq!(found("3:cpu:/other\n"), None);
        assert_eq!(path("0::/x\n", "30 22 0:26 / /sys/fs/cgroup rw - cgroup cgroup rw,cpu\n"), None);
    }
}
