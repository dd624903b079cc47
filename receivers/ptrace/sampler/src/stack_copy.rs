//! Reads a thread's stack: first one piece as large as the thread's recent stacks, then further pieces on demand.
//!
//! If a running thread is stopped, its stack is copied while it is stopped, and unwound afterwards from the copy alone.
//! If perf events copied a part of its stack, a reader reads the rest from memory while the thread is kept from
//! running. A blocked thread's stack is read without stopping the thread, so more can be read whenever the unwinder
//! needs it; a later check shows whether the thread ran in the meantime. Threads whose stacks are in several places (an
//! alternate signal stack, a huge frame) are unwound while they are stopped, since only unwinding finds these places.
//!
//! Every word that is read is logged. The unwinder is deterministic, so as long as registers, code and these words are
//! the same, the stack is too.

use crate::process_files::ProcessFiles;
use crate::unwind::StackMemory;

/// How far below the stack pointer a function may use the stack (System V ABI for x86-64), in bytes.
const RED_ZONE: u64 = 128;

/// The smallest copy of a stack, in bytes.
const LEAST: usize = 4 << 10;

/// The size of the first copy of a thread's stack, in bytes.
const AT_FIRST: usize = 32 << 10;

/// How many bytes are read when the unwinder needs an address outside of the copy, and how often that is done at most.
const PIECE: usize = 4 << 10;

const MOST_PIECES: usize = 64;

/// A piece of a stack.
#[derive(Debug, Default)]
struct CopiedPiece {
    start: u64,
    bytes: Vec<u8>,
}

impl CopiedPiece {
    fn fill(&mut self, files: &ProcessFiles, start: u64, length: usize) -> bool {
        self.start = start;
        self.bytes.resize(length, 0);
        let read = files.read_memory(start, &mut self.bytes);
        self.bytes.truncate(read);
        read > 0
    }

    fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes.get(offset..)?.first_chunk::<8>()?;
        Some(u64::from_ne_bytes(*word))
    }
}

/// A copy of a stack. Its buffers are reused.
#[derive(Debug, Default)]
pub(crate) struct StackPieces {
    first: CopiedPiece,
    others: Vec<CopiedPiece>,
    used_others: usize,
    /// How many bytes of the first piece were used.
    extent: usize,
}

/// A word that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word {
    address: u64,
    value: u64,
}

impl StackPieces {
    /// Copies `size` bytes from the stack pointer on, and the red zone. Returns whether anything could be read.
    pub(crate) fn copy(&mut self, files: &ProcessFiles, stack_pointer: u64, size: usize) -> bool {
        self.used_others = 0;
        self.extent = 0;
        let start = stack_pointer.saturating_sub(RED_ZONE);
        let length = size.max(LEAST) + RED_ZONE as usize;
        self.first.fill(files, start, length)
            // The red zone may extend into the page below, which may not be mapped.
            || self.first.fill(files, stack_pointer, size.max(LEAST))
    }

    /// Whether the copy has `size` bytes.
    pub(crate) fn holds(&self, size: usize) -> bool {
        self.first.bytes.len() >= size.max(LEAST)
    }

    /// Uses a copy made by the kernel, which starts at the stack pointer.
    pub(crate) fn take(&mut self, stack_pointer: u64, bytes: &[u8]) {
        self.used_others = 0;
        self.extent = 0;
        self.first.start = stack_pointer;
        self.first.bytes.clear();
        self.first.bytes.extend_from_slice(bytes);
    }

    /// Discards what was read in addition to the copy.
    pub(crate) fn forget_further(&mut self) {
        self.used_others = 0;
    }

    /// Copies `bytes` at an address from the copy; returns `false` if not all of them are in it.
    pub(crate) fn copied_bytes(&self, address: u64, bytes: &mut [u8]) -> bool {
        let at = address.checked_sub(self.first.start).and_then(|at| usize::try_from(at).ok());
        let found = at.and_then(|at| self.first.bytes.get(at..)?.get(..bytes.len()));
        found.is_some_and(|found| {
            bytes.copy_from_slice(found);
            true
        })
    }

    /// Whether nothing was read in addition to the copy.
    pub(crate) fn sufficed(&self) -> bool {
        self.used_others == 0
    }

    /// How many bytes of the first piece were used, from the stack pointer on.
    pub(crate) fn extent(&self) -> usize {
        self.extent
    }

    /// A reader of the copy alone, for a thread that is running again.
    pub(crate) fn copied(&mut self) -> StackReader<'_> {
        StackReader { pieces: self, live: LiveStack::Nothing, log: None }
    }

    /// A reader of the copy that reads further memory on demand; every word that is read is logged.
    pub(crate) fn live<'a>(&'a mut self, files: &'a ProcessFiles, log: Option<&'a mut Vec<Word>>) -> StackReader<'a> {
        StackReader { pieces: self, live: LiveStack::Anywhere(files), log }
    }

    /// Whether all these words are still the same.
    pub(crate) fn unchanged(&mut self, files: &ProcessFiles, words: &[Word]) -> bool {
        let mut reader = self.live(files, None);
        words.iter().all(|word| reader.read_u64(word.address) == Some(word.value))
    }
}

/// Whether and how memory is read on demand.
#[derive(Debug, Clone, Copy)]
enum LiveStack<'a> {
    Nothing,
    Anywhere(&'a ProcessFiles),
}

/// The unwinder's view of a stack.
#[derive(Debug)]
pub(crate) struct StackReader<'a> {
    pieces: &'a mut StackPieces,
    live: LiveStack<'a>,
    log: Option<&'a mut Vec<Word>>,
}

impl StackMemory for StackReader<'_> {
    fn read_u64(&mut self, address: u64) -> Option<u64> {
        let value = self.word(address, true)?;
        if let Some(log) = &mut self.log {
            log.push(Word { address, value });
        }
        Some(value)
    }

    fn peek_u64(&mut self, address: u64) -> Option<u64> {
        self.word(address, false)
    }
}

impl StackReader<'_> {
    fn word(&mut self, address: u64, needed: bool) -> Option<u64> {
        let pieces = &mut *self.pieces;
        if let Some(value) = pieces.first.word(address) {
            if needed {
                let end = address - pieces.first.start + 8;
                pieces.extent = pieces.extent.max(usize::try_from(end).unwrap_or(0));
            }
            return Some(value);
        }
        let others = &pieces.others[..pieces.used_others];
        if let Some(value) = others.iter().rev().find_map(|piece| piece.word(address)) {
            return Some(value);
        }
        let files = match self.live {
            LiveStack::Nothing => return None,
            LiveStack::Anywhere(files) => files,
        };
        if pieces.used_others == MOST_PIECES {
            return None;
        }
        if pieces.others.len() == pieces.used_others {
            pieces.others.push(CopiedPiece::default());
        }
        let piece = &mut pieces.others[pieces.used_others];
        if !piece.fill(files, address, PIECE) {
            return None;
        }
        pieces.used_others += 1;
        piece.word(address)
    }
}

/// How much of a thread's stack is copied while it is stopped, adapted to its recent stacks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopySize {
    bytes: usize,
    most: usize,
}

impl CopySize {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(LEAST);
        Self { bytes: (8 << 10).min(most), most }
    }

    /// The size for a thread that is stopped for the first time: its stacks are not known yet, and copying more is
    /// harmless once.
    pub(crate) fn at_first(self) -> usize {
        self.bytes.max(AT_FIRST.min(self.most))
    }

    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    /// Called when `extent` bytes were enough to unwind a stack. The size shrinks slowly: a truncated stack is worse
    /// than a few bytes too many.
    pub(crate) fn sufficed(&mut self, extent: usize) {
        let wanted = extent + extent / 4 + (1 << 10);
        if wanted < self.bytes {
            self.bytes -= (self.bytes - wanted) / 64;
        } else {
            self.bytes = wanted.min(self.most);
        }
    }

    /// Called when a stack continued beyond the copy, `distance` bytes above the stack pointer. Returns whether a
    /// larger copy will reach that far.
    pub(crate) fn fell_short(&mut self, distance: u64) -> bool {
        let Ok(distance) = usize::try_from(distance) else { return false };
        if distance >= self.most || self.bytes == self.most {
            return false;
        }
        // A size that is too large shrinks within a second, but a stack that was truncated cannot be sampled again.
        self.bytes = (distance + distance / 2).max(self.bytes * 4).min(self.most);
        true
    }
}

#[cfg(test)]
mod tests;
