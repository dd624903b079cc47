//! The socket's file: created so that no other user can use it, and taken over from a dead owner but not from a living
//! one.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why the control socket could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error("{}: another profbridge listens there: stop it, or choose another path", .0.display())]
    InUse(PathBuf),
    #[error("{}: this path is not a socket: remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
}

/// A listening socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    path: PathBuf,
    /// Device and inode of the file, so that a file of another owner is never removed.
    identity: (u64, u64),
    /// The lock file, locked as long as the socket exists. It is never removed, so that two owners cannot lock
    /// different files.
    _lock: File,
}

impl ControlSocket {
    /// Creates the socket. The process that locks the file beside it is its owner; a socket whose lock is free has a
    /// dead owner and is replaced.
    pub(crate) fn listen(path: &Path) -> Result<(Self, UnixListener), SocketError> {
        let failed = |error| io_error(path, error);
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
            DirBuilder::new().mode(0o700).create(folder).map_err(|error| io_error(folder, error))?;
        }
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NotASocket(path.to_owned())),
            // A program that does not use the lock may be listening there.
            Ok(_) if UnixStream::connect(path).is_ok() => return Err(SocketError::InUse(path.to_owned())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        // The socket is renamed to its path once its mode is set. Until then it has the umask's mode, but the server
        // checks the peer's user anyway.
        let fresh = beside(path, ".new");
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&fresh).map_err(failed)?;
        fs::set_permissions(&fresh, Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let metadata = fs::symlink_metadata(&fresh).map_err(failed)?;
        fs::rename(&fresh, path).map_err(failed)?;
        let identity = (metadata.dev(), metadata.ino());
        Ok((Self { path: path.to_owned(), identity, _lock: lock }, listener))
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let mine = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(mine) {
            // If removing fails, the next owner replaces the file.
            fs::remove_file(&self.path).ok();
        }
    }
}

fn io_error(path: &Path, source: io::Error) -> SocketError {
    SocketError::Io { path: path.display().to_string(), source }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn lock(path: &Path) -> Result<File, SocketError> {
    let at = beside(path, ".lock");
    let failed = |error| io_error(&at, error);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits());
    let file = options.open(&at).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SocketError::InUse(path.to_owned())),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}
