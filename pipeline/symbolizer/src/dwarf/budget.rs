//! Limits the work of reading DWARF.

use std::sync::atomic::{AtomicBool, Ordering};

/// How many times the whole DWARF may be read for one batch. A well-formed file needs less than two: the functions of
/// each unit once, and the lines of the units that contain addresses.
const READINGS: u64 = 8;
/// The minimum budget, since small files may need a multiple of their size.
const LEAST: u64 = 16 << 20;
/// The maximum number of bytes of texts that are stored for one batch.
const MAX_TEXT: usize = 64 << 20;

/// The remaining work. One unit is about one byte read, or one attribute skipped.
#[derive(Debug)]
pub(crate) struct DwarfBudget<'a> {
    left: u64,
    text: usize,
    /// Set when the symbolizer is dropped.
    stop: &'a AtomicBool,
}

/// Why a read failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Error {
    /// Reading needs more work or memory than the file's size justifies.
    GaveUp,
    /// The DWARF is malformed.
    Malformed,
}

impl From<gimli::Error> for Error {
    fn from(_: gimli::Error) -> Self {
        Self::Malformed
    }
}

impl<'a> DwarfBudget<'a> {
    pub(crate) fn new(stop: &'a AtomicBool) -> Self {
        Self { left: 0, text: MAX_TEXT, stop }
    }

    /// Resets the budget for DWARF of a given size.
    pub(super) fn allow(&mut self, bytes: usize) {
        self.left = LEAST.saturating_add((bytes as u64).saturating_mul(READINGS));
        self.text = MAX_TEXT;
    }

    /// Adds budget for further DWARF of a given size.
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

    /// Charges a text that will be stored.
    pub(super) fn keep(&mut self, text: &str) -> Result<(), Error> {
        self.text = self.text.checked_sub(text.len()).ok_or(Error::GaveUp)?;
        self.spend(text.len())
    }
}
