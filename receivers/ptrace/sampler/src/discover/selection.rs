//! Decides whether a process belongs to a target.

use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use nix::fcntl::readlinkat;

use super::{children, container, control_group, pattern, read_at_most, text, wrapper};
use crate::message::Select;
use crate::probe::{StatLine, parse_stat};

/// How many bytes of a command line are matched.
const MATCHED_ARGUMENTS: usize = 128 << 10;

/// The maximum number of children of a process, and of generations, that are examined. `sudo` has a monitor process
/// between itself and the command.
const CHILDREN: (usize, usize) = (16, 4);

/// How much of other files is read, in bytes: a control group's path has at most 4 KiB, and there are about a dozen
/// hierarchies.
const MATCHED_FILE: usize = 64 << 10;

/// A process that may belong to a target. Each of its files is read at most once, through one descriptor of its
/// directory.
#[derive(Debug)]
pub(crate) struct Candidate {
    pid: u32,
    directory: File,
    /// The id of the process's parent when the process was opened.
    pub(crate) parent: u32,
    /// The start time from `/proc/PID/stat`, in clock ticks: together with the id it identifies the process.
    pub(crate) start_ticks: u64,
    executable: OnceCell<Option<String>>,
    command_line: OnceCell<String>,
    control_groups: OnceCell<String>,
    container: OnceCell<Option<String>>,
}

impl Candidate {
    /// Opens the directory of a process. `None` if the process is gone, a kernel thread, or a zombie.
    pub(crate) fn open(pid: u32) -> Option<Self> {
        let directory = File::open(format!("/proc/{pid}")).ok()?;
        let (stat, _) = read_at_most(&directory, "stat", 4096).ok()?;
        let StatLine { state, parent, start_ticks, .. } = parse_stat(&stat)?;
        // Process 2 is the parent of all kernel threads.
        if state == b'Z' || pid == 2 || parent == 2 {
            return None;
        }
        Some(Self {
            pid,
            directory,
            parent,
            start_ticks,
            executable: OnceCell::new(),
            command_line: OnceCell::new(),
            control_groups: OnceCell::new(),
            container: OnceCell::new(),
        })
    }

    /// Whether the selection includes this process. `false` for a target that selects a process by id or starts a
    /// command: those need no search.
    pub(crate) fn is_selected(&self, select: &Select) -> bool {
        match select {
            Select::Pid(_) | Select::Command(_) => false,
            Select::Executable(pattern) => self.is_executable(pattern),
            Select::Name(pattern) => self.is_executable(pattern) || self.is_called(pattern),
            Select::CommandLine(pattern) => {
                let line = self.command_line();
                !line.is_empty() && pattern::contains(pattern, line)
            }
            Select::ControlGroup(path) => control_group::is_within(self.control_groups(), path),
            Select::Container(prefix) => {
                container::is_selection(prefix) && self.container().is_some_and(|id| id.starts_with(prefix.as_str()))
            }
        }
    }

    /// Whether this process is only a wrapper of a child that is meant: a pattern for arguments also matches `timeout`
    /// or a shell, whose command lines contain those of their children. A wrapper is recognized only while its child
    /// runs.
    pub(crate) fn is_wrapper(&self, select: &Select) -> bool {
        matches!(select, Select::CommandLine(_)) && self.wraps(select, CHILDREN.1)
    }

    fn wraps(&self, select: &Select, generations: usize) -> bool {
        let children = children::children(self.pid).into_iter().take(CHILDREN.0).filter_map(Self::open);
        children.filter(|child| child.is_selected(select)).any(|child| {
            wrapper::carries(self.command_line(), child.command_line())
                || (generations > 1
                    && self.command_line() == child.command_line()
                    && child.wraps(select, generations - 1))
        })
    }

    fn is_executable(&self, pattern: &str) -> bool {
        let matches =
            |path: &str| pattern::matches(pattern, if pattern.contains('/') { path } else { wrapper::base_name(path) });
        self.executable().is_some_and(matches)
    }

    /// Whether `ps` shows the process under a matching name. The kernel cuts names after 15 bytes, so the first
    /// argument counts too.
    fn is_called(&self, pattern: &str) -> bool {
        let first = self.command_line().split(' ').next().unwrap_or_default();
        pattern::matches(pattern, self.file("comm").trim_end_matches('\n'))
            || (!first.is_empty() && pattern::matches(pattern, wrapper::base_name(first)))
    }

    /// The id of the process's container.
    pub(crate) fn container(&self) -> Option<&str> {
        let id = self.container.get_or_init(|| {
            container::from_control_groups(self.control_groups())
                .or_else(|| container::from_mounts(&self.file("mountinfo")))
        });
        id.as_deref()
    }

    fn executable(&self) -> Option<&str> {
        let path = self.executable.get_or_init(|| {
            let path = readlinkat(&self.directory, "exe").ok()?;
            let path = path.to_string_lossy();
            Some(path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned())
        });
        path.as_deref()
    }

    fn command_line(&self) -> &str {
        self.command_line.get_or_init(|| {
            let (bytes, _) = read_at_most(&self.directory, "cmdline", MATCHED_ARGUMENTS).unwrap_or_default();
            text(&bytes).trim_end_matches('\0').replace('\0', " ")
        })
    }

    fn control_groups(&self) -> &str {
        self.control_groups.get_or_init(|| self.file("cgroup"))
    }

    fn file(&self, name: &str) -> String {
        let (bytes, _) = read_at_most(&self.directory, name, MATCHED_FILE).unwrap_or_default();
        text(&bytes)
    }
}

/// Whether there is a process now, other than profbridge's own, that [`Select::Name`] selects with this pattern.
#[must_use]
pub fn is_any_named(pattern: &str) -> bool {
    let own = Own::new(std::process::id());
    let select = Select::Name(pattern.to_owned());
    let Ok(entries) = std::fs::read_dir("/proc") else { return false };
    let mut pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.any(|pid| {
        Candidate::open(pid).is_some_and(|candidate| candidate.is_selected(&select))
            && !own.is_program(pid).unwrap_or(false)
    })
}

/// Describes profbridge's own processes, which are never sampled.
#[derive(Debug)]
pub(crate) struct Own {
    /// The owner and this process.
    pids: [u32; 2],
    /// This program's file, by device and inode.
    program: Option<(u64, u64)>,
}

impl Own {
    /// Collects the ids and the file of this program.
    pub(crate) fn new(owner: u32) -> Self {
        let program = std::fs::metadata("/proc/self/exe").ok().map(|file| (file.dev(), file.ino()));
        Self { pids: [owner, std::process::id()], program }
    }

    /// The owner's id.
    pub(crate) fn owner(&self) -> u32 {
        self.pids[0]
    }

    /// Whether the id is that of this process or its owner.
    pub(crate) fn is_pid(&self, pid: u32) -> bool {
        self.pids.contains(&pid)
    }

    /// Whether a process executes this program: another profbridge, or its sampler, which no pattern selects.
    ///
    /// # Errors
    ///
    /// The error of the system call if the process may not be examined.
    pub(crate) fn is_program(&self, pid: u32) -> io::Result<bool> {
        let file = std::fs::metadata(format!("/proc/{pid}/exe"))?;
        Ok(self.program == Some((file.dev(), file.ino())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a live process is selected by each of its properties, and by no wrong one.
    #[test]
    fn selects_this_process() {
        let this = Candidate::open(std::process::id()).unwrap();
        let path = std::env::current_exe().unwrap().to_string_lossy().into_owned();
        let name = path.rsplit('/').next().unwrap().to_owned();
        let group = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let group = control_group::name(&group).unwrap().to_owned();
        assert!(this.is_selected(&Select::Executable(path.clone())));
        assert!(this.is_selected(&Select::Executable(name.clone())));
        assert!(this.is_selected(&Select::Executable(format!("{}*", &name[..4]))));
        assert!(this.is_selected(&Select::CommandLine(name.clone())));
        assert!(this.is_selected(&Select::ControlGroup(group)));
        assert!(!this.is_selected(&Select::Executable(format!("/elsewhere/{name}"))));
        assert!(!this.is_selected(&Select::CommandLine("no such argument".to_owned())));
        assert!(!this.is_selected(&Select::ControlGroup("/no/such/group".to_owned())));
        assert!(!this.is_selected(&Select::Container("0123456789ab".to_owned())));
        assert!(!this.is_selected(&Select::Pid(std::process::id())));
    }

    /// Guarantees: a process is found by its names, but profbridge is not found by its own; a pattern with a slash
    /// matches paths.
    #[test]
    fn names() {
        let script = tempfile::NamedTempFile::with_prefix("a-name-of-its-own").unwrap();
        let name = script.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut child =
            std::process::Command::new("/bin/sleep").arg("60").stdin(std::process::Stdio::null()).spawn().unwrap();
        let candidate = Candidate::open(child.id()).unwrap();
        for (pattern, selected) in
            [("sleep", true), ("sl?ep", true), ("*/sleep", true), ("60", false), ("/sleep", false)]
        {
            assert_eq!(candidate.is_selected(&Select::Name(pattern.to_owned())), selected, "{pattern}");
        }
        assert!(is_any_named("sleep") && !is_any_named(&name));
        child.kill().unwrap();
        child.wait().unwrap();
        let own = std::env::current_exe().unwrap();
        assert!(!is_any_named(own.file_name().unwrap().to_str().unwrap()), "it is profbridge itself here");
        assert_eq!(Candidate::open(std::process::id()).unwrap().parent, std::os::unix::process::parent_id());
    }

    /// Guarantees: processes that are gone, and kernel threads, are not candidates.
    #[test]
    fn no_candidates() {
        assert!(Candidate::open(u32::MAX).is_none());
        assert!(Candidate::open(0).is_none());
        assert!(Candidate::open(2).is_none());
    }

    /// Guarantees: no selection includes profbridge itself.
    #[test]
    fn never_itself() {
        let own = Own::new(1);
        assert!(own.is_pid(1) && own.is_pid(std::process::id()));
        assert!(own.is_program(std::process::id()).unwrap());
        assert!(!own.is_pid(u32::MAX));
    }
}
