//! Objects: what addresses belong to, and how its file is found.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// Numbers an object of one [`Symbolizer`](crate::Symbolizer). Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub(crate) u64);

/// An ELF file that addresses belong to.
#[derive(Debug)]
pub struct Object {
    /// What makes it the same object as another one.
    pub key: Key,
    /// How its file is found.
    pub source: Source,
    /// The root folder of the process that has it mapped: separate debug files are looked for inside of it, before the
    /// configured folders. A descriptor for `openat2` is enough (`O_PATH`).
    pub root: Option<Arc<File>>,
    /// Its path, as its process sees it. The folder of a debug link is relative to it; otherwise it is for log lines.
    pub path: String,
}

/// What makes two objects the same.
///
/// Files are believed about their build id: a process that maps a forged file can have the names of another
/// process's file with the same build id replaced by its own. Where processes do not trust each other, [`Key::File`]
/// keeps them apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// The GNU build id. A file found by a path must have the same, or it is not read.
    BuildId(Box<[u8]>),
    /// The identity of a file. A file found by a path must have the same, or it is not read.
    File(FileIdentity),
    /// Whatever else the caller tells objects apart by; nothing is checked.
    Other(Box<str>),
}

impl Key {
    /// The key of a build id in hexadecimal digits, as in `process.executable.build_id.gnu`. `None` where it is no such
    /// thing or has less than 2 or more than 64 bytes.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(2) || !(4..=128).contains(&digits.len()) {
            return None;
        }
        let value = |digit: u8| (digit as char).to_digit(16);
        digits
            .chunks_exact(2)
            .map(|pair| Some((value(pair[0])? << 4 | value(pair[1])?) as u8))
            .collect::<Option<Box<[u8]>>>()
            .map(Self::BuildId)
    }
}

/// The identity of a file on this machine, at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// The length in bytes.
    pub size: u64,
    /// When it was modified, in nanoseconds since the Unix epoch.
    pub modified_nano: i128,
}

impl FileIdentity {
    /// The identity of an open file.
    ///
    /// # Errors
    ///
    /// What `fstat` says.
    pub fn of(file: &File) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = file.metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified_nano: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
        })
    }
}

/// How the file of an object is found.
#[derive(Debug)]
pub enum Source {
    /// It is open already, for reading.
    File(File),
    /// At this path of this machine. Only for paths that somebody trustworthy configured.
    Path(PathBuf),
    /// At this path inside of a root folder, which no symbolic link leads out of.
    InRoot {
        /// The root folder. A descriptor for `openat2` is enough (`O_PATH`).
        root: Arc<File>,
        /// The path; a leading slash means the root folder.
        path: PathBuf,
    },
    /// By its build id in the root folder and the configured folders. Needs [`Key::BuildId`].
    BuildId,
}
