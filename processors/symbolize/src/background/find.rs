//! Finds a file on this machine, through the processes that have it mapped.
//!
//! What a profile says about its process is a claim that anybody can make, so it only decides where to look: a file is
//! taken only if it has the id of the mapping. Nothing is opened that a symbolic link could have chosen: paths are
//! resolved inside of the process's root, and a path is a descriptor without rights (`O_PATH`) until it was seen that
//! it is a regular file (opening a device or a pipe may have effects, or block).

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use profbridge_symbolizer::{open_in_root, open_on_this_machine};

use super::identify;
use crate::config::Settings;
use crate::names::{MappedFile, Process};

/// Memory maps are read up to here, in bytes.
const MAX_MAPS: u64 = 16 << 20;

/// So many mappings with a file's name are tried in one process.
const MAX_TRIES: usize = 8;

/// A file that has the right id.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) file: File,
    /// The root folder of its process.
    pub(super) root: File,
    pub(super) path: String,
}

/// Finds files.
#[derive(Debug)]
pub(super) struct Finder {
    processes: bool,
    fuse: bool,
    /// What this machine is called.
    hosts: Vec<String>,
}

impl Finder {
    /// Asks the machine for its names.
    pub(super) fn new(settings: &Settings) -> Self {
        let name = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let own = ["/proc/sys/kernel/hostname", "/etc/machine-id"].into_iter().filter_map(name);
        let hosts = settings.host_names.iter().cloned().chain(own).collect();
        Self { processes: settings.processes, fuse: settings.symbolizer.fuse, hosts }
    }

    /// Finds a file.
    pub(super) fn find(&self, file: &MappedFile) -> Option<Found> {
        if !self.processes {
            return None;
        }
        file.processes.iter().filter(|process| self.is_here(process)).find_map(|process| {
            let by_pid = process.pid.and_then(|pid| self.in_process(file, process, pid));
            // The process may have ended. Without its root, a container's path means nothing.
            by_pid.or_else(|| if process.contained { None } else { self.at_executable(file, process, Path::new("/")) })
        })
    }

    /// Whether a process may be one of this machine: its host says so or, where it names none, its sender is.
    fn is_here(&self, process: &Process) -> bool {
        if !process.hosts.is_empty() {
            return process.hosts.iter().any(|host| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)));
        }
        match process.peer.as_deref().map(str::parse::<IpAddr>) {
            Some(Ok(address)) => address.to_canonical().is_loopback(),
            // No sender, or one that is no machine: a file.
            Some(Err(_)) | None => true,
        }
    }

    fn in_process(&self, file: &MappedFile, process: &Process, pid: u32) -> Option<Found> {
        let folder = format!("/proc/{pid}");
        let root = format!("{folder}/root");
        if let Some(found) = self.at_executable(file, process, Path::new(&root)) {
            return Some(found);
        }
        let maps = BufReader::new(File::open(format!("{folder}/maps")).ok()?.take(MAX_MAPS));
        let mut tries = 0;
        for line in maps.split(b'\n') {
            let Some((range, path)) = line.ok().and_then(|line| mapping(&line)) else { continue };
            if Path::new(&path).file_name() != Path::new(&*file.filename).file_name() {
                continue;
            }
            tries += 1;
            if tries > MAX_TRIES {
                break;
            }
            let taken = |opened: Option<File>| opened.filter(|opened| identify::is(opened, &file.id));
            // The link leads to the file that is mapped, even where another one has its name by now or none has. It
            // needs a right that the path does not need.
            let link = format!("{folder}/map_files/{range}");
            let opened = taken(open_on_this_machine(Path::new(&link), self.fuse).ok());
            let root = root_folder(Path::new(&root))?;
            let opened = opened.or_else(|| taken(open_in_root(&root, Path::new(&path), self.fuse).ok()));
            if let Some(file) = opened {
                return Some(Found { file, root, path });
            }
        }
        None
    }

    /// The process's executable, if that is the file.
    fn at_executable(&self, file: &MappedFile, process: &Process, root: &Path) -> Option<Found> {
        let path = process.executable.as_deref().filter(|path| path.starts_with('/'))?;
        if !file.filename.is_empty() && Path::new(path).file_name() != Path::new(&*file.filename).file_name() {
            return None;
        }
        let root = root_folder(root)?;
        let opened = open_in_root(&root, Path::new(path), self.fuse).ok();
        let opened = opened.filter(|opened| identify::is(opened, &file.id))?;
        Some(Found { file: opened, root, path: path.to_owned() })
    }
}

/// Range and path of a line of `/proc/PID/maps`: `START-END PERMS OFFSET DEVICE INODE PATH` (`proc_pid_maps(5)`).
fn mapping(line: &[u8]) -> Option<(String, String)> {
    let line = std::str::from_utf8(line).ok()?;
    let path = &line[line.find('/')?..];
    let range = line.split(' ').next()?;
    Some((range.to_owned(), path.strip_suffix(" (deleted)").unwrap_or(path).to_owned()))
}

/// The root folder of a process, good for resolving paths in it only.
fn root_folder(path: &Path) -> Option<File> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(AT_FDCWD, path, flags, Mode::empty()).ok().map(File::from)
}

#[cfg(test)]
mod tests;
