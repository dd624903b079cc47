//! Objects: the files to which addresses belong, and how each is found.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// Identifies an object of one [`Symbolizer`](crate::Symbolizer). Ids are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub(crate) u64);

/// An ELF file to which addresses belong.
#[derive(Debug)]
pub struct Object {
    /// Identifies the object.
    pub key: ObjectKey,
    /// How to find the object's file.
    pub source: ObjectSource,
    /// Root folder of the process that maps the object. Separate debug files are searched inside this folder before the
    /// configured folders. A descriptor for `openat2` is enough (`O_PATH`).
    pub root: Option<Arc<File>>,
    /// The path from the process's view. Debug links are relative to its folder; otherwise it is used only in log
    /// lines.
    pub path: String,
}

/// The identity of an object.
///
/// The build id that a file claims is not verified: a process that maps a forged file can replace the names of another
/// process's file with the same build id. If processes do not trust each other, use [`ObjectKey::File`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ObjectKey {
    /// The GNU build id. A file found by a path must have the same one, or it is not read.
    BuildId(Box<[u8]>),
    /// The identity of a file. A file found by a path must have the same one, or it is not read.
    File(FileIdentity),
    /// Any other identifier that the caller chooses. The file is not checked.
    Other(Box<str>),
}

impl ObjectKey {
    /// The key for a build id in hexadecimal digits, as in `process.executable.build_id.gnu`. `None` if the text is not
    /// hexadecimal or not 2 to 64 bytes long.
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

/// The identity of a file on this machine at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// The length in bytes.
    pub size: u64,
    /// The time of modification, in nanoseconds since the Unix epoch.
    pub modified_nano: i128,
}

impl FileIdentity {
    /// The identity of an open file.
    ///
    /// # Errors
    ///
    /// If `fstat` fails.
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

/// How to find the file of an object.
#[derive(Debug)]
pub enum ObjectSource {
    /// A file that is already open for reading.
    File(File),
    /// A path on this machine. Use only paths from a trusted configuration.
    Path(PathBuf),
    /// A path inside a root folder. Symbolic links cannot lead out of the folder.
    InRoot {
        /// The root folder. A descriptor for `openat2` is enough (`O_PATH`).
        root: Arc<File>,
        /// The path; a leading slash means the root folder.
        path: PathBuf,
    },
    /// The build id, with which the file is searched in the root folder and the configured folders. Needs
    /// [`ObjectKey::BuildId`].
    BuildId,
}
