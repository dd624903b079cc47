//! Writing files so that nobody ever sees half of one, and so that nobody else decides which file is written.
//!
//! Results are written into folders that others may write to as well, such as `/tmp`, and perhaps by root. A name that can be known
//! beforehand could be a link to another file by then.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::Failure;

/// How many names are tried. One of 2^64 is hardly ever taken, and never twice unless somebody makes sure of it.
const ATTEMPTS: usize = 8;

/// Writes a file through a temporary one beside it, so that a failure leaves no half of it. Returns its size in bytes.
///
/// # Errors
///
/// What `write` or the system says.
pub(crate) fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<u64, Failure> {
    let outcome = Unfinished::beside(path).and_then(|unfinished| unfinished.finish(path, write));
    outcome.map_err(|error| Failure::new(path.display(), &error))
}

/// A file of our own beside the one that it is to become. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Unfinished {
    path: PathBuf,
    file: File,
    /// Whether it has its name, so that there is nothing to remove under this one.
    finished: bool,
}

impl Unfinished {
    /// Creates an empty file beside `path`, and the folder where there is none. The length of its name is not that of `path`,
    /// so whether the system takes that name is not found out by this.
    ///
    /// # Errors
    ///
    /// When the folder cannot be created or written to.
    pub(crate) fn beside(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..ATTEMPTS {
            let path = path.with_file_name(format!(".profbridge-{:016x}.part", fastrand::u64(..)));
            match create(&path) {
                Ok(file) => return Ok(Self { path, file, finished: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }

    /// Writes the content and gives the file its name. A link of that name is replaced, not followed.
    fn finish(mut self, path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<u64> {
        let mut file = BufWriter::new(self.file.try_clone()?);
        write(&mut file)?;
        file.flush()?;
        let size = self.file.metadata()?.len();
        fs::rename(&self.path, path)?;
        self.finished = true;
        Ok(size)
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

/// Creates a file that does not exist: with `O_EXCL`, for which a link exists, wherever it leads (open(2)). Its mode is what the
/// umask leaves of 0666.
fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).open(path)
}

#[cfg(test)]
mod tests;
