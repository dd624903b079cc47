//! The interface through which interpreters read the memory of a process.

/// The memory of a process. Implemented for a live process, a stack copy, and recordings in tests.
pub trait TargetMemory {
    /// Reads `bytes` from `address`; returns `false` if not all of them could be read.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool;
}

/// The little-endian word at an address.
pub(crate) fn word(target: &mut (impl TargetMemory + ?Sized), address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    target.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
}

/// The little-endian 32-bit word at an address.
pub(crate) fn half(target: &mut (impl TargetMemory + ?Sized), address: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    target.read(address, &mut bytes).then(|| u32::from_le_bytes(bytes))
}

/// The little-endian word at an offset; 0 beyond the end.
pub(crate) fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// The little-endian 32-bit word at an offset; 0 beyond the end.
pub(crate) fn half_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

/// The read limits for one stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// The number of reads.
    pub reads: u32,
    /// The number of bytes.
    pub bytes: usize,
}

/// A target with limits on the number of reads and bytes. Every read counts, also one that fails.
pub(crate) struct Bounded<'a> {
    target: &'a mut dyn TargetMemory,
    left: Allowance,
    refused: u32,
}

impl<'a> Bounded<'a> {
    pub(crate) fn new(target: &'a mut dyn TargetMemory, allowance: Allowance) -> Self {
        Self { target, left: allowance, refused: 0 }
    }

    /// The number of reads refused because of a limit, so that the requested data is unknown although it may be
    /// readable.
    pub(crate) fn refused(&self) -> u32 {
        self.refused
    }
}

impl TargetMemory for Bounded<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        let (Some(reads), Some(rest)) = (self.left.reads.checked_sub(1), self.left.bytes.checked_sub(bytes.len()))
        else {
            self.refused = self.refused.saturating_add(1);
            return false;
        };
        self.left = Allowance { reads, bytes: rest };
        self.target.read(address, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zeros;

    impl TargetMemory for Zeros {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            bytes.fill(0);
            address != 0
        }
    }

    /// Guarantees: neither more reads nor more bytes than allowed reach the target, and reads that failed only for that
    /// reason are counted.
    #[test]
    fn allowance() {
        let mut zeros = Zeros;
        let mut bounded = Bounded::new(&mut zeros, Allowance { reads: 2, bytes: 20 });
        assert_eq!(word(&mut bounded, 8), Some(0));
        assert!(!bounded.read(8, &mut [0; 13]));
        assert_eq!(bounded.refused(), 1);
        assert_eq!(word(&mut bounded, 8), Some(0));
        assert_eq!(half(&mut bounded, 8), None);
        assert_eq!(bounded.refused(), 2);
        let mut bounded = Bounded::new(&mut zeros, Allowance { reads: 2, bytes: 20 });
        assert_eq!((word(&mut bounded, 0), bounded.refused()), (None, 0));
    }
}
