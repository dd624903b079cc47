//! Caches the source lines of a function's instructions.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// The maximum number of cached lines of one code.
pub(super) const MAX_LINES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct LineCache(pub(super) HashMap<u64, u32, RandomState>);

impl LineCache {
    /// The cached line of an instruction.
    pub(super) fn get(&self, instruction: u64) -> Option<u32> {
        self.0.get(&instruction).copied()
    }

    /// Caches a line.
    pub(super) fn add(&mut self, instruction: u64, line: u32) {
        if self.0.len() >= MAX_LINES {
            self.0.clear();
        }
        self.0.insert(instruction, line);
    }
}
