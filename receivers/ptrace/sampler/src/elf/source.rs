//! The sources of a file's bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::Malformed;

/// Bytes that can be read at any offset.
pub trait ByteSource {
    /// The length in bytes. A later read may find fewer: a file can be truncated at any time.
    fn len(&self) -> u64;

    /// Whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads from `offset` on, and returns the number of bytes read; 0 at the end.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;
}

impl ByteSource for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// A file whose length was determined once.
#[derive(Debug)]
pub struct FileSource<'a> {
    file: &'a File,
    length: u64,
}

impl<'a> FileSource<'a> {
    /// The first `length` bytes of a file.
    pub fn new(file: &'a File, length: u64) -> Self {
        Self { file, length }
    }
}

impl ByteSource for FileSource<'_> {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(bytes, offset)
    }
}

/// Reads exactly `length` bytes from `offset` on. The range is checked against `limit` and the length of the source
/// before memory is allocated.
pub(super) fn read_range<S: ByteSource + ?Sized>(
    source: &S,
    what: &'static str,
    offset: u64,
    length: u64,
    limit: u64,
) -> Result<Vec<u8>, Malformed> {
    if length > limit {
        return Err(Malformed::TooLarge { what, length, limit });
    }
    if offset.checked_add(length).is_none_or(|end| end > source.len()) {
        return Err(Malformed::OutOfFile { what, offset, length });
    }
    let length = usize::try_from(length).map_err(|_| Malformed::Memory { what })?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Malformed::Memory { what })?;
    bytes.resize(length, 0);
    let mut done = 0;
    while done < length {
        match source.read_at(offset + done as u64, &mut bytes[done..]) {
            Ok(0) => return Err(Malformed::OutOfFile { what, offset, length: length as u64 }),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Malformed::Read { what, error }),
        }
    }
    Ok(bytes)
}
