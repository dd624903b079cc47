//! The perf map `/tmp/perf-PID.map`, in which runtimes list their generated code for `perf`.
//!
//! The file is in a folder that everybody can write to, in a file system that the target created. So it is opened
//! inside the target's root, no link is followed, only regular files are accepted, and, as with `perf`, it has to
//! belong to the target's user or root.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{SFlag, fstat};

use crate::address_space::{MapsEntry, ProcessView};
use crate::os::time;

/// How many earlier lengths of a perf map are kept. Samples are processed within a fraction of a second.
const MOST_LENGTHS: usize = 64;

/// The length of a perf map over time: a sample uses only names that the file contained at the time of the sample.
#[derive(Debug)]
pub(crate) struct Growth {
    file: Arc<File>,
    /// The lengths in bytes, each with the time since which it is valid: never empty, in ascending order of time.
    lengths: VecDeque<(Instant, u32)>,
    /// When the file was last checked.
    looked: Instant,
}

impl Growth {
    /// Checks the file for the first time.
    pub(crate) fn new(file: Arc<File>) -> Self {
        let now = Instant::now();
        let mut growth = Self { file, lengths: VecDeque::new(), looked: now };
        growth.look(now);
        growth
    }

    /// The length of the file at a time; the first known length if the time is earlier. Checks the file first: only
    /// then the lengths up to `time` are known.
    pub(crate) fn length_at(&mut self, time: Instant) -> u32 {
        self.look(Instant::now());
        let known = self.lengths.iter().rev().find(|(since, _)| *since <= time).or(self.lengths.front());
        known.map_or(0, |(_, length)| *length)
    }

    /// Records the length if it has changed. The time of the change is the file's modification time, limited to the
    /// time between the last check and this one.
    fn look(&mut self, now: Instant) {
        let Ok(status) = fstat(self.file.as_fd()) else { return };
        let length = u32::try_from(status.st_size).unwrap_or(u32::MAX);
        if self.lengths.back().is_none_or(|(_, before)| *before != length) {
            let modified = u64::try_from(status.st_mtime).unwrap_or(0).saturating_mul(1_000_000_000);
            let modified = modified.saturating_add(u64::try_from(status.st_mtime_nsec).unwrap_or(0));
            let ago = Duration::from_nanos(time::unix_nano().saturating_sub(modified));
            if self.lengths.len() >= MOST_LENGTHS {
                self.lengths.pop_front();
            }
            self.lengths.push_back((now.checked_sub(ago).unwrap_or(now).max(self.looked), length));
        }
        self.looked = now;
    }
}

/// Identifies a file by device and inode.
pub(crate) type DeviceInode = (u64, u64);

/// Opens the perf map, below `root`, of the process with this id in its own namespace, unless it is the file `known`.
/// `None` if there is no perf map.
///
/// # Errors
///
/// A message for the operator: why the file cannot be used.
pub(crate) fn open(
    root: impl AsFd,
    namespace_pid: u32,
    user: u32,
    known: Option<DeviceInode>,
) -> Result<Option<(File, DeviceInode)>, String> {
    let path = format!("tmp/perf-{namespace_pid}.map");
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let file = match openat2(root, path.as_str(), how) {
        Ok(file) => File::from(file),
        Err(nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR) => return Ok(None),
        Err(nix::errno::Errno::ELOOP) => return Err(format!("/{path} is behind links that are not followed")),
        Err(error) => return Err(format!("/{path} cannot be opened: {}", io::Error::from(error))),
    };
    accept(file, &path, user, known)
}

/// Opens the jitdump file that a process has mapped.
///
/// # Errors
///
/// See [`open`].
pub(crate) fn open_dump(
    process: &impl ProcessView,
    mapped: &MapsEntry,
    user: u32,
) -> Result<Option<(File, DeviceInode)>, String> {
    let path = String::from_utf8_lossy(&mapped.path);
    let path = path.trim_start_matches('/');
    let file = process.open(mapped).map_err(|error| format!("/{path} cannot be opened: {error}"))?;
    accept(file, path, user, None)
}

fn accept(
    file: File,
    path: &str,
    user: u32,
    known: Option<DeviceInode>,
) -> Result<Option<(File, DeviceInode)>, String> {
    let status = fstat(file.as_fd()).map_err(|error| format!("/{path} has no status: {error}"))?;
    let identity = (status.st_dev, status.st_ino);
    if known == Some(identity) {
        return Ok(None);
    }
    if SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(format!("/{path} is no regular file"));
    }
    if status.st_uid != 0 && status.st_uid != user {
        return Err(format!("/{path} belongs to user {}, neither to the process's user nor to root", status.st_uid));
    }
    Ok(Some((file, identity)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use nix::fcntl::open as open_path;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    fn look(root: &Path, known: Option<DeviceInode>) -> Result<Option<DeviceInode>, String> {
        let root = open_path(root, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        let user = nix::unistd::geteuid().as_raw();
        Ok(open(root, 7, user, known)?.map(|(_, identity)| identity))
    }

    /// Guarantees: the map is found once, and again when another file replaces it.
    #[test]
    fn told_again_when_replaced() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(look(root.path(), None), Ok(None));
        std::fs::create_dir(root.path().join("tmp")).unwrap();
        let path = root.path().join("tmp/perf-7.map");
        std::fs::write(&path, "1000 10 first\n").unwrap();
        let first = look(root.path(), None).unwrap();
        assert!(first.is_some());
        assert_eq!(look(root.path(), first), Ok(None));
        let next = root.path().join("next");
        std::fs::write(&next, "1000 10 second\n").unwrap();
        std::fs::rename(&next, &path).unwrap();
        let second = look(root.path(), first).unwrap();
        assert!(second.is_some() && second != first);
    }

    /// Guarantees: the length at a time is the file's length at that time, as known from the checks, whatever
    /// modification time the program sets; earlier times have the first length.
    #[test]
    fn lengths_by_time() {
        use std::io::Write as _;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"1000 10 first\n").unwrap();
        let before = Instant::now();
        let mut growth = Growth::new(Arc::new(file.try_clone().unwrap()));
        let mut moments = vec![(before, 14), (Instant::now(), 14)];
        for (round, modified) in [None, Some(0), Some(i64::MAX), None, Some(1)].into_iter().enumerate() {
            assert_eq!(growth.length_at(Instant::now()), 14 * (1 + round as u32));
            let unchanged = Instant::now();
            file.write_all(b"1000 10 other\n").unwrap();
            if let Some(seconds) = modified {
                let time = nix::sys::time::TimeSpec::new(seconds.min(1 << 33), 0);
                nix::sys::stat::futimens(&file, &time, &time).unwrap();
            }
            growth.length_at(Instant::now());
            let length = growth.length_at(Instant::now());
            moments.push((growth.lengths.back().unwrap().0, length));
            assert!(growth.lengths.back().unwrap().0 <= Instant::now());
            assert_eq!(length, 14 * (2 + round as u32));
            // The clock of file times is coarse, but a time outside of the two checks is never accepted.
            assert!(growth.length_at(unchanged) <= length);
        }
        for (moment, length) in moments {
            assert_eq!(growth.length_at(moment), length);
        }
        for _ in 0..2 * MOST_LENGTHS {
            file.write_all(b"x\n").unwrap();
            growth.length_at(Instant::now());
        }
        assert!(growth.lengths.len() <= MOST_LENGTHS);
    }

    /// Guarantees: a pipe, a folder, a link and a file of another user are rejected with a reason, without blocking.
    #[test]
    fn refuses_what_is_no_map() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("tmp")).unwrap();
        let path = root.path().join("tmp/perf-7.map");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        assert!(look(root.path(), None).unwrap_err().contains("no regular file"));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(look(root.path(), None).unwrap_err().contains("no regular file"));
        std::fs::remove_dir(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(look(root.path(), None).unwrap_err().contains("link"));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        let folder = open_path(root.path(), OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        let owner = nix::unistd::geteuid().as_raw();
        let foreign = open(folder, 7, owner + 1, None);
        assert!(if owner == 0 { foreign.is_ok() } else { foreign.is_err() });
    }

    /// Guarantees: a folder that is a symbolic link does not lead out of the root.
    #[test]
    fn stays_inside_of_the_root() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("perf-7.map"), "").unwrap();
        let root = tempfile::tempdir().unwrap();
        symlink(outside.path(), root.path().join("tmp")).unwrap();
        assert!(!matches!(look(root.path(), None), Ok(Some(_))));
        std::fs::remove_file(root.path().join("tmp")).unwrap();
        symlink("../../../../../../..", root.path().join("tmp")).unwrap();
        assert_eq!(look(root.path(), None), Ok(None));
        std::fs::remove_file(root.path().join("tmp")).unwrap();
        let upwards = format!("../{}", outside.path().file_name().unwrap().to_string_lossy());
        symlink(upwards, root.path().join("tmp")).unwrap();
        assert_eq!(look(root.path(), None), Ok(None));
    }
}
