//! The threads of a process, and the open descriptors of each.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{Mode, fstat};

use crate::os::directory::for_each_number;
use crate::os::time::thread_cpu;
use crate::probe::{Activity, ProcessorTicks, SchedStat, read_processor_ticks, read_schedstat, read_syscall};
use crate::process_info::{self, StatusFile};

/// How often the threads are listed again although there is no sign of a change.
const SAFETY_RESCAN: Duration = Duration::from_secs(5);

/// A listing is followed by a pause of this many times the CPU time that it took. Only CPU time counts: time in which
/// this thread was not running must not delay the next listing.
const RESCAN_SHARE: u32 = 40;

/// A file that is kept open, or opened for each read if there are no descriptors left.
#[derive(Debug, Default)]
struct TaskDirectory(Option<File>);

impl TaskDirectory {
    fn with<T>(
        &mut self,
        task: BorrowedFd<'_>,
        path: impl FnOnce() -> String,
        read: impl FnOnce(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        if let Some(file) = &self.0 {
            return read(file);
        }
        let file = open(task, &path())?;
        let result = read(&file);
        // The last descriptors are reserved for perf events and the rest of the program.
        if file.as_raw_fd() < DESCRIPTORS.files {
            self.0 = Some(file);
        }
        result
    }
}

/// Descriptors below these numbers may be kept open: for files, and for perf events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Descriptors {
    files: i32,
    events: i32,
}

static DESCRIPTORS: LazyLock<Descriptors> =
    LazyLock::new(|| Descriptors::within(getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft)));

impl Descriptors {
    /// All but 512 descriptors, or half of them if there are few, may be files that are kept open; half of the rest is
    /// for perf events only, since a file can also be opened for each read.
    fn within(limit: u64) -> Self {
        let up_to = |others: u64| i32::try_from(limit - others).unwrap_or(i32::MAX);
        Self { files: up_to((limit / 2).min(512)), events: up_to((limit / 4).min(256)) }
    }
}

/// Whether the descriptor of an event may have this number: the last numbers are reserved for the rest of the program.
pub(crate) fn is_for_an_event(descriptor: i32) -> bool {
    descriptor < DESCRIPTORS.events
}

fn open(task: BorrowedFd<'_>, path: &str) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    Ok(File::from(openat(task, path, flags, Mode::empty())?))
}

/// The descriptors of one thread.
#[derive(Debug)]
pub(crate) struct ThreadFiles {
    /// The thread's id in the PID namespace of `/proc`.
    pub(crate) id: u32,
    schedstat: TaskDirectory,
    has_schedstat: bool,
    syscall: TaskDirectory,
    stat: TaskDirectory,
}

impl ThreadFiles {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id,
            schedstat: TaskDirectory::default(),
            has_schedstat: true,
            syscall: TaskDirectory::default(),
            stat: TaskDirectory::default(),
        }
    }

    /// Reads the thread's schedstat; all 0 on a kernel without schedstat.
    ///
    /// # Errors
    ///
    /// See [`is_end`].
    pub(crate) fn schedstat(&mut self, task: BorrowedFd<'_>) -> io::Result<SchedStat> {
        if !self.has_schedstat {
            return Ok(SchedStat::default());
        }
        let id = self.id;
        let result = self.schedstat.with(task, || format!("{id}/schedstat"), read_schedstat);
        match result {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                // Either the thread is gone, in which case this open fails, or the kernel lacks CONFIG_SCHED_INFO.
                open(task, &format!("{id}/syscall"))?;
                self.has_schedstat = false;
                Ok(SchedStat::default())
            }
            result => result,
        }
    }

    /// Reads what the thread is doing.
    ///
    /// # Errors
    ///
    /// See [`is_end`].
    pub(crate) fn activity(&mut self, task: BorrowedFd<'_>) -> io::Result<Activity> {
        let id = self.id;
        self.syscall.with(task, || format!("{id}/syscall"), read_syscall)
    }

    /// Reads how much CPU time the thread has used, in its own code and in the kernel.
    ///
    /// # Errors
    ///
    /// See [`is_end`].
    pub(crate) fn processor_ticks(&mut self, task: BorrowedFd<'_>) -> io::Result<ProcessorTicks> {
        let id = self.id;
        self.stat.with(task, || format!("{id}/stat"), read_processor_ticks)
    }

    /// The thread's name, at most 15 bytes; invalid UTF-8 is replaced.
    pub(crate) fn name(&self, task: BorrowedFd<'_>) -> Option<String> {
        let file = open(task, &format!("{}/comm", self.id)).ok()?;
        let mut buffer = [0; 64];
        let length = file.read_at(&mut buffer, 0).ok()?;
        let name = buffer[..length].strip_suffix(b"\n").unwrap_or(&buffer[..length]);
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Reads the thread's `status` file.
    pub(crate) fn status(&self, task: BorrowedFd<'_>) -> Option<StatusFile> {
        process_info::status(task, &format!("{}/status", self.id)).ok()
    }
}

/// Whether a read error means that the thread has ended.
pub(crate) fn is_end(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT | libc::EINVAL))
}

/// Lists the threads of a process whenever they may have changed.
#[derive(Debug)]
pub(crate) struct ThreadLister {
    links: u64,
    not_before: Instant,
    latest: Instant,
}

impl ThreadLister {
    pub(crate) fn new(now: Instant) -> Self {
        Self { links: 0, not_before: now, latest: now }
    }

    /// Called when a thread is known to have ended: the threads are listed again as soon as the pause between listings
    /// allows it.
    pub(crate) fn invalidate(&mut self) {
        self.links = 0;
    }

    /// The ids of all threads in ascending order, if they may have changed.
    ///
    /// The link count of `/proc/PID/task` is the number of threads plus two, which is cheap to read.
    ///
    /// # Errors
    ///
    /// If the process is gone.
    pub(crate) fn threads<'a>(
        &mut self,
        task: BorrowedFd<'_>,
        now: Instant,
        ids: &'a mut Vec<u32>,
    ) -> Result<Option<&'a [u32]>, Errno> {
        if now < self.not_before {
            return Ok(None);
        }
        #[allow(clippy::useless_conversion, reason = "its type depends on the architecture")]
        let links = u64::from(fstat(task)?.st_nlink);
        if links == self.links && now < self.latest {
            return Ok(None);
        }
        ids.clear();
        let before = thread_cpu();
        for_each_number(task, |id| ids.push(id))
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
        ids.sort_unstable();
        self.links = links;
        self.not_before = now + thread_cpu().saturating_sub(before) * RESCAN_SHARE;
        self.latest = now + SAFETY_RESCAN;
        Ok(Some(ids))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// Guarantees: however few descriptors there are, open files leave some for perf events, and both leave some for
    /// the rest of the program.
    #[test]
    fn descriptors() {
        for (limit, files, events) in
            [(64, 32, 48), (1024, 512, 768), (4096, 3584, 3840), (0, 0, 0), (u64::MAX, i32::MAX, i32::MAX)]
        {
            assert_eq!(Descriptors::within(limit), Descriptors { files, events }, "{limit}");
        }
    }

    /// Guarantees: threads that start while a tick is delayed are found by the next one, however long the delay is.
    #[test]
    fn held_up() {
        let task = File::open("/proc/self/task").unwrap();
        // So long ago that the threads are listed anyway: other tests change their number too.
        let begun = Instant::now().checked_sub(SAFETY_RESCAN * 2).unwrap();
        let mut lister = ThreadLister::new(begun);
        let mut ids = Vec::new();
        assert!(lister.threads(task.as_fd(), begun, &mut ids).unwrap().is_some());
        let (ended, wait) = std::sync::mpsc::channel::<()>();
        let (started, id) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            started.send(nix::unistd::gettid()).unwrap();
            wait.recv().ok();
        });
        let id = id.recv().unwrap().as_raw().unsigned_abs();
        let found = lister.threads(task.as_fd(), Instant::now(), &mut ids).unwrap().unwrap();
        assert!(found.contains(&id));
        drop(ended);
        thread.join().unwrap();
    }
}
