//! What is known about an address.

use std::sync::Arc;

/// What is known about an address at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet.
    Pending,
    /// What the ELF symbol table says; DWARF is still to come.
    Symbols(Arc<Symbols>),
    /// All there will be.
    Final(Arc<Symbols>),
    /// There is no name, and there will be none unless it is asked again.
    Unknown(Unknown),
}

impl Answer {
    /// The names, as far as they are known.
    #[must_use]
    pub fn symbols(&self) -> Option<&Arc<Symbols>> {
        match self {
            Self::Symbols(symbols) | Self::Final(symbols) => Some(symbols),
            Self::Pending | Self::Unknown(_) => None,
        }
    }

    /// Whether a later answer may say more.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Pending | Self::Symbols(_))
    }
}

/// Why there is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unknown {
    /// It was never asked, or the answer had to make room and may be asked again.
    NotAsked,
    /// Too many addresses were waiting. May be asked again.
    Refused,
    /// The file was not found, is not a regular one, may not be read, or is not the one of the key.
    NoFile,
    /// The file has no symbol for this address.
    NoSymbol,
    /// The file, or what would have to be read of it, is larger than allowed.
    TooLarge,
    /// The file is no ELF file, or not one that makes sense.
    Malformed,
    /// The file is of a kind that is not read (32-bit ELF).
    Unsupported,
    /// Looking failed; a defect of profbridge.
    Failed,
}

/// The functions that were being executed at an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Symbols {
    /// The function whose code it is and those inlined into it, innermost first. Never empty.
    pub frames: Box<[Frame]>,
    /// How far the names are to be trusted.
    pub named_by: NamedBy,
}

impl From<Vec<Frame>> for Symbols {
    /// Names that symbols or debug information have.
    fn from(frames: Vec<Frame>) -> Self {
        Self { frames: frames.into(), named_by: NamedBy::Symbols }
    }
}

/// Where names come from, the best last: a better one takes the place of a worse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NamedBy {
    /// The file's base name and the virtual address at which the unwind table says that the function starts, as
    /// `objdump -d` and `addr2line` of the same file have it: it tells functions apart, and is no name.
    UnwindTable,
    /// Go's own table of functions. Names are those of the symbol table; inlined functions are missing.
    GoTable,
    /// Symbol tables, debug information, perf maps.
    Symbols,
}

/// One function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Its name, demangled.
    pub function: Arc<str>,
    /// Its name as it stands in the file.
    pub system_name: Arc<str>,
    /// The source file; absolute as far as DWARF says what relative paths are relative to.
    pub file: Option<Arc<str>>,
    /// The line, from 1; 0 where it is unknown.
    pub line: u32,
    /// The column, from 1; 0 where it is unknown.
    pub column: u32,
}
