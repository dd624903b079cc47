//! What reading DWARF may cost.

use std::sync::atomic::{AtomicBool, Ordering};

/// How often all of the DWARF may be read for one batch of addresses. An honest file needs less than two: each unit's
/// functions once, and the lines of those that are asked about.
const READINGS: u64 = 8;
/// What is allowed in any case, since small files may need a multiple of their size.
const LEAST: u64 = 16 << 20;
/// The longest texts of one batch together, in bytes.
const MAX_TEXT: usize = 64 << 20;

/// What reading DWARF may still cost. A unit of work is about a byte read, or an attribute skipped.
#[derive(Debug)]
pub(crate) struct Budget<'a> {
    left: u64,
    text: usize,
    /// The symbolizer is being dropped.
    stop: &'a AtomicBool,
}

/// Why something was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Error {
    /// It takes more work or memory than its size explains.
    GaveUp,
    /// It makes no sense.
    Malformed,
}

impl From<gimli::Error> for Error {
    fn from(_: gimli::Error) -> Self {
        Self::Malformed
    }
}

impl<'a> Budget<'a> {
    pub(crate) fn new(stop: &'a AtomicBool) -> Self {
        Self { left: 0, text: MAX_TEXT, stop }
    }

    /// Starts anew, for DWARF of a size.
    pub(super) fn allow(&mut self, bytes: usize) {
        self.left = LEAST.saturating_add((bytes as u64).saturating_mul(READINGS));
        self.text = MAX_TEXT;
    }

    /// Allows more, for further DWARF of a size.
    pub(super) fn add(&mut self, bytes: usize) {
        self.left = self.left.saturating_add((bytes as u64).saturating_mul(READINGS));
    }

    pub(super) fn spend(&mut self, work: usize) -> Result<(), Error> {
        match self.left.checked_sub(work as u64) {
            Some(left) if !self.stop.load(Ordering::Relaxed) => {
                self.left = left;
                Ok(())
            }
            _ => Err(Error::GaveUp),
        }
    }

    /// Pays for a text that will be kept.
    pub(super) fn keep(&mut self, text: &str) -> Result<(), Error> {
        self.text = self.text.checked_sub(text.len()).ok_or(Error::GaveUp)?;
        self.spend(text.len())
    }
}
