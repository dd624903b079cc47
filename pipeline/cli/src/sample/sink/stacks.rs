//! Collapsed stacks and flame graphs, running and waiting threads apart.

use std::io::Write;
use std::path::PathBuf;

use profbridge_wire::folded::{Folded, Threads, Unit};

use super::{Halves, Written};
use crate::files::write_file;
use crate::terminal::shown;
use crate::{Failure, flamegraph};

/// The first frame of the stacks of threads that ran, where there may be others.
const RUNNING: &str = "[running]";

/// The first frame of the stacks of threads that were blocked.
const WAITING: &str = "[waiting]";

/// Collects stacks until the end.
pub(crate) struct Stacks {
    path: PathBuf,
    title: Option<String>,
    /// Whether what threads did stands in front of their stacks.
    apart: bool,
    running: Folded,
    waiting: Folded,
}

impl Stacks {
    /// A flame graph. Threads are not told apart in it: what they have in common is what a graph is for.
    pub(super) fn graph(path: PathBuf, title: &str, apart: bool) -> Self {
        let folded = Folded::new(Threads::Merged);
        Self { path, title: Some(title.to_owned()), apart, running: folded.clone(), waiting: folded }
    }

    /// Lines of text, with the thread as the root of its stacks.
    pub(super) fn text(path: PathBuf, apart: bool) -> Self {
        let folded = Folded::new(Threads::Apart);
        Self { path, title: None, apart, running: folded.clone(), waiting: folded }
    }

    pub(super) fn take(&mut self, halves: &Halves) {
        if let Some(running) = &halves.running {
            self.running.add(running);
        }
        if let Some(waiting) = &halves.waiting {
            self.waiting.add(waiting);
        }
    }

    /// All lines, sorted.
    fn lines(&self) -> std::io::Result<Vec<u8>> {
        let mut text = Vec::new();
        if !self.apart {
            self.running.write(&mut text)?;
            return Ok(text);
        }
        for (root, folded) in [(RUNNING, &self.running), (WAITING, &self.waiting)] {
            let mut part = Vec::new();
            folded.write(&mut part)?;
            for line in part.split_inclusive(|&byte| byte == b'\n') {
                text.extend_from_slice(root.as_bytes());
                text.push(b';');
                text.extend_from_slice(line);
            }
        }
        Ok(text)
    }

    pub(super) fn close(self, written: &mut Written) -> Result<(), Failure> {
        written.losses.merge(self.running.losses());
        written.losses.merge(self.waiting.losses());
        let text = self.lines().map_err(|error| Failure::new(shown(&self.path), &error))?;
        if text.is_empty() {
            return Err(super::nothing(&self.path));
        }
        let size = write_file(&self.path, |file| match &self.title {
            None => file.write_all(&text),
            Some(title) => flamegraph::draw(&String::from_utf8_lossy(&text), title, Unit::Nanoseconds, file),
        })?;
        written.files.push((self.path, size));
        Ok(())
    }
}
