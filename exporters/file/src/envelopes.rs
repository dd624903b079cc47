//! A folder of envelopes with a limited number and size.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::file_kind::{create_new, make_folder};
use crate::name;

/// A temporary file that was not modified for this long belongs to a process that ended.
const ABANDONED: Duration = Duration::from_secs(600);

/// The folder, and the files in it whose names match this exporter's pattern.
#[derive(Debug)]
pub(crate) struct EnvelopeFolder {
    path: PathBuf,
    max_files: usize,
    max_bytes: u64,
    /// The time of writing and the size of each file.
    files: HashMap<String, (SystemTime, u64)>,
    /// The same files, sorted by age.
    ages: BTreeSet<(SystemTime, String)>,
    bytes: u64,
}

impl EnvelopeFolder {
    /// Creates the folder if needed, and lists its files.
    pub(crate) fn open(path: PathBuf, max_files: usize, max_bytes: u64, now: SystemTime) -> io::Result<EnvelopeFolder> {
        make_folder(&path)?;
        let mut folder =
            EnvelopeFolder { path, max_files, max_bytes, files: HashMap::new(), ages: BTreeSet::new(), bytes: 0 };
        for entry in fs::read_dir(&folder.path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = match entry.metadata() {
                Ok(metadata) if metadata.is_file() => metadata,
                _ => continue,
            };
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if name::is_envelope(&name) {
                folder.insert(name, modified, metadata.len());
            } else if name::is_temporary(&name) && now.duration_since(modified).is_ok_and(|age| age > ABANDONED) {
                remove(&folder.path.join(name))?;
            }
        }
        folder.probe()?;
        folder.trim(None)?;
        Ok(folder)
    }

    /// Writes an envelope to the file `name`, replacing an existing one. Then removes the oldest files above the
    /// limits.
    pub(crate) fn write(&mut self, name: &str, body: &[u8], now: SystemTime) -> io::Result<()> {
        match self.put(name, body) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(folder = %self.path.display(), "the folder was removed and is created again");
                make_folder(&self.path)?;
                // The folder was removed with all its files.
                (self.files, self.ages, self.bytes) = (HashMap::new(), BTreeSet::new(), 0);
                self.put(name, body)?;
            }
            other => other?,
        }
        self.insert(name.to_owned(), now, body.len() as u64);
        if let Err(error) = self.trim(Some(name)) {
            // Not an error: the envelope is written, and only one file too many is kept.
            tracing::warn!(folder = %self.path.display(), %error, "an old envelope cannot be removed");
        }
        Ok(())
    }

    fn put(&self, name: &str, body: &[u8]) -> io::Result<()> {
        let temporary = self.path.join(name::temporary(name));
        let written = write_new(&temporary, body).and_then(|()| fs::rename(&temporary, self.path.join(name)));
        if written.is_err() {
            // If removing fails as well, a later start removes it.
            drop(fs::remove_file(&temporary));
        }
        written
    }

    /// Fails if the folder is not writable, so that a wrong path is reported at the start.
    fn probe(&self) -> io::Result<()> {
        let path = self.path.join(format!(".profbridge-{}.tmp", std::process::id()));
        create(&path)?;
        fs::remove_file(&path)
    }

    fn insert(&mut self, name: String, modified: SystemTime, bytes: u64) {
        self.forget(&name);
        self.bytes += bytes;
        self.ages.insert((modified, name.clone()));
        self.files.insert(name, (modified, bytes));
    }

    fn forget(&mut self, name: &str) {
        if let Some((modified, bytes)) = self.files.remove(name) {
            self.bytes -= bytes;
            self.ages.remove(&(modified, name.to_owned()));
        }
    }

    /// Removes the oldest files above the limits, but never the newest one, however large it is.
    fn trim(&mut self, newest: Option<&str>) -> io::Result<()> {
        while self.files.len() > self.max_files || self.bytes > self.max_bytes {
            let Some(name) = self.ages.iter().map(|(_, name)| name).find(|name| Some(&***name) != newest).cloned()
            else {
                return Ok(());
            };
            remove(&self.path.join(&name))?;
            self.forget(&name);
        }
        Ok(())
    }
}

fn write_new(path: &std::path::Path, body: &[u8]) -> io::Result<()> {
    create(path)?.write_all(body)
}

/// Creates a new file. A file left by a crash is removed first, and a symbolic link is not followed.
fn create(path: &std::path::Path) -> io::Result<File> {
    remove(path)?;
    create_new(path)
}

/// Removes a file. It is no error if it does not exist.
fn remove(path: &std::path::Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a symbolic link where a new file would be written is replaced and not followed, and files left by a
    /// crash cause no error.
    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["new", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        write_new(&path, b"body").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&other).unwrap()), (b"body".to_vec(), b"kept".to_vec()));
        write_new(&path, b"more").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"more");
    }
}
