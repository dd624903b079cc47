//! Answers: what is known about an address.

use std::sync::Arc;

/// What is known about an address at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SymbolAnswer {
    /// Nothing yet.
    Pending,
    /// Names from the ELF symbol table; DWARF will follow.
    Symbols(Arc<Symbols>),
    /// Complete: nothing will be added.
    Final(Arc<Symbols>),
    /// There is no name. Asking again may change that.
    Unknown(Unknown),
}

impl SymbolAnswer {
    /// The names, as far as they are known.
    #[must_use]
    pub fn symbols(&self) -> Option<&Arc<Symbols>> {
        match self {
            Self::Symbols(symbols) | Self::Final(symbols) => Some(symbols),
            Self::Pending | Self::Unknown(_) => None,
        }
    }

    /// Whether a later answer may be better.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Pending | Self::Symbols(_))
    }
}

/// Why there is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unknown {
    /// It was never asked for, or its answer was evicted. Ask again.
    NotAsked,
    /// Too many addresses were waiting. Ask again.
    Refused,
    /// The file was not found, is not regular, is not readable, or does not match the key.
    NoFile,
    /// The file has no symbol for this address.
    NoSymbol,
    /// The file, or a part that is needed, is larger than allowed.
    TooLarge,
    /// The file is not ELF, or is malformed.
    Malformed,
    /// The file is of an unsupported kind (32-bit ELF).
    Unsupported,
    /// The lookup failed because of a defect in profbridge.
    Failed,
}

/// The functions that were being executed at an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Symbols {
    /// The function that contains the address and those inlined into it, innermost first. Never empty.
    pub frames: Box<[Frame]>,
    /// Where the names come from.
    pub named_by: NamedBy,
}

impl From<Vec<Frame>> for Symbols {
    /// Marks the names as coming from symbols or debug information.
    fn from(frames: Vec<Frame>) -> Self {
        Self { frames: frames.into(), named_by: NamedBy::Symbols }
    }
}

/// Where names come from, the best last. A better source replaces a worse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NamedBy {
    /// The file's base name and the function's start address by the unwind table, as `objdump -d` and `addr2line` print
    /// it for the same file. It distinguishes functions, but is not a name.
    UnwindTable,
    /// Go's own function table. Names equal those of the symbol table; inlined functions are missing.
    GoTable,
    /// Symbol tables, debug information, perf maps.
    Symbols,
}

/// One function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Its name, demangled.
    pub function: Arc<str>,
    /// Its name as the file has it.
    pub system_name: Arc<str>,
    /// The source file. Absolute if DWARF has the folder that the path is relative to.
    pub file: Option<Arc<str>>,
    /// The line, from 1; 0 if unknown.
    pub line: u32,
    /// The column, from 1; 0 if unknown.
    pub column: u32,
}
