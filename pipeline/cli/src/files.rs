//! Writing files so that nobody ever sees half of one, and so that nobody else decides which file is written.
//!
//! Results are written into folders that others may write to as well, such as `/tmp`, and perhaps by root. A name
//! that can be known beforehand could be a link to another file by then. So a link is followed only to what cannot be
//! harmed by being written to, a pipe or a character device such as `/dev/null`; one that leads to a file, or
//! nowhere, is refused.
//!
//! Only a regular file is replaced. What else stands at a path is written to as it is.

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

/// The files that this run reads, by device and inode: no result takes the place of one.
static INPUTS: OnceLock<Vec<(u64, u64)>> = OnceLock::new();

/// Says which files this run reads, once, before anything is written.
pub(crate) fn never_replace<'a>(inputs: impl Iterator<Item = &'a Path>) {
    let found = inputs.filter_map(|path| fs::metadata(path).ok()).filter(fs::Metadata::is_file);
    INPUTS.set(found.map(|file| (file.dev(), file.ino())).collect()).ok();
}

/// Whether a file is one that this run reads.
fn is_input(file: &fs::Metadata) -> bool {
    INPUTS.get().is_some_and(|inputs| inputs.contains(&(file.dev(), file.ino())))
}

/// What a result is written to. Counts what passes.
#[derive(Debug)]
pub(crate) struct Target {
    file: BufWriter<File>,
    bytes: u64,
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a result; into a file through a temporary one beside it, so that a failure leaves no half of it and what
/// was there before as it was. Returns its size in bytes.
///
/// # Errors
///
/// What `write` or the system says.
pub(crate) fn write_file(path: &Path, write: impl FnOnce(&mut Target) -> io::Result<()>) -> Result<u64, Failure> {
    let mut results = Results::default();
    results.add(path.to_owned(), write)?;
    Ok(results.finish()?.iter().map(|(_, size)| size).sum())
}

/// Writes to what is no file and stays what it is.
fn write_at_once(path: &Path, write: impl FnOnce(&mut Target) -> io::Result<()>) -> io::Result<u64> {
    if path.as_os_str() == STANDARD {
        return write_standard(io::stdout().as_fd().try_clone_to_owned()?.into(), write);
    }
    write_to(open_stream(path)?, write)
}

/// Writes to standard output, by the rule of [`terminal::result`]: that its reader has gone away is no error, and
/// noted. Returns how much was written before.
fn write_standard(file: File, write: impl FnOnce(&mut Target) -> io::Result<()>) -> io::Result<u64> {
    let mut target = Target { file: BufWriter::new(file), bytes: 0 };
    let written = write(&mut target).and_then(|()| target.flush());
    // What it holds has nowhere to go.
    let Target { file, bytes } = target;
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

/// How long nobody need read a pipe before that is said.
const SILENCE: Duration = Duration::from_secs(1);

/// Opens a pipe or a device. A pipe waits for its reader, which is said after a moment: it may never come.
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

fn write_to(file: File, write: impl FnOnce(&mut Target) -> io::Result<()>) -> io::Result<u64> {
    let mut target = Target { file: BufWriter::new(file), bytes: 0 };
    write(&mut target)?;
    target.flush()?;
    Ok(target.bytes)
}

/// Finds out whether a result can be written before it is there, and leaves everything as it is.
///
/// # Errors
///
/// Says what is in the way.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    match output_kind(path)? {
        OutputKind::File => Unfinished::beside(path).and_then(|_removed| may_be_replaced(path)),
        // Opening a pipe would wait for its reader.
        OutputKind::Stream if path.as_os_str() != STANDARD => Ok(eaccess(path, AccessFlags::W_OK)?),
        OutputKind::Stream => Ok(()),
    }
}

/// Finds out whether the folder of a file is there: to make one for the result of a long run would hide a typing error.
///
/// # Errors
///
/// Names the folder that is not there.
pub(crate) fn has_folder(path: &Path) -> io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) if !folder.is_dir() => {
            let why = format!("there is no folder {}; create it, or name a file elsewhere", shown(folder));
            Err(io::Error::new(io::ErrorKind::NotFound, why))
        }
        _ => Ok(()),
    }
}

/// Whether the kernel would let another file take the place of this one, if there is one: in a folder such as `/tmp`
/// only its owner may remove a file (rename(2), `EPERM`; the sticky bit).
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

/// How a result gets to where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputKind {
    /// A file, or nothing yet: a new file takes its place.
    File,
    /// A pipe, a character device or standard output: it is written to.
    Stream,
}

/// What stands at a path.
fn output_kind(path: &Path) -> io::Result<OutputKind> {
    if path.as_os_str() == STANDARD {
        return Ok(OutputKind::Stream);
    }
    // Rust's paths leave these out.
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

/// A file of our own beside the one that it is to become. It is removed when this is dropped.
#[derive(Debug)]
struct Unfinished {
    path: PathBuf,
    /// Whether it has its name, so that there is nothing to remove under this one.
    finished: bool,
}

impl Unfinished {
    /// Creates an empty file beside `path`, and the folder where there is none. The length of its name is not that of
    /// `path`, so whether the system takes that name is not found out by this.
    ///
    /// # Errors
    ///
    /// When the folder cannot be created or written to.
    fn beside(path: &Path) -> io::Result<(Self, File)> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        // One name of 2^64 is hardly ever taken.
        let path = path.with_file_name(format!(".profbridge-{:016x}.part", fastrand::u64(..)));
        let file = create(&path)?;
        Ok((Self { path, finished: false }, file))
    }

    /// Gives the file its name.
    fn finish(mut self, path: &Path) -> io::Result<()> {
        // Whatever has taken the name meanwhile and is no file stays where it is.
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
            // What is worth saying was said by whoever failed before.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Results that are several files: they get their names together once all are written, so that a failure leaves what
/// was there before as it was. Pipes and devices are written to at once.
#[derive(Debug, Default)]
pub(crate) struct Results {
    all: Vec<(PathBuf, u64, Option<Unfinished>)>,
}

impl Results {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Writes one more.
    ///
    /// # Errors
    ///
    /// What `write` or the system says, and what is in the way at its path.
    pub(crate) fn add(
        &mut self,
        path: PathBuf,
        write: impl FnOnce(&mut Target) -> io::Result<()>,
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

    /// Gives all of them their names, and returns these with their sizes in bytes.
    ///
    /// # Errors
    ///
    /// Something is in the way at one of the paths. What is known of that is found out before the first has its name.
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

/// Creates a file that does not exist: with `O_EXCL`, for which a link exists, wherever it leads (open(2)). Its mode
/// is what the umask leaves of 0666.
fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).open(path)
}

#[cfg(test)]
mod tests;
