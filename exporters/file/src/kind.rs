//! What stands at a path, and what may be done with it.

use std::fs::{self, DirBuilder, File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// The rights of a new file: others read nothing. The umask of the process may take more away.
const FILE_MODE: u32 = 0o640;

/// The rights of a new folder, in the same way.
const FOLDER_MODE: u32 = 0o750;

/// What can be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file, or nothing yet, which becomes one.
    File,
    /// A pipe that has a name: it has to be open at its other end.
    Pipe,
    /// A character device, such as a terminal or `/dev/null`.
    Device,
}

impl Kind {
    /// What stands at a path, behind any links.
    ///
    /// # Errors
    ///
    /// It is nothing that messages can be appended to, or cannot be looked at.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(found) => Self::of(found.file_type()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::File),
            Err(error) => Err(error),
        }
    }

    fn of(kind: FileType) -> io::Result<Self> {
        let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if kind.is_file() {
            Ok(Self::File)
        } else if kind.is_fifo() {
            Ok(Self::Pipe)
        } else if kind.is_char_device() {
            Ok(Self::Device)
        } else if kind.is_dir() {
            refused("it is a folder, and this `format` writes one file; name a file in it")
        } else if kind.is_socket() {
            refused("it is a socket, which is not written like a file; send with the exporter `otlp`")
        } else {
            refused("it is a block device, whose content would be overwritten; name a file")
        }
    }

    /// As a person calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Pipe => "named pipe",
            Self::Device => "character device",
        }
    }
}

/// Opens what stands at a path for appending, and says what it is. A file is made where there is nothing, with its
/// folder.
///
/// # Errors
///
/// What the system says; for a pipe that nobody reads [`nobody_reads`] knows the error.
pub(crate) fn append(path: &Path) -> io::Result<(File, Kind)> {
    if Kind::at(path)? == Kind::File {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(FILE_MODE);
        let opened = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_folder(path.parent().unwrap_or(Path::new("")))?;
                options.open(path)
            }
            other => other,
        };
        let file = opened?;
        // Somebody may have put something else there meanwhile.
        let kind = Kind::of(file.metadata()?.file_type())?;
        return Ok((file, kind));
    }
    // Without waiting, since a pipe is opened only once somebody reads it; the writes wait again. A pipe is not
    // opened for reading: profbridge would be its own reader, and what it wrote would be lost when it ends.
    let mut options = OpenOptions::new();
    options.append(true).custom_flags(OFlag::O_NONBLOCK.bits() | OFlag::O_NOCTTY.bits());
    let file = options.open(path)?;
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
    let kind = Kind::of(file.metadata()?.file_type())?;
    Ok((file, kind))
}

/// Whether opening failed because no process has the other end of a pipe open.
pub(crate) fn nobody_reads(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENXIO as i32)
}

/// Makes a folder and those above it, where they are missing.
///
/// # Errors
///
/// What the system says, in words where something else has the name.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    match DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(io::Error::new(error.kind(), "it is no folder, and `format: sentry` writes a folder of files"))
        }
        other => other,
    }
}

/// Creates a file that is new, so that a link of that name is not followed.
///
/// # Errors
///
/// What the system says.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}
