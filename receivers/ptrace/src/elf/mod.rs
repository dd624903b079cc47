//! What unwinding needs of ELF files, read as the hostile input that it is.
//!
//! Read are the program headers, the notes with the build id, `.eh_frame_hdr` and `.eh_frame`; nothing of symbols or debug
//! information. Everything is read with `pread`: a file that is cut off while it is mapped is a SIGBUS. Every size is held
//! against a limit and the file's own length before memory is taken for it.

mod cache;

pub use cache::ObjectCache;

/// An ELF file, as far as unwinding needs it.
#[derive(Debug)]
pub struct Object {}
