//! The type of file at a path, and how to open it.

use std::fs::{self, DirBuilder, File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// The permissions of a new file: none for other users. The umask may remove more.
const FILE_MODE: u32 = 0o640;

/// The permissions of a new folder: none for other users either.
const FOLDER_MODE: u32 = 0o750;

/// The types of files that can be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A regular file, or no file yet: then one is created.
    File,
    /// A named pipe. It can be written to only while a reader has it open.
    Pipe,
    /// A character device, such as a terminal or `/dev/null`.
    Device,
}

impl FileKind {
    /// The type of file at a path, following symbolic links.
    ///
    /// # Errors
    ///
    /// If it is not writable by appending, or cannot be inspected.
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

    /// The type's name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Pipe => "named pipe",
            Self::Device => "character device",
        }
    }
}

/// Opens a path for appending, and returns its type. Creates the file and its folder if there is nothing.
///
/// # Errors
///
/// The system's error. [`nobody_reads`] recognizes a pipe without a reader.
pub(crate) fn append(path: &Path) -> io::Result<(File, FileKind)> {
    if FileKind::at(path)? == FileKind::File {
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
        // The type may have changed since it was checked.
        let kind = FileKind::of(file.metadata()?.file_type())?;
        return Ok((file, kind));
    }
    // Opens without blocking, since opening a pipe would block until it has a reader; later writes block. A pipe must
    // not be opened for reading as well: profbridge would be its own reader, and data would be lost when profbridge
    // ends.
    let mut options = OpenOptions::new();
    options.append(true).custom_flags(OFlag::O_NONBLOCK.bits() | OFlag::O_NOCTTY.bits());
    let file = options.open(path)?;
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
    let kind = FileKind::of(file.metadata()?.file_type())?;
    Ok((file, kind))
}

/// Whether opening failed because no process has the pipe open for reading.
pub(crate) fn nobody_reads(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENXIO as i32)
}

/// Creates a folder and its missing parents.
///
/// # Errors
///
/// The system's error, with an explanation if something else than a folder has that name.
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

/// Creates a new file. Fails if the name exists, even as a symbolic link, which is not followed.
///
/// # Errors
///
/// The system's error.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}
