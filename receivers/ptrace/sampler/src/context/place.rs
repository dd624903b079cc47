//! Finds the address of a thread-local variable in a given thread.
//!
//! Sources: "ELF Handling For Thread-Local Storage" (x86-64) for the thread control block and the table of blocks
//! (`dtv`); glibc `sysdeps/x86_64/dl-tlsdesc.h` for descriptors, `sysdeps/generic/dl-dtv.h` for the table's entries.

use std::ops::Range;

use crate::elf::RelocationKind;
use crate::runtime::{TargetMemory, word};

/// The maximum number of words that are examined for one variable.
pub const MAX_RELOCATIONS: usize = 8;

/// The maximum plausible number of files with thread-local data in a process.
const MAX_MODULES: u64 = 1 << 16;

/// The largest offset in a file's thread-local data, and the largest distance from the thread pointer, in bytes.
const MAX_OFFSET: u64 = 1 << 30;

/// The size of an entry in glibc's table of blocks: the block's address, and the address to free.
const ENTRY: u64 = 16;

/// A word in memory that the dynamic linker has written, or will write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Word {
    /// The kind of value in the word.
    pub kind: RelocationKind,
    /// The address of the word in the process.
    pub address: u64,
}

/// The thread-local variable of one file of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variable {
    /// The variable's offset in the thread-local data of its file.
    pub offset: u64,
    /// The variable's distance from the thread pointer, wrapping, if the file is the program itself.
    pub in_program: Option<u64>,
    /// The words that give the variable's position, at most [`MAX_RELOCATIONS`].
    pub words: Vec<Word>,
    /// The address ranges of the dynamic linker's code: a TLS descriptor is understood only if its function is in
    /// there.
    pub linker: Vec<Range<u64>>,
    /// Whether the C library has a table of blocks (`dtv`) like glibc's.
    pub glibc: bool,
}

/// The position of a variable, which is valid for all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At this distance from the thread pointer, wrapping.
    Fixed(u64),
    /// In the file's block, which a thread may get only when it first uses the variable.
    Block {
        /// The TLS module id of the file.
        module: u64,
        /// The offset in the block.
        offset: u64,
    },
}

/// The address of a thread's block, as last found: it moves only when files are loaded or unloaded.
pub type Block = u64;

impl Variable {
    /// The variable's position; `None` if the dynamic linker has not written it yet, or in an unknown form.
    pub fn place(&self, target: &mut dyn TargetMemory) -> Option<Place> {
        if let Some(distance) = self.in_program {
            return fixed(distance);
        }
        self.words.iter().take(MAX_RELOCATIONS).find_map(|word| self.place_in_word(*word, target))
    }

    fn place_in_word(&self, stored: Word, target: &mut dyn TargetMemory) -> Option<Place> {
        let first = word(target, stored.address)?;
        let second = |target: &mut dyn TargetMemory| word(target, stored.address.wrapping_add(8));
        match stored.kind {
            RelocationKind::Distance => fixed(first),
            RelocationKind::Module => self.block(first, second(target)?),
            RelocationKind::ModuleOnly => self.block(first, self.offset),
            RelocationKind::Descriptor => {
                // Other functions take other arguments: those used before the variable's first use, or by a debugger.
                if !self.linker.iter().any(|code| code.contains(&first)) {
                    return None;
                }
                let argument = second(target)?;
                if argument.cast_signed() < 0 {
                    return fixed(argument);
                }
                let module = word(target, argument)?;
                self.block(module, word(target, argument.wrapping_add(8))?)
            }
        }
    }

    fn block(&self, module: u64, offset: u64) -> Option<Place> {
        let sensible = self.glibc && (1..MAX_MODULES).contains(&module) && offset < MAX_OFFSET;
        sensible.then_some(Place::Block { module, offset })
    }
}

/// Static thread-local data is below the thread pointer.
fn fixed(distance: u64) -> Option<Place> {
    let below = distance.wrapping_neg();
    (1..MAX_OFFSET).contains(&below).then_some(Place::Fixed(distance))
}

impl Place {
    /// The address of the variable in the thread with this thread pointer. `known` is the thread's block as last found,
    /// or 0. `None` if the thread has no block yet.
    pub fn address(self, pointer: u64, known: &mut Block, target: &mut dyn TargetMemory) -> Option<u64> {
        match self {
            Self::Fixed(distance) => Some(pointer.wrapping_add(distance)),
            Self::Block { module, offset } => {
                if *known == 0 {
                    let table = word(target, pointer.wrapping_add(8))?;
                    let block = word(target, table.wrapping_add(ENTRY.wrapping_mul(module)))?;
                    // All ones mean that the thread has no block yet.
                    *known = Some(block).filter(|block| *block != u64::MAX && *block != 0)?;
                }
                Some(known.wrapping_add(offset))
            }
        }
    }
}
