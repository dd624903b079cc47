//! The open descriptors of one process.
//!
//! Everything about a process is read through descriptors that were opened once, so that a process with a reused id can
//! never be mistaken for the old one: descriptors of `/proc/PID` and everything below it stay bound to the process, and
//! one of `/proc/PID/mem` even to its address space. Reads from the latter return 0 bytes once that address space is
//! gone (the kernel's `fs/proc/base.c`, `mem_rw`), which happens when the process ends and when it executes another
//! program; that is how both are noticed.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::os::directory::for_each_number;
use crate::probe::{StatLine, parse_stat};
use crate::runtime::TargetMemory;

/// What happened to a process since its descriptors were opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// The process is alive, and still executes the same program.
    Same,
    /// The process is alive, but executes another program: everything known about its memory is outdated.
    Executed,
    /// The process has ended; it may still be a zombie.
    Exited,
}

/// The open descriptors of one process.
#[derive(Debug)]
pub struct ProcessFiles {
    pid: u32,
    start_ticks: u64,
    directory: OwnedFd,
    task: OwnedFd,
    memory: File,
    maps: File,
}

impl ProcessFiles {
    /// Opens the files of the process that has this id now.
    ///
    /// # Errors
    ///
    /// The kernel's error: `NotFound` if there is no such process, `PermissionDenied` if it may not be traced (opening
    /// `/proc/PID/mem` needs the right to attach), `ESRCH` or `InvalidInput` for a process without memory: a zombie or
    /// a kernel thread.
    pub fn open(pid: u32) -> io::Result<Self> {
        let process = nix::fcntl::open(
            format!("/proc/{pid}").as_str(),
            OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        let task = open_at(&process, "task", OFlag::O_DIRECTORY)?;
        let stat = read_stat(&process, "stat")?;
        // If the first thread has ended while others are alive, it has no memory to show; another thread is used
        // instead.
        let directory = if stat.state == b'Z' { open_other_thread(&task, pid).unwrap_or(process) } else { process };
        let memory = open_at(&directory, "mem", OFlag::O_RDONLY)?;
        let maps = open_at(&directory, "maps", OFlag::O_RDONLY)?;
        let start_ticks = stat.start_ticks;
        let files = Self { pid, start_ticks, directory, task, memory: File::from(memory), maps: File::from(maps) };
        // The process may have executed another program between the opening of `mem` and of `maps`: both must belong
        // to the same program.
        let mut byte = [0];
        let mapped = files.maps.read_at(&mut byte, 0)?;
        if mapped == 0 || files.alive() != Life::Same {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(files)
    }

    /// The id of the process, in the PID namespace of `/proc`.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When the process started, in clock ticks since the system's start (`/proc/PID/stat`, field 22).
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// `/proc/PID`, for `openat`; if the first thread has ended before the others, `/proc/PID/task/TID` of another
    /// one, which has no `map_files`.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// `/proc/PID/task`, for `openat`.
    pub fn task(&self) -> BorrowedFd<'_> {
        self.task.as_fd()
    }

    /// `/proc/PID/maps`, to be read with `read_at` from 0, since all readers share the position.
    pub fn maps(&self) -> &File {
        &self.maps
    }

    /// What happened to the process.
    pub fn alive(&self) -> Life {
        let mut byte = [0];
        // Address 0 is hardly ever mapped; reading it fails with EIO in a living address space, and returns 0 bytes in
        // a dead one.
        match self.memory.read_at(&mut byte, 0) {
            Ok(0) => self.after_its_memory(),
            Ok(_) => Life::Same,
            Err(_) => Life::Same,
        }
    }

    /// Whether another process now has the id of this one, which has ended.
    pub(crate) fn has_successor(&self) -> bool {
        File::open(format!("/proc/{}", self.pid))
            .and_then(|directory| read_stat(&directory.into(), "stat"))
            .is_ok_and(|stat| stat.start_ticks != self.start_ticks)
    }

    /// Whether a process whose address space is gone executed another program or ended: an exec creates new memory at
    /// once, while an ending process may be without memory for a while before it becomes a zombie.
    fn after_its_memory(&self) -> Life {
        match open_at(&self.task, "../maps", OFlag::O_RDONLY) {
            Ok(maps) => match File::from(maps).read_at(&mut [0], 0) {
                Ok(1..) => Life::Executed,
                _ => Life::Exited,
            },
            // If the new program has other rights (such as a set-user-id program), this process may not be allowed to
            // examine it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => match read_stat(&self.task, "../stat") {
                Ok(stat) if !matches!(stat.state, b'Z' | b'X') => Life::Executed,
                _ => Life::Exited,
            },
            Err(_) => Life::Exited,
        }
    }

    /// Reads as much of the process's memory from `address` on as is readable. Returns the number of bytes, 0 if
    /// nothing is readable; the rest of the buffer is unchanged.
    pub fn read_memory(&self, address: u64, bytes: &mut [u8]) -> usize {
        // The kernel copies page by page and returns how much it copied; an address that is not mapped at all is an
        // error.
        self.memory.read_at(bytes, address).unwrap_or(0)
    }

    /// Another descriptor of the process's memory, bound to the same address space.
    ///
    /// # Errors
    ///
    /// When there are too many descriptors.
    pub fn share_memory(&self) -> io::Result<File> {
        self.memory.try_clone()
    }

    /// The current state letter and parent of the process.
    ///
    /// # Errors
    ///
    /// The error of the system call; `ESRCH` or `NotFound` after the process's end.
    pub fn stat(&self) -> io::Result<StatLine> {
        read_stat(&self.directory, "stat")
    }
}

impl TargetMemory for &ProcessFiles {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.read_memory(address, bytes) == bytes.len()
    }
}

/// Opens a file in a directory.
pub(crate) fn open_at(directory: &OwnedFd, path: &str, flags: OFlag) -> io::Result<OwnedFd> {
    Ok(openat(directory, path, flags | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// The directory of a living thread other than the first.
fn open_other_thread(task: &OwnedFd, first: u32) -> Option<OwnedFd> {
    let mut found = None;
    for_each_number(task.as_fd(), |thread| {
        if thread == first || found.is_some() {
            return;
        }
        let opened = open_at(task, &thread.to_string(), OFlag::O_DIRECTORY);
        let lives =
            |directory: &OwnedFd| read_stat(directory, "stat").is_ok_and(|stat| !matches!(stat.state, b'Z' | b'X'));
        found = opened.ok().filter(lives);
    })
    .ok()?;
    found
}

fn read_stat(directory: &OwnedFd, path: &str) -> io::Result<StatLine> {
    let file = File::from(open_at(directory, path, OFlag::O_RDONLY)?);
    // The longest line has about 50 numbers of at most 20 digits, and a name.
    let mut buffer = [0; 2048];
    let length = file.read_at(&mut buffer, 0)?;
    parse_stat(&buffer[..length]).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unreadable /proc/PID/stat"))
}
