//! What unwinding needs of ELF files, read as the hostile input that it is.
//!
//! Read are the program headers, the notes with the build id, `.eh_frame_hdr` and `.eh_frame`; nothing of symbols or
//! debug information; of Go's table of functions its place. Everything is read with `pread`: a file that is cut off
//! while it is mapped is a SIGBUS. Every size is held against a limit and the file's own length before memory is taken
//! for it.

mod cache;
mod go_table;
mod hash;
mod headers;
mod malformed;
mod notes;
mod object;
mod source;
mod tables;
#[cfg(test)]
mod tests;

pub use cache::{CachedFile, ObjectCache};
pub use go_table::GoTable;
pub use hash::htlhash;
pub use headers::Segment;
pub use malformed::Malformed;
pub use object::Object;
pub use source::{FileSource, Source};
pub(crate) use tables::Slice;
pub use tables::{Context, FoundRow, Room, UnwindTables};
