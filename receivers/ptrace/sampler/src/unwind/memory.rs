//! The memory from which the unwinder reads stacks: copies taken while the thread was stopped.

/// The stack memory of a thread at the moment of the sample.
pub trait StackMemory {
    /// The eight bytes at `address`, little-endian; `None` if they are not available.
    fn read_u64(&mut self, address: u64) -> Option<u64>;

    /// Reads a word on which the result does not depend, since a search rejects it. An implementation that records
    /// reads, to notice later whether a stack has changed, need not record this read.
    fn peek_u64(&mut self, address: u64) -> Option<u64> {
        self.read_u64(address)
    }
}

/// Memory whose reads all become peeks.
pub(super) struct Peek<'a>(pub(super) &'a mut dyn StackMemory);

impl StackMemory for Peek<'_> {
    fn read_u64(&mut self, address: u64) -> Option<u64> {
        self.0.peek_u64(address)
    }
}

/// A copy of a stack's bytes, and of a second stack's if the thread is in a signal handler on an alternate stack (or
/// on another coroutine's). Buffers are reused: clear `bytes` and `second_bytes`, and fill them again.
#[derive(Debug, Clone, Default)]
pub struct StackCopy {
    /// The address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The address of the second stack's first byte.
    pub second_start: u64,
    /// The second stack's bytes; empty if there is none.
    pub second_bytes: Vec<u8>,
}

impl StackMemory for StackCopy {
    fn read_u64(&mut self, address: u64) -> Option<u64> {
        word(&self.bytes, self.start, address).or_else(|| word(&self.second_bytes, self.second_start, address))
    }
}

fn word(bytes: &[u8], start: u64, address: u64) -> Option<u64> {
    let offset = usize::try_from(address.checked_sub(start)?).ok()?;
    let word = bytes.get(offset..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*word))
}
