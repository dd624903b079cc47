//! A file to which messages are appended, as frames or lines, and its rotated backups.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use profbridge_codec::otlp::Framing;

use crate::calendar;
use crate::config::FileRotation;
use crate::file_kind::{FileKind, append, nobody_reads};

/// The length of a frame's prefix in bytes.
const PREFIX: u64 = 4;

/// The current file. A named pipe or a character device is only written to.
#[derive(Debug)]
pub(crate) struct MessageFile {
    path: PathBuf,
    /// The file that `path` denotes, after following symbolic links: rotation renames that file and keeps the link.
    target: PathBuf,
    framing: Framing,
    rotation: FileRotation,
    /// `None` while rotating, and after an error that left the file in an unknown state.
    file: Option<File>,
    kind: FileKind,
    /// The length of the file up to the end of its last complete message.
    length: u64,
}

impl MessageFile {
    /// Opens the file, and creates its folder if needed. If the file ends within a message, because a process was
    /// killed while writing, it becomes a backup: its content is kept, and later messages stay readable. A pipe without
    /// a reader is opened later.
    pub(crate) fn open(
        path: PathBuf,
        framing: Framing,
        rotation: FileRotation,
        now: SystemTime,
    ) -> io::Result<MessageFile> {
        let kind = FileKind::at(&path)?;
        if kind != FileKind::File && rotation.asked_for {
            let why = format!("it is a {}, which cannot be rotated; delete `rotation`", kind.name());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let target = path.clone();
        let mut this = MessageFile { path, target, framing, rotation, file: None, kind, length: 0 };
        match this.reopen(now) {
            Err(error) if kind == FileKind::Pipe && error.kind() == io::ErrorKind::NotConnected => {
                tracing::warn!(path = %this.path.display(), "no process reads the named pipe yet");
            }
            other => other?,
        }
        Ok(this)
    }

    /// Appends a message with its prefix or line end, completely or not at all. Starts a new file first if this one
    /// would become too large.
    pub(crate) fn append(&mut self, frame: &[u8], now: SystemTime) -> io::Result<()> {
        if !self.is_in_place()? {
            self.reopen(now)?;
        }
        let full = self.length > 0 && self.length + frame.len() as u64 > self.rotation.bytes;
        if full && self.kind == FileKind::File {
            self.set_aside(now)?;
            self.reopen(now)?;
        }
        let Some(mut file) = self.file.take() else { return Err(io::Error::other("the file is not open")) };
        match file.write_all(frame) {
            Ok(()) => {
                self.length += frame.len() as u64;
                self.file = Some(file);
                Ok(())
            }
            Err(error) => {
                // Removes a partly written message. If that fails, the file is inspected again before the next write. A
                // pipe is closed instead, so that its reader sees the end.
                if self.kind == FileKind::File && file.set_len(self.length).is_ok() {
                    self.file = Some(file);
                }
                Err(error)
            }
        }
    }

    /// Whether the open file is still at its path: somebody may have moved or removed it.
    fn is_in_place(&self) -> io::Result<bool> {
        let Some(file) = &self.file else { return Ok(false) };
        let open = file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (open.dev(), open.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn reopen(&mut self, now: SystemTime) -> io::Result<()> {
        self.file = None;
        let mut file = self.opened()?;
        self.length = 0;
        // A device or a pipe has no length and cannot be rotated.
        if self.kind == FileKind::File {
            self.target = fs::canonicalize(&self.path)?;
            let length = file.metadata()?.len();
            let whole = match self.framing {
                Framing::Line => has_complete_lines(&mut file, length)?,
                Framing::Length | Framing::None => end_of_last_frame(&mut file, length)? == length,
            };
            if !whole {
                tracing::warn!(file = %self.path.display(), "the file ends within a message, so a new one is started");
                self.set_aside(now)?;
                file = self.opened()?;
            }
            self.length = file.metadata()?.len();
        }
        self.file = Some(file);
        Ok(())
    }

    fn opened(&mut self) -> io::Result<File> {
        let opened = append(&self.path);
        let (file, kind) = opened.map_err(|error| match nobody_reads(&error) {
            true => io::Error::new(io::ErrorKind::NotConnected, "no process reads the named pipe"),
            false => error,
        })?;
        self.kind = kind;
        Ok(file)
    }

    /// Renames the file to a backup and removes the oldest backups above the limit.
    fn set_aside(&mut self, now: SystemTime) -> io::Result<()> {
        self.file = None;
        let nanos = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let mut nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        let mut backup = self.backup(nanos);
        while backup.try_exists()? {
            nanos = nanos.saturating_add(1_000_000);
            backup = self.backup(nanos);
        }
        fs::rename(&self.target, backup)?;
        self.length = 0;
        let mut backups = self.backups()?;
        backups.sort_unstable();
        let excess = backups.len().saturating_sub(self.rotation.backups);
        for backup in backups.into_iter().take(excess) {
            match fs::remove_file(&backup) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    // Not an error: no message is lost, and only one backup too many is kept.
                    tracing::warn!(file = %backup.display(), %error, "an old file cannot be removed");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The path of a backup: `profiles-20260131T235959.123Z.otlp` for `profiles.otlp`.
    fn backup(&self, unix_nano: u64) -> PathBuf {
        let (stem, ending) = self.stem_and_ending();
        self.target.with_file_name(format!("{stem}-{}{ending}", calendar::compact(unix_nano)))
    }

    fn backups(&self) -> io::Result<Vec<PathBuf>> {
        let (stem, ending) = self.stem_and_ending();
        let folder = match self.target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut backups = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let time = name.strip_prefix(&*stem).and_then(|name| name.strip_prefix('-'));
            if time.and_then(|name| name.strip_suffix(&*ending)).is_some_and(calendar::is_compact) {
                backups.push(entry.path());
            }
        }
        Ok(backups)
    }

    fn stem_and_ending(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let ending = text(self.target.extension()).map(|ending| format!(".{ending}")).unwrap_or_default();
        (text(self.target.file_stem()).unwrap_or_default(), ending)
    }
}

/// Whether a file contains JSON lines and ends with a line end. True for an empty file.
fn has_complete_lines(file: &mut File, length: u64) -> io::Result<bool> {
    if length == 0 {
        return Ok(true);
    }
    let mut byte_at = |offset: u64| -> io::Result<u8> {
        let mut byte = [0];
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut byte)?;
        Ok(byte[0])
    };
    Ok(byte_at(0)? == b'{' && byte_at(length - 1)? == b'\n')
}

/// The offset of the end of the last complete frame.
fn end_of_last_frame(file: &mut File, length: u64) -> io::Result<u64> {
    let mut end = 0;
    while length - end >= PREFIX {
        let mut prefix = [0; PREFIX as usize];
        file.seek(SeekFrom::Start(end))?;
        file.read_exact(&mut prefix)?;
        let next = end + PREFIX + u64::from(u32::from_be_bytes(prefix));
        // A power failure can leave blocks of zeros, which look like empty frames.
        if next > length || next == end + PREFIX {
            break;
        }
        end = next;
    }
    Ok(end)
}
