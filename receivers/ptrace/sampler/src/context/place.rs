//! Where a thread has its variable.
//!
//! Sources: "ELF Handling For Thread-Local Storage" (x86-64) for the thread control block and the table of blocks
//! (`dtv`); glibc `sysdeps/x86_64/dl-tlsdesc.h` for descriptors, `sysdeps/generic/dl-dtv.h` for the table's entries.

use std::ops::Range;

use crate::elf::RelocationKind;
use crate::runtime::{Target, word};

/// The most words of one variable that are looked at.
pub const MAX_RELOCATIONS: usize = 8;

/// The most files with thread-local data that a process is believed to have.
const MAX_MODULES: u64 = 1 << 16;

/// The largest offset in a file's thread-local data, and the largest distance from the thread pointer, in bytes.
const MAX_OFFSET: u64 = 1 << 30;

/// The size of an entry of glibc's table of blocks: the block's address, and what to free.
const ENTRY: u64 = 16;

/// A word that the dynamic linker has written, or will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Word {
    /// What it is.
    pub kind: RelocationKind,
    /// Where, in the process.
    pub address: u64,
}

/// The variable of one file of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variable {
    /// Its offset in the thread-local data of its file.
    pub offset: u64,
    /// Its distance from the thread pointer, wrapping, where the file is the program itself.
    pub in_program: Option<u64>,
    /// The words that tell its place, at most [`MAX_RELOCATIONS`].
    pub words: Vec<Word>,
    /// Where the dynamic linker's code is: only its functions make descriptors that are understood here.
    pub linker: Vec<Range<u64>>,
    /// Whether the C library keeps its table of blocks as glibc does.
    pub glibc: bool,
}

/// Where each thread has a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// So far from the thread pointer, wrapping.
    Fixed(u64),
    /// In the block of a file that threads may get only when they first use it.
    Block {
        /// The file's number.
        module: u64,
        /// The offset in the block.
        offset: u64,
    },
}

/// A thread's block, as it was found: it moves only when files are loaded or unloaded.
pub type Block = u64;

impl Variable {
    /// Its place; `None` while the dynamic linker has not written it yet, and where it is none that is known here.
    pub fn place(&self, target: &mut dyn Target) -> Option<Place> {
        if let Some(distance) = self.in_program {
            return fixed(distance);
        }
        self.words.iter().take(MAX_RELOCATIONS).find_map(|word| self.told(*word, target))
    }

    fn told(&self, told: Word, target: &mut dyn Target) -> Option<Place> {
        let first = word(target, told.address)?;
        let second = |target: &mut dyn Target| word(target, told.address.wrapping_add(8));
        match told.kind {
            RelocationKind::Distance => fixed(first),
            RelocationKind::Module => self.block(first, second(target)?),
            RelocationKind::ModuleOnly => self.block(first, self.offset),
            RelocationKind::Descriptor => {
                // Other functions have arguments of other kinds: before its first use, or a debugger's.
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

/// Thread-local data that is not in a block of its own lies below the thread pointer.
fn fixed(distance: u64) -> Option<Place> {
    let below = distance.wrapping_neg();
    (1..MAX_OFFSET).contains(&below).then_some(Place::Fixed(distance))
}

impl Place {
    /// The address of the variable of the thread with this thread pointer. `known` is the block that was found for it
    /// before, 0 if none was. `None` where the thread has none yet.
    pub fn of(self, pointer: u64, known: &mut Block, target: &mut dyn Target) -> Option<u64> {
        match self {
            Self::Fixed(distance) => Some(pointer.wrapping_add(distance)),
            Self::Block { module, offset } => {
                if *known == 0 {
                    let table = word(target, pointer.wrapping_add(8))?;
                    let block = word(target, table.wrapping_add(ENTRY.wrapping_mul(module)))?;
                    // All ones stand for a block that the thread has not got yet.
                    *known = Some(block).filter(|block| *block != u64::MAX && *block != 0)?;
                }
                Some(known.wrapping_add(offset))
            }
        }
    }
}
