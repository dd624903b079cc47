//! The map of generated code that runtimes write: `/tmp/perf-PID.map`, as `perf` reads it.
//!
//! It is a file in a folder that everybody writes to, in a file system that the target made: it is opened inside of the
//! target's root, no link is followed, nothing that is not a regular file is opened for good, and, as with `perf`, it
//! has to belong to the target's user or root.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{SFlag, fstat};

/// Identifies a file by device and inode.
pub(crate) type Identity = (u64, u64);

/// Opens the perf map below `root` of the process that has this id in its own namespace, unless it is the file `known`.
/// `None` where there is none.
///
/// # Errors
///
/// A reason for a person why what is there cannot be used.
pub(crate) fn open(
    root: impl AsFd,
    namespace_pid: u32,
    user: u32,
    known: Option<Identity>,
) -> Result<Option<(File, Identity)>, String> {
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

    fn look(root: &Path, known: Option<Identity>) -> Result<Option<Identity>, String> {
        let root = open_path(root, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        let user = nix::unistd::geteuid().as_raw();
        Ok(open(root, 7, user, known)?.map(|(_, identity)| identity))
    }

    /// Guarantees: the map is found, found once, and found again when another file takes its place.
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

    /// Guarantees: a pipe, a folder, a link and a file of somebody else are refused with a reason, without waiting for
    /// anything.
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

    /// Guarantees: a folder that is a link leads to nowhere outside of the root.
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
