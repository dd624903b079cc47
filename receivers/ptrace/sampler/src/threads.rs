//! The threads of a process, and the kept descriptors of each.

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

/// How often the threads are counted again although nothing shows that some came or went.
const SAFETY_RESCAN: Duration = Duration::from_secs(5);

/// One listing is followed by a pause of this many times the processor time that it took. A listing during which the
/// thread had no processor costs nothing, so it must not delay the next.
const RESCAN_SHARE: u32 = 40;

/// A file that is kept open, or opened for each reading where descriptors have run out.
#[derive(Debug, Default)]
struct Kept(Option<File>);

impl Kept {
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

/// The numbers below which a descriptor is kept open: for files, and for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Descriptors {
    files: i32,
    events: i32,
}

static DESCRIPTORS: LazyLock<Descriptors> =
    LazyLock::new(|| Descriptors::of(getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft)));

impl Descriptors {
    /// All but 512 descriptors, or half of few, may be files that are kept open; half of the rest is for perf events
    /// only, since a file can also be opened each time that it is read.
    fn of(limit: u64) -> Self {
        let up_to = |others: u64| i32::try_from(limit - others).unwrap_or(i32::MAX);
        Self { files: up_to((limit / 2).min(512)), events: up_to((limit / 4).min(256)) }
    }
}

/// Whether the descriptor of an event may have this number: the last ones are reserved for the rest of the program.
pub(crate) fn is_for_an_event(descriptor: i32) -> bool {
    descriptor < DESCRIPTORS.events
}

fn open(task: BorrowedFd<'_>, path: &str) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    Ok(File::from(openat(task, path, flags, Mode::empty())?))
}

/// What is kept of one thread.
#[derive(Debug)]
pub(crate) struct ThreadFiles {
    /// Its id in the PID namespace of `/proc`.
    pub(crate) id: u32,
    schedstat: Kept,
    has_schedstat: bool,
    syscall: Kept,
    stat: Kept,
}

impl ThreadFiles {
    pub(crate) fn new(id: u32) -> Self {
        Self { id, schedstat: Kept::default(), has_schedstat: true, syscall: Kept::default(), stat: Kept::default() }
    }

    /// Its schedstat; all 0 on a kernel without.
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
                // Either the thread is gone, which this open tells, or the kernel lacks CONFIG_SCHED_INFO.
                open(task, &format!("{id}/syscall"))?;
                self.has_schedstat = false;
                Ok(SchedStat::default())
            }
            result => result,
        }
    }

    /// What it does.
    ///
    /// # Errors
    ///
    /// See [`is_end`].
    pub(crate) fn activity(&mut self, task: BorrowedFd<'_>) -> io::Result<Activity> {
        let id = self.id;
        self.syscall.with(task, || format!("{id}/syscall"), read_syscall)
    }

    /// How much processor time it has used, in its own code and in the kernel.
    ///
    /// # Errors
    ///
    /// See [`is_end`].
    pub(crate) fn processor_ticks(&mut self, task: BorrowedFd<'_>) -> io::Result<ProcessorTicks> {
        let id = self.id;
        self.stat.with(task, || format!("{id}/stat"), read_processor_ticks)
    }

    /// Its name, at most 15 bytes; what is not UTF-8 is replaced.
    pub(crate) fn name(&self, task: BorrowedFd<'_>) -> Option<String> {
        let file = open(task, &format!("{}/comm", self.id)).ok()?;
        let mut buffer = [0; 64];
        let length = file.read_at(&mut buffer, 0).ok()?;
        let name = buffer[..length].strip_suffix(b"\n").unwrap_or(&buffer[..length]);
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// What its `status` file says.
    pub(crate) fn status(&self, task: BorrowedFd<'_>) -> Option<StatusFile> {
        process_info::status(task, &format!("{}/status", self.id)).ok()
    }
}

/// Whether an error of reading means that the thread has ended.
pub(crate) fn is_end(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT | libc::EINVAL))
}

/// Lists the threads of a process, whenever they may have changed.
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

    /// A thread is known to be gone: the threads are listed again as soon as that is allowed.
    pub(crate) fn invalidate(&mut self) {
        self.links = 0;
    }

    /// The ids of all threads in ascending order, where they may have changed.
    ///
    /// `/proc/PID/task` has two links more than the process has threads, which is cheap to ask for.
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

    /// Guarantees: however few descriptors there are, files that are kept open leave some for events, and both leave
    /// some for the rest of the program.
    #[test]
    fn descriptors() {
        for (limit, files, events) in
            [(64, 32, 48), (1024, 512, 768), (4096, 3584, 3840), (0, 0, 0), (u64::MAX, i32::MAX, i32::MAX)]
        {
            assert_eq!(Descriptors::of(limit), Descriptors { files, events }, "{limit}");
        }
    }

    /// Guarantees: threads that come while a tick is held up are found by the next one, however long that took.
    #[test]
    fn held_up() {
        let task = File::open("/proc/self/task").unwrap();
        // So long that the number of threads, which other tests change as well, is not what decides.
        let begun = Instant::now().checked_sub(SAFETY_RESCAN * 2).unwrap();
        let mut lister = ThreadLister::new(begun);
        let mut ids = Vec::new();
        assert!(lister.threads(task.as_fd(), begun, &mut ids).unwrap().is_some());
        let (ended, wait) = std::sync::mpsc::channel::<()>();
        let (said, id) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            said.send(nix::unistd::gettid()).unwrap();
            wait.recv().ok();
        });
        let id = id.recv().unwrap().as_raw().unsigned_abs();
        let found = lister.threads(task.as_fd(), Instant::now(), &mut ids).unwrap().unwrap();
        assert!(found.contains(&id));
        drop(ended);
        thread.join().unwrap();
    }
}
