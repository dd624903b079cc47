//! The parts of ELF files that unwinding needs. Files are treated as hostile input.
//!
//! Reads the program headers, the notes with the build id, `.eh_frame_hdr` and `.eh_frame`, the address of Go's
//! function table, and the few symbols by which interpreters and trace contexts are found; no other symbols and no
//! debug information. Files are read with `pread`, because reading a mapping whose file was truncated raises SIGBUS.
//! Every size is checked against a limit and the length of the file before memory is allocated for it.

mod cache;
mod go_table;
mod hash;
mod headers;
mod malformed;
mod notes;
mod object;
mod source;
mod symbols;
mod tables;
#[cfg(test)]
mod tests;
mod thread_local;

pub use cache::{CachedFile, ObjectCache};
pub use go_table::GoTable;
pub use hash::htlhash;
pub use headers::ElfSegment;
pub use malformed::Malformed;
pub use object::ElfObject;
pub use source::{ByteSource, FileSource};
pub use symbols::{Symbol, SymbolNames};
pub(crate) use tables::Slice;
pub use tables::{Context, FoundRow, Room, UnwindTables};
pub use thread_local::{Relocation, RelocationKind, THREAD_CONTEXT, ThreadLocal};
