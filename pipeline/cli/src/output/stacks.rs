//! Collapsed stacks: thread state, process if there are several, thread, and functions.

use std::path::PathBuf;

use profbridge_codec::EncodingReport;
use profbridge_wire::folded::{CalledBy, Folded, Threads};

use crate::Failure;
use crate::files::write_file;
use crate::terminal::counted;

/// Collects stacks, and writes them at the end.
pub(crate) struct StacksOutput {
    path: PathBuf,
    pub(super) folded: Folded,
}

impl StacksOutput {
    /// Opens an output that writes only at the end.
    pub(crate) fn open(path: PathBuf, called_by: CalledBy) -> Self {
        Self { path, folded: Folded::new(Threads::Apart).with_states().with_processes(called_by) }
    }

    /// Writes the file and returns its path and size in bytes; `None` if there is no data.
    pub(super) fn close(&mut self, report: &mut EncodingReport) -> Result<Option<(PathBuf, u64)>, Failure> {
        report.losses.merge(self.folded.losses());
        report.not_shown.extend(self.folded.not_shown().in_words());
        if self.folded.is_empty() {
            return Ok(None);
        }
        let size = write_file(&self.path, |file| self.folded.write(file))?;
        Ok(Some((self.path.clone(), size)))
    }

    /// The contents, for messages.
    pub(crate) fn holds(&self) -> String {
        let of = self.folded.shown_type().map_or_else(String::new, |of| format!(" of {of}"));
        counted(self.folded.lines().count() as u64, "stack") + &of
    }
}
