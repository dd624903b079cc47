//! Collapsed stacks, running and waiting threads apart.

use std::io::Write;
use std::path::PathBuf;

use profbridge_wire::folded::{Folded, RUNNING, Threads, WAITING};

use super::{Halves, Written};
use crate::Failure;
use crate::files::write_file;
use crate::terminal::shown;

/// Collects stacks until the end.
pub(crate) struct Stacks {
    path: PathBuf,
    /// Whether what threads did stands in front of their stacks.
    apart: bool,
    of: Vec<Process>,
}

/// The stacks of one process.
struct Process {
    label: String,
    running: Folded,
    waiting: Folded,
}

impl Stacks {
    /// Lines of text, with the thread as the root of its stacks.
    pub(super) fn open(path: PathBuf, apart: bool) -> Self {
        Self { path, apart, of: Vec::new() }
    }

    pub(super) fn take(&mut self, halves: &Halves) {
        for each in &halves.each {
            let at = self.of.iter().position(|process| process.label == each.label).unwrap_or_else(|| {
                let folded = Folded::new(Threads::Apart);
                let label = each.label.clone();
                self.of.push(Process { label, running: folded.clone(), waiting: folded });
                self.of.len() - 1
            });
            if let Some(running) = &each.running {
                self.of[at].running.add(running);
            }
            if let Some(waiting) = &each.waiting {
                self.of[at].waiting.add(waiting);
            }
        }
    }

    /// All lines, sorted. Where there are several processes, their names stand in front of the stacks.
    fn lines(&self) -> std::io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let mut put = |root: &str, of: fn(&Process) -> &Folded| -> std::io::Result<()> {
            for process in &self.of {
                let mut part = Vec::new();
                of(process).write(&mut part)?;
                for line in part.split_inclusive(|&byte| byte == b'\n') {
                    text.extend_from_slice(root.as_bytes());
                    if self.of.len() > 1 {
                        text.extend_from_slice(process.label.replace(';', ":").as_bytes());
                        text.push(b';');
                    }
                    text.extend_from_slice(line);
                }
            }
            Ok(())
        };
        if self.apart {
            put(&format!("{RUNNING};"), |process| &process.running)?;
            put(&format!("{WAITING};"), |process| &process.waiting)?;
        } else {
            put("", |process| &process.running)?;
        }
        Ok(text)
    }

    pub(super) fn close(self, written: &mut Written) -> Result<(), Failure> {
        for process in &self.of {
            written.report.losses.merge(process.running.losses());
            written.report.losses.merge(process.waiting.losses());
        }
        let text = self.lines().map_err(|error| Failure::new(shown(&self.path), &error))?;
        if text.is_empty() {
            return Err(super::nothing(&self.path));
        }
        let size = write_file(&self.path, |file| file.write_all(&text))?;
        written.files.push((self.path, size));
        Ok(())
    }
}
