//! Why a file could not be used.

use std::io;

/// What is wrong with a file, or with a part of it.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// It does not start like an ELF file: data, or code that a program compiled into a file.
    #[error("not an ELF file")]
    NotElf,
    /// It is an ELF file for another machine.
    #[error("{0}, only 64-bit x86-64 can be unwound")]
    Architecture(String),
    /// It is neither an executable nor a shared object.
    #[error("an ELF file of type {0}, neither an executable nor a shared object")]
    Type(u16),
    /// A part is larger than anything that exists.
    #[error("{what} of {length} bytes or entries, more than {limit}")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Its length as the file says it.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// A part lies outside of the file.
    #[error("{what} ({length} bytes at {offset:#x}) outside of the file")]
    OutOfFile {
        /// Which part.
        what: &'static str,
        /// Its offset as the file says it.
        offset: u64,
        /// Its length as the file says it.
        length: u64,
    },
    /// A part makes no sense.
    #[error("{what}: {reason}")]
    Nonsense {
        /// Which part.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// There is no memory for it.
    #[error("no memory for {what}")]
    Memory {
        /// Which part.
        what: &'static str,
    },
    /// It cannot be read.
    #[error("cannot read {what}: {error}")]
    Read {
        /// Which part.
        what: &'static str,
        /// The error of the system call.
        error: io::Error,
    },
}
