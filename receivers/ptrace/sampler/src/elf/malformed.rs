//! The errors of files that could not be used.

use std::io;

/// What is wrong with a file, or with a part of it.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// The file does not start like an ELF file: it is data, or code that a program compiled into a file.
    #[error("not an ELF file")]
    NotElf,
    /// The file is an ELF file for another machine.
    #[error("{0}, only 64-bit x86-64 can be unwound")]
    Architecture(String),
    /// The file is neither an executable nor a shared object.
    #[error("an ELF file of type {0}, neither an executable nor a shared object")]
    Type(u16),
    /// A part is larger than its limit.
    #[error("{what} of {length} bytes or entries, more than {limit}")]
    TooLarge {
        /// The name of the part.
        what: &'static str,
        /// The length given in the file.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// A part lies outside of the file.
    #[error("{what} ({length} bytes at {offset:#x}) outside of the file")]
    OutOfFile {
        /// The name of the part.
        what: &'static str,
        /// The offset given in the file.
        offset: u64,
        /// The length given in the file.
        length: u64,
    },
    /// A part is inconsistent.
    #[error("{what}: {reason}")]
    Nonsense {
        /// The name of the part.
        what: &'static str,
        /// The reason.
        reason: String,
    },
    /// The memory for a part could not be allocated.
    #[error("no memory for {what}")]
    Memory {
        /// The name of the part.
        what: &'static str,
    },
    /// A part cannot be read.
    #[error("cannot read {what}: {error}")]
    Read {
        /// The name of the part.
        what: &'static str,
        /// The error of the system call.
        error: io::Error,
    },
}
