//! Describes processes for the owner.
//!
//! Everything is read through the open directory of the process, so that it cannot be about another process with the
//! same id. The environment is read only here, and only variables that were requested by name leave this module.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use hmac_sha256::Hash;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{Mode, fstat, fstatat};
use nix::unistd::{SysconfVar, sysconf};

use crate::discover::{container, control_group, read_at_most, text};
use crate::message::{Process, ProcessId, TargetId};
use crate::process_files::ProcessFiles;
use crate::protocol::{MAX_ARGUMENTS, MAX_ENVIRONMENT};

/// How much of an environment is searched, in bytes: the kernel allows 6 MiB for arguments and environment together.
const SEARCHED_ENVIRONMENT: usize = 1 << 20;

/// How much of other files is read, in bytes.
const FILE: usize = 64 << 10;

/// The fields needed of `/proc/PID/status`, or of a thread's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StatusFile {
    /// The process id; in a thread's file, the id of its process.
    pub(crate) process: u32,
    /// The id of the process's parent.
    pub(crate) parent: u32,
    /// Whether the process or thread has ended and was not reaped yet.
    pub(crate) ended: bool,
    /// The thread that traces the process, 0 for none.
    pub(crate) tracer: u32,
    /// The effective user.
    pub(crate) user: u32,
    /// The id in the innermost PID namespace.
    pub(crate) namespace_pid: u32,
}

/// Reads a `status` file: that of a process, in its directory, or that of a thread, by its path from there.
///
/// # Errors
///
/// The error of the system call.
pub(crate) fn status(directory: BorrowedFd<'_>, path: &str) -> io::Result<StatusFile> {
    let (bytes, _) = read_at_most(directory, path, FILE)?;
    Ok(parse_status(&text(&bytes)))
}

fn parse_status(text: &str) -> StatusFile {
    let mut status = StatusFile::default();
    for line in text.lines() {
        let Some((name, values)) = line.split_once(':') else { continue };
        if name == "State" {
            status.ended = values.trim_start().starts_with('Z');
        }
        let mut values = values.split_ascii_whitespace().map(|value| value.parse().unwrap_or(0));
        match name {
            "PPid" => status.parent = values.next().unwrap_or(0),
            "Tgid" => status.process = values.next().unwrap_or(0),
            "TracerPid" => status.tracer = values.next().unwrap_or(0),
            // The four ids are the real, effective, saved and file system ones.
            "Uid" => status.user = values.nth(1).unwrap_or(0),
            // One id for each namespace, from the outermost visible one to the innermost.
            "NSpid" => status.namespace_pid = values.next_back().unwrap_or(0),
            _ => {}
        }
    }
    status
}

/// The boot time of the system: start times are relative to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootClock {
    boot_seconds: u64,
    ticks_per_second: u64,
    /// A random number of this boot: `/proc/sys/kernel/random/boot_id` (proc_sys_kernel(5)), 36 characters. Zeros if
    /// it is not readable.
    boot_id: [u8; 36],
}

impl BootClock {
    /// Reads the boot time. As in `ps`, it is rounded to whole seconds, so that every program computes the same start
    /// time.
    ///
    /// # Errors
    ///
    /// When `/proc/stat` does not contain the boot time.
    pub(crate) fn read() -> io::Result<Self> {
        let root = File::open("/proc")?;
        // The line `intr` precedes the line `btime` and may be long.
        let (bytes, _) = read_at_most(&root, "stat", 4 << 20)?;
        let boot_seconds = text(&bytes)
            .lines()
            .find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no btime"))?;
        let ticks = sysconf(SysconfVar::CLK_TCK)?.and_then(|ticks| u64::try_from(ticks).ok());
        let (id, _) = read_at_most(&root, "sys/kernel/random/boot_id", 36).unwrap_or_default();
        let mut boot_id = [0; 36];
        boot_id[..id.len()].copy_from_slice(&id);
        Ok(Self { boot_seconds, ticks_per_second: ticks.filter(|ticks| *ticks > 0).unwrap_or(100), boot_id })
    }

    /// Converts ticks since boot to nanoseconds since the Unix epoch.
    pub(crate) fn unix_nano(self, ticks: u64) -> u64 {
        let nano = u128::from(self.boot_seconds) * 1_000_000_000
            + u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks_per_second);
        u64::try_from(nano).unwrap_or(0)
    }
}

/// The description of a process, and the parts of it that are malformed or too long.
pub(crate) struct Described {
    pub(crate) process: Process,
    pub(crate) faults: Vec<String>,
}

/// Describes a process for the owner.
///
/// # Errors
///
/// The error of the system call if the process is gone. Unreadable parts are left out.
pub(crate) fn describe(
    files: &ProcessFiles,
    id: ProcessId,
    target: TargetId,
    asked: &[String],
    clock: BootClock,
) -> io::Result<Described> {
    let directory = files.directory();
    let mut faults = Vec::new();
    let status = status(directory, "status")?;
    let (arguments, _) = read_at_most(directory, "cmdline", MAX_ARGUMENTS).unwrap_or_default();
    let groups = read_text(directory, "cgroup");
    let container =
        container::from_control_groups(&groups).or_else(|| container::from_mounts(&read_text(directory, "mountinfo")));
    let executable = readlinkat(directory, "exe").map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let environment = if asked.is_empty() { Vec::new() } else { environment(directory, asked, &mut faults) };
    let executable = executable.strip_suffix(" (deleted)").unwrap_or(&executable);
    let arguments = split_arguments(&arguments);
    let root = openat(directory, "root", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
    let started = root.as_ref().ok().and_then(|root| started_as(directory, root.as_fd(), executable, &arguments));
    let process = Process {
        id,
        target,
        pid: files.pid(),
        namespace_pid: if status.namespace_pid == 0 { files.pid() } else { status.namespace_pid },
        start_unix_nano: clock.unix_nano(files.start_ticks()),
        exec_id: exec_id(directory, clock.boot_id, files.start_ticks()),
        executable: started.unwrap_or_else(|| executable.to_owned()),
        arguments,
        user: status.user,
        control_group: control_group::name(&groups).map(str::to_owned),
        container,
        environment,
        root: root.ok().map(File::from),
    };
    Ok(Described { process, faults })
}

/// The path of the executable under the name with which the process was started, if that is another link to the same
/// file in the same folder: on Debian `/usr/bin/redis-server` is a link to `redis-check-rdb`, and the kernel shows the
/// latter. The program can claim any name in its arguments and thread names, so a name is used only if it is a link to
/// the same file.
fn started_as(
    directory: BorrowedFd<'_>,
    root: BorrowedFd<'_>,
    executable: &str,
    arguments: &[String],
) -> Option<String> {
    let (folder, own) = executable.rsplit_once('/')?;
    let file = fstatat(directory, "exe", AtFlags::empty()).ok()?;
    let comm = read_text(directory, "comm");
    // Programs that write their status into their arguments keep their name as the first word. A login shell's name
    // begins with a hyphen.
    let argument = arguments.first().and_then(|first| first.split(' ').next());
    for candidate in argument.into_iter().chain([comm.trim_end()]) {
        let name = candidate.rsplit('/').next().unwrap_or(candidate).trim_start_matches('-');
        if name == own {
            return None;
        }
        if name.is_empty() || name == "." || name == ".." {
            continue;
        }
        let path = format!("{folder}/{name}");
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let found = openat2(root, path.as_str(), how).and_then(fstat);
        if found.is_ok_and(|found| (found.st_dev, found.st_ino) == (file.st_dev, file.st_ino)) {
            return Some(path);
        }
    }
    None
}

/// A number that identifies one exec of a process, see [`Process::exec_id`].
///
/// The kernel creates the auxiliary vector in each exec and keeps a copy that the program cannot change
/// (`mm->saved_auxv`). It contains random addresses: those of the program, its loader, the vDSO and the random bytes
/// on its stack (`AT_PHDR`, `AT_BASE`, `AT_SYSINFO_EHDR`, `AT_RANDOM`; getauxval(3)). The random bytes themselves are
/// not used: programs may overwrite them, and Go's do when they start (`runtime/rand.go`, `randinit`). If a process is
/// started without address space randomization, another exec of the same program with arguments of the same length
/// gets the same number.
///
/// The number is a one-way hash, since these addresses must stay secret: a target's protection against attacks relies
/// on that.
fn exec_id(directory: BorrowedFd<'_>, boot_id: [u8; 36], start_ticks: u64) -> u64 {
    let mut hash = Hash::new();
    hash.update(b"profbridge exec 1\0");
    hash.update(boot_id);
    hash.update(start_ticks.to_le_bytes());
    match read_at_most(directory, "auxv", FILE) {
        Ok((vector, _)) if !vector.is_empty() => hash.update(vector),
        // Use the inode, since the path may change.
        _ => {
            if let Ok(file) = fstatat(directory, "exe", AtFlags::empty()) {
                hash.update(file.st_dev.to_le_bytes());
                hash.update(file.st_ino.to_le_bytes());
            }
        }
    }
    hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn read_text(directory: BorrowedFd<'_>, name: &str) -> String {
    let (bytes, _) = read_at_most(directory.as_fd(), name, FILE).unwrap_or_default();
    text(&bytes)
}

fn split_arguments(bytes: &[u8]) -> Vec<String> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    bytes.split(|byte| *byte == 0).map(text).collect()
}

fn environment(directory: BorrowedFd<'_>, asked: &[String], faults: &mut Vec<String>) -> Vec<(String, String)> {
    let Ok((bytes, more)) = read_at_most(directory, "environ", SEARCHED_ENVIRONMENT) else { return Vec::new() };
    if more {
        faults.push(format!("its environment is longer than {SEARCHED_ENVIRONMENT} bytes, the rest was not read"));
    }
    pick(&bytes, asked)
}

/// The requested variables. If several have the same name, the first one counts, as in getenv(3).
fn pick(bytes: &[u8], asked: &[String]) -> Vec<(String, String)> {
    let mut picked: Vec<(String, String)> = Vec::new();
    for variable in bytes.split(|byte| *byte == 0) {
        let Some(equals) = variable.iter().position(|byte| *byte == b'=') else { continue };
        let (name, value) = (&variable[..equals], &variable[equals + 1..]);
        let Some(name) = asked.iter().find(|asked| asked.as_bytes() == name) else { continue };
        if value.len() <= MAX_ENVIRONMENT && !picked.iter().any(|(picked, _)| picked == name) {
            picked.push((name.clone(), text(value)));
        }
    }
    picked
}

#[cfg(test)]
mod tests;
