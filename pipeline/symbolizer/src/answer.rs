//! Answers: what is known about an address.

use std::sync::Arc;

/// The current knowledge about an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SymbolAnswer {
    /// Nothing is known yet.
    Pending,
    /// Names from the ELF symbol table; DWARF will follow.
    Symbols(Arc<Symbols>),
    /// The answer is complete: nothing will be added.
    Final(Arc<Symbols>),
    /// There is no name. A later request may have another result.
    Unknown(Unknown),
}

impl SymbolAnswer {
    /// The names that are known so far.
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
    /// The address was never requested, or its answer was evicted. Ask again.
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
    pub frames: Box<[SymbolFrame]>,
    /// The source of the names.
    pub named_by: NamedBy,
}

impl From<Vec<SymbolFrame>> for Symbols {
    /// Creates symbols whose names come from symbol tables or debug information.
    fn from(frames: Vec<SymbolFrame>) -> Self {
        Self { frames: frames.into(), named_by: NamedBy::Symbols }
    }
}

/// The source of names, from worst to best. A better source replaces a worse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NamedBy {
    /// The file's base name, and the function's start address from the unwind table, as `objdump -d` and `addr2line`
    /// print it for the same file. It distinguishes functions, but is not a name.
    UnwindTable,
    /// Go's own function table. Names equal those of the symbol table; inlined functions are missing.
    GoTable,
    /// Symbol tables, debug information, perf maps.
    Symbols,
}

/// One function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SymbolFrame {
    /// The name of the function, demangled.
    pub function: Arc<str>,
    /// The name of the function as it is in the file.
    pub system_name: Arc<str>,
    /// The source file. Absolute if DWARF contains the folder to which the path is relative.
    pub file: Option<Arc<str>>,
    /// The line, from 1; 0 if unknown.
    pub line: u32,
    /// The column, from 1; 0 if unknown.
    pub column: u32,
}
