//! Finds a file on this machine through the processes that map it.
//!
//! A profile's claims about its process are not trustworthy, so they only decide where to search: a file is accepted
//! only if it has the id of the mapping. A symbolic link must not lead to another file, so paths are resolved inside
//! the process's root. A path is opened as a descriptor without rights (`O_PATH`) until it is known to be a regular
//! file, since opening a device or a pipe may have side effects or block.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use profbridge_symbolizer::{open_in_root, open_on_this_machine};

use super::identify;
use crate::config::Settings;
use crate::names::{MappedFile, MappingProcess};

/// The maximum number of bytes of a process's memory map that are read.
const MAX_MAPS: u64 = 16 << 20;

/// The maximum number of mappings with the file's name that are tried in one process.
const MAX_TRIES: usize = 8;

/// A file that was verified to have the right id.
#[derive(Debug)]
pub(super) struct VerifiedFile {
    pub(super) file: File,
    /// Root folder of the process.
    pub(super) root: File,
    pub(super) path: String,
}

/// Finds files.
#[derive(Debug)]
pub(super) struct Finder {
    processes: bool,
    fuse: bool,
    /// Names and ids of this machine.
    hosts: Vec<String>,
}

impl Finder {
    /// Determines the names of this machine.
    pub(super) fn new(settings: &Settings) -> Self {
        let name = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let own = ["/proc/sys/kernel/hostname", "/etc/machine-id"].into_iter().filter_map(name);
        let hosts = settings.host_names.iter().cloned().chain(own).collect();
        Self { processes: settings.processes, fuse: settings.symbolizer.fuse, hosts }
    }

    pub(super) fn find(&self, file: &MappedFile) -> Option<VerifiedFile> {
        if !self.processes {
            return None;
        }
        file.processes.iter().filter(|process| self.is_here(process)).find_map(|process| {
            let by_pid = process.pid.and_then(|pid| self.in_process(file, process, pid));
            // The process may have ended. A path inside a container is useless without the container's root.
            by_pid.or_else(|| if process.contained { None } else { self.at_executable(file, process, Path::new("/")) })
        })
    }

    /// Whether a process may run on this machine: by its host attributes or, without any, by its peer.
    fn is_here(&self, process: &MappingProcess) -> bool {
        if !process.hosts.is_empty() {
            return process.hosts.iter().any(|host| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)));
        }
        match process.peer.as_deref().map(str::parse::<IpAddr>) {
            Some(Ok(address)) => address.to_canonical().is_loopback(),
            // No peer, or a peer that is not a network address, such as a file.
            Some(Err(_)) | None => true,
        }
    }

    fn in_process(&self, file: &MappedFile, process: &MappingProcess, pid: u32) -> Option<VerifiedFile> {
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
            let taken = |opened: Option<File>| opened.filter(|opened| identify::has_id(opened, &file.id));
            // This link leads to the mapped file even if the file was replaced or deleted. It needs more privileges
            // than the path.
            let link = format!("{folder}/map_files/{range}");
            let opened = taken(open_on_this_machine(Path::new(&link), self.fuse).ok());
            let root = root_folder(Path::new(&root))?;
            let opened = opened.or_else(|| taken(open_in_root(&root, Path::new(&path), self.fuse).ok()));
            if let Some(file) = opened {
                return Some(VerifiedFile { file, root, path });
            }
        }
        None
    }

    /// The process's executable, if that is the file.
    fn at_executable(&self, file: &MappedFile, process: &MappingProcess, root: &Path) -> Option<VerifiedFile> {
        let path = process.executable.as_deref().filter(|path| path.starts_with('/'))?;
        if !file.filename.is_empty() && Path::new(path).file_name() != Path::new(&*file.filename).file_name() {
            return None;
        }
        let root = root_folder(root)?;
        let opened = open_in_root(&root, Path::new(path), self.fuse).ok();
        let opened = opened.filter(|opened| identify::has_id(opened, &file.id))?;
        Some(VerifiedFile { file: opened, root, path: path.to_owned() })
    }
}

/// Range and path from a line of `/proc/PID/maps`: `START-END PERMS OFFSET DEVICE INODE PATH` (`proc_pid_maps(5)`).
fn mapping(line: &[u8]) -> Option<(String, String)> {
    let line = std::str::from_utf8(line).ok()?;
    let path = &line[line.find('/')?..];
    let range = line.split(' ').next()?;
    Some((range.to_owned(), path.strip_suffix(" (deleted)").unwrap_or(path).to_owned()))
}

/// The root folder of a process, as a descriptor that can only be used to resolve paths.
fn root_folder(path: &Path) -> Option<File> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(AT_FDCWD, path, flags, Mode::empty()).ok().map(File::from)
}

#[cfg(test)]
mod tests;
