//! The control group of a process, so that events can be limited to it.
//!
//! Only version 2 is supported: there every process is in exactly one group, and the kernel counts a group's processor
//! time no matter which controllers are enabled (Documentation/admin-guide/cgroup-v2.rst).

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::discover::{read_at_most, text};

/// How many bytes of each file are read at most.
const FILE: usize = 64 << 10;

/// A control group, by its open folder.
#[derive(Debug, Clone)]
pub(crate) struct ControlGroup {
    /// The path of the group's folder. Two groups with the same path are the same group.
    path: PathBuf,
    folder: Arc<File>,
}

impl PartialEq for ControlGroup {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

/// The control group of a process. A process can be moved at any time.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    /// The group's name in `/proc/PID/cgroup`; `None` until it was read, and if the kernel reports none.
    name: Option<String>,
    group: Option<ControlGroup>,
}

impl Membership {
    /// The group; `None` if it is the root group, which contains everything, or if this process cannot see it.
    pub(crate) fn group(&self) -> Option<&ControlGroup> {
        self.group.as_ref()
    }

    /// Reads the group of the process with this folder in `/proc`. Returns whether it has changed.
    pub(crate) fn refresh(&mut self, process: BorrowedFd<'_>) -> bool {
        self.refresh_in(process, || {
            let root = File::open("/proc/self").ok()?;
            Some(text(&read_at_most(&root, "mountinfo", FILE).ok()?.0))
        })
    }

    /// The list of mounts can be long, so it is read only after a move.
    fn refresh_in(&mut self, process: BorrowedFd<'_>, mounts: impl FnOnce() -> Option<String>) -> bool {
        let groups = read_at_most(process, "cgroup", FILE).ok().map(|(bytes, _)| text(&bytes));
        let name = groups.as_deref().and_then(name).map(str::to_owned);
        if name == self.name {
            return false;
        }
        self.group = name.as_deref().zip(mounts()).and_then(|(name, mounts)| ControlGroup::open(name, &mounts));
        self.name = name;
        true
    }
}

impl ControlGroup {
    fn open(name: &str, mounts: &str) -> Option<Self> {
        let path = path(name, mounts)?;
        let folder = File::open(&path).ok()?;
        // Every group except the root has this file. In a container, the container's own group is called `/`.
        read_at_most(folder.as_fd(), "cgroup.events", FILE).ok()?;
        Some(Self { path, folder: Arc::new(folder) })
    }

    /// The group's folder.
    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// The processor time of all processes that are or were in the group.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let stat = text(&read_at_most(self.folder(), "cpu.stat", FILE).ok()?.0);
        let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(Duration::from_micros(micros.trim().parse().ok()?))
    }
}

/// The kernel's name for a process's group, from its `cgroup` file (cgroups(7)).
fn name(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// The folder of a group, from this process's `mountinfo` (proc_pid_mountinfo(5)).
fn path(name: &str, mounts: &str) -> Option<PathBuf> {
    let group = Path::new(name);
    // A name outside of the visible namespace (`/../...`) has no mounted folder.
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

    impl Membership {
        /// For tests: a membership of the group with this folder.
        pub(crate) fn at(path: &Path) -> Self {
            Self { name: None, group: Some(ControlGroup::at(path)) }
        }
    }

    impl ControlGroup {
        /// For tests: the group with this folder.
        pub(crate) fn at(path: &Path) -> Self {
            Self { path: path.to_owned(), folder: Arc::new(File::open(path).unwrap()) }
        }

        /// The path of the folder of the group with this name.
        pub(crate) fn path_of(name: &str) -> Option<PathBuf> {
            path(name, &std::fs::read_to_string("/proc/self/mountinfo").unwrap())
        }
    }

    /// Guarantees: the group is found where version 2 is mounted; none is found if its name leads out of the visible
    /// namespace, or if version 2 is not mounted.
    #[test]
    fn paths() {
        let mounts = "22 1 0:1 / / rw - ext4 /dev/root rw\n30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        let of = |groups, mounts| path(name(groups)?, mounts).map(|path| path.to_str().unwrap().to_owned());
        let found = |groups| of(groups, mounts);
        assert_eq!(found("0::/system.slice/x.service\n").as_deref(), Some("/sys/fs/cgroup/system.slice/x.service"));
        assert_eq!(found("3:cpu:/other\n0::/\n").as_deref(), Some("/sys/fs/cgroup/"));
        assert_eq!(found("0::/../other\n"), None);
        assert_eq!(found("3:cpu:/other\n"), None);
        assert_eq!(of("0::/x\n", "30 22 0:26 / /sys/fs/cgroup rw - cgroup cgroup rw,cpu\n"), None);
    }

    /// Guarantees: a process that is moved is found in its new group, and the list of mounts is read only after a move;
    /// if it is moved out of the visible namespace, it has no group.
    #[test]
    fn moved_processes() {
        let place = std::env::temp_dir().join(format!("profbridge-groups-{}", std::process::id()));
        let mounts = || Some(format!("30 22 0:26 / {} rw - cgroup2 cgroup2 rw\n", place.display()));
        for group in ["a", "b"] {
            std::fs::create_dir_all(place.join(group)).unwrap();
            std::fs::write(place.join(group).join("cgroup.events"), "populated 1\n").unwrap();
        }
        let process = File::open(&place).unwrap();
        let be_in = |line: &str| std::fs::write(place.join("cgroup"), line).unwrap();
        let mut membership = Membership::default();
        for (line, found) in [
            ("3:cpu:/a\n0::/a\n", Some("a")),
            ("0::/b\n", Some("b")),
            ("0::/\n", None),
            ("0::/a\n", Some("a")),
            ("", None),
        ] {
            be_in(line);
            assert!(membership.refresh_in(process.as_fd(), mounts), "{line}");
            let group = membership.group().map(|group| group.path.clone());
            assert_eq!(group, found.map(|found| place.join(found)), "{line}");
            assert!(!membership.refresh_in(process.as_fd(), || panic!("it was not moved")), "{line}");
        }
        std::fs::remove_dir_all(&place).unwrap();
    }
}
