//! Writing files so that nobody ever sees half of one.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::Failure;

/// Writes a file through a temporary one beside it, so that a failure leaves no half of it. Returns its size.
pub(crate) fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<u64, Failure> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".part");
    let temporary = PathBuf::from(temporary);
    let outcome = (|| {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let mut file = BufWriter::new(File::create(&temporary)?);
        write(&mut file)?;
        file.flush()?;
        drop(file);
        fs::rename(&temporary, path)?;
        Ok(fs::metadata(path)?.len())
    })();
    outcome.map_err(|error: std::io::Error| {
        // The failure is what is worth saying; a leftover may be there or not.
        fs::remove_file(&temporary).ok();
        Failure::new(path.display(), &error)
    })
}
