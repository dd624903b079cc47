//! Writes files atomically and without following other users' links.
//!
//! Results are written, perhaps by root, into folders such as `/tmp` where others can write as well. A file with a
//! predictable name could be replaced by a symbolic link. So a link is followed only to targets that writing cannot
//! damage, a pipe or a character device such as `/dev/null`; a link to a file, or to nothing, is refused.
//!
//! Only regular files are replaced. Other types are written to in place.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nix::unistd::{AccessFlags, eaccess};

use crate::Failure;
use crate::terminal::{self, STANDARD, shown};

/// The input files of this run, by device and inode: no output may replace one.
static INPUTS: OnceLock<Vec<(u64, u64)>> = OnceLock::new();

/// Registers the input files of this run. Call it once, before anything is written.
pub(crate) fn never_replace<'a>(inputs: impl Iterator<Item = &'a Path>) {
    let found = inputs.filter_map(|path| fs::metadata(path).ok()).filter(fs::Metadata::is_file);
    INPUTS.set(found.map(|file| (file.dev(), file.ino())).collect()).ok();
}

/// Whether a file is an input of this run.
fn is_input(file: &fs::Metadata) -> bool {
    INPUTS.get().is_some_and(|inputs| inputs.contains(&(file.dev(), file.ino())))
}

/// The writer for a result. Counts the bytes.
#[derive(Debug)]
pub(crate) struct ResultFile {
    file: BufWriter<File>,
    bytes: u64,
}

impl Write for ResultFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a result and returns its size in bytes. A regular file is written under a temporary name and then renamed, so
/// that a failure leaves no partial file and keeps the existing one.
///
/// # Errors
///
/// The error of `write` or of the system.
pub(crate) fn write_file(path: &Path, write: impl FnOnce(&mut ResultFile) -> io::Result<()>) -> Result<u64, Failure> {
    let mut results = Results::default();
    results.add(path.to_owned(), write)?;
    Ok(results.finish()?.iter().map(|(_, size)| size).sum())
}

/// Writes in place to something that is not a regular file.
fn write_at_once(path: &Path, write: impl FnOnce(&mut ResultFile) -> io::Result<()>) -> io::Result<u64> {
    if path.as_os_str() == STANDARD {
        return write_standard(io::stdout().as_fd().try_clone_to_owned()?.into(), write);
    }
    write_to(open_stream(path)?, write)
}

/// Writes to standard output. As in [`terminal::result`], it is no error if the reader has gone away, but it is
/// recorded. Returns how many bytes were written before.
fn write_standard(file: File, write: impl FnOnce(&mut ResultFile) -> io::Result<()>) -> io::Result<u64> {
    let mut target = ResultFile { file: BufWriter::new(file), bytes: 0 };
    let written = write(&mut target).and_then(|()| target.flush());
    // Discards the buffer, which cannot be written any more.
    let ResultFile { file, bytes } = target;
    let held = file.into_parts().1.map_or(0, |held| held.len() as u64);
    match written {
        Ok(()) => Ok(bytes),
        Err(error) if terminal::is_reader_gone(&error) => {
            terminal::reader_left(bytes.saturating_sub(held));
            Ok(bytes)
        }
        Err(error) => Err(error),
    }
}

/// How long to wait for a pipe's reader before a message says so.
const SILENCE: Duration = Duration::from_secs(1);

/// Opens a pipe or a device. If a pipe has no reader after a moment, a message says so, since it may wait for ever.
fn open_stream(path: &Path) -> io::Result<File> {
    let (opened, opening) = mpsc::channel::<()>();
    let waits_for = shown(path);
    thread::spawn(move || {
        if opening.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout) {
            terminal::say(format!("waiting until somebody reads {waits_for}"));
        }
    });
    let file = File::options().write(true).open(path);
    drop(opened);
    file
}

fn write_to(file: File, write: impl FnOnce(&mut ResultFile) -> io::Result<()>) -> io::Result<u64> {
    let mut target = ResultFile { file: BufWriter::new(file), bytes: 0 };
    write(&mut target)?;
    target.flush()?;
    Ok(target.bytes)
}

/// Checks whether a result can be written, without changing anything.
///
/// # Errors
///
/// Describes the obstacle.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    match output_kind(path)? {
        OutputKind::File => Unfinished::beside(path).and_then(|_removed| may_be_replaced(path)),
        // Opening a pipe would wait for its reader.
        OutputKind::Stream if path.as_os_str() != STANDARD => Ok(eaccess(path, AccessFlags::W_OK)?),
        OutputKind::Stream => Ok(()),
    }
}

/// Checks that a file's folder exists. Creating it for the result of a long run would hide a typing error.
///
/// # Errors
///
/// If the folder does not exist.
pub(crate) fn has_folder(path: &Path) -> io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) if !folder.is_dir() => {
            let why = format!("there is no folder {}; create it, or name a file elsewhere", shown(folder));
            Err(io::Error::new(io::ErrorKind::NotFound, why))
        }
        _ => Ok(()),
    }
}

/// Whether the kernel allows a new file to replace this one, if it exists: in a folder such as `/tmp`, only the owner
/// may remove a file (rename(2), `EPERM`; the sticky bit).
fn may_be_replaced(path: &Path) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::metadata(folder)?;
    let user = nix::unistd::geteuid();
    let owns = |what: &fs::Metadata| what.uid() == user.as_raw();
    if folder.mode() & STICKY == 0 || user.is_root() || owns(&file) || owns(&folder) {
        return Ok(());
    }
    let why = "it is another user's file, which nobody else may replace in this folder";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// How to write a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputKind {
    /// A regular file, or nothing yet: replaced by a new file.
    File,
    /// A pipe, a character device or standard output: written in place.
    Stream,
}

/// How to write to a path.
fn output_kind(path: &Path) -> io::Result<OutputKind> {
    if path.as_os_str() == STANDARD {
        return Ok(OutputKind::Stream);
    }
    // Rust's paths drop these endings.
    if [&b"/"[..], b"/."].iter().any(|end| path.as_os_str().as_bytes().ends_with(end)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it names a folder; name a file in it"));
    }
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(OutputKind::File),
        other => other?,
    };
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let stream = |kind: fs::FileType| kind.is_fifo() || kind.is_char_device();
    let kind = found.file_type();
    if kind.is_symlink() {
        if fs::metadata(path).is_ok_and(|behind| stream(behind.file_type())) {
            return Ok(OutputKind::Stream);
        }
        let target = fs::canonicalize(path).or_else(|_| fs::read_link(path))?;
        return refused(format!(
            "it is a symbolic link, which is neither followed nor replaced; write {}",
            shown(&target)
        ));
    }
    if kind.is_file() && is_input(&found) {
        refused("it is one of the inputs, which would be gone; name another output".to_owned())
    } else if kind.is_file() {
        Ok(OutputKind::File)
    } else if stream(kind) {
        Ok(OutputKind::Stream)
    } else if kind.is_dir() {
        refused("it is a folder; name a file in it".to_owned())
    } else if kind.is_socket() {
        refused("it is a socket, which is not written like a file".to_owned())
    } else {
        refused("it is a block device, whose content would be overwritten".to_owned())
    }
}

/// A temporary file next to its final path. Removed on drop unless it was renamed.
#[derive(Debug)]
struct Unfinished {
    path: PathBuf,
    /// Whether it was renamed, so that there is nothing to remove.
    finished: bool,
}

impl Unfinished {
    /// Creates an empty file next to `path`, and the folder if needed. Its name has another length than `path`, so this
    /// does not detect a name that is too long.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created or written to.
    fn beside(path: &Path) -> io::Result<(Self, File)> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        // The random part has 64 bits, so the name is practically never taken.
        let path = path.with_file_name(format!(".profbridge-{:016x}.part", fastrand::u64(..)));
        let file = create(&path)?;
        Ok((Self { path, finished: false }, file))
    }

    /// Renames the file to its final path.
    fn finish(mut self, path: &Path) -> io::Result<()> {
        // Refuses if something other than a regular file has appeared at the path.
        if output_kind(path)? != OutputKind::File {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        fs::rename(&self.path, path)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            // The failure that led here was already reported.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Several result files. They are renamed together once all are written, so that a failure keeps the existing files.
/// Pipes and devices are written at once.
#[derive(Debug, Default)]
pub(crate) struct Results {
    all: Vec<(PathBuf, u64, Option<Unfinished>)>,
}

impl Results {
    /// Number of files.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Writes another file.
    ///
    /// # Errors
    ///
    /// The error of `write` or of the system, or the obstacle at the path.
    pub(crate) fn add(
        &mut self,
        path: PathBuf,
        write: impl FnOnce(&mut ResultFile) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let written = output_kind(&path).and_then(|kind| match kind {
            OutputKind::File => {
                let begun = may_be_replaced(&path).and_then(|()| Unfinished::beside(&path));
                begun.and_then(|(unfinished, file)| Ok((write_to(file, write)?, Some(unfinished))))
            }
            OutputKind::Stream => write_at_once(&path, write).map(|size| (size, None)),
        });
        let (size, unfinished) = written.map_err(|error| Failure::new(shown(&path), &error))?;
        self.all.push((path, size, unfinished));
        Ok(())
    }

    /// Renames all files, and returns their paths and sizes in bytes.
    ///
    /// # Errors
    ///
    /// If there is an obstacle at one of the paths. All known obstacles are checked before the first rename.
    pub(crate) fn finish(self) -> Result<Vec<(PathBuf, u64)>, Failure> {
        let in_the_way = |path: &Path| -> io::Result<()> {
            match output_kind(path)? {
                OutputKind::File => may_be_replaced(path),
                OutputKind::Stream => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
            }
        };
        for (path, _, _) in self.all.iter().filter(|(_, _, unfinished)| unfinished.is_some()) {
            in_the_way(path).map_err(|error| Failure::new(shown(path), &error))?;
        }
        let mut files = Vec::with_capacity(self.all.len());
        for (path, size, unfinished) in self.all {
            if let Some(unfinished) = unfinished {
                unfinished.finish(&path).map_err(|error| Failure::new(shown(&path), &error))?;
            }
            files.push((path, size));
        }
        Ok(files)
    }
}

/// Creates a file that does not exist. `O_EXCL` also refuses an existing link, wherever it leads (open(2)). The umask
/// applies to the mode 0666.
fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).open(path)
}

#[cfg(test)]
mod tests;
