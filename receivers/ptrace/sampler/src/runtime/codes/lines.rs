//! Cached lines of a function by instruction.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// The maximum number of cached lines of one code.
pub(super) const MAX_LINES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Lines(HashMap<u64, u32, RandomState>);

impl Lines {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a line is known once it was read, and the number of cached lines is bounded.
    #[test]
    fn bounded() {
        let mut lines = Lines::default();
        assert_eq!(lines.get(4), None);
        lines.add(4, 7);
        assert_eq!(lines.get(4), Some(7));
        for instruction in 0..=MAX_LINES as u64 {
            lines.add(instruction, 1);
        }
        assert!(lines.0.len() <= MAX_LINES);
    }
}
