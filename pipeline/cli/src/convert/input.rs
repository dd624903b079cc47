//! Reads input files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use bytes::Bytes;

use crate::Failure;
use crate::terminal::{STANDARD, shown};

/// Reads a file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: usize) -> Result<Bytes, Failure> {
    let bytes = content(path, limit).map_err(|error| Failure::new(shown(path), &error))?;
    if bytes.len() > limit {
        let why = format!("error: {}: is larger than {} MiB, see --limit-mib", shown(path), limit >> 20);
        return Err(Failure(why));
    }
    Ok(bytes.into())
}

/// The bytes of a file or of standard input, up to one byte more than `limit`.
fn content(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = limit as u64 + 1;
    if path.as_os_str() == STANDARD {
        io::stdin().lock().take(most).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        let why = "it is a folder; name the files in it, as in FOLDER/*";
        return Err(io::Error::new(io::ErrorKind::IsADirectory, why));
    }
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
