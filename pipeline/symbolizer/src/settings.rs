//! The limits of a [`Symbolizer`](crate::Symbolizer), and the folders where it searches.

use std::path::PathBuf;
use std::time::Duration;

/// The limits of a [`Symbolizer`](crate::Symbolizer), and the folders where it searches. All sizes are in bytes.
///
/// Files are hostile, so each limit is checked before memory of that size is allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Size of the caches: three quarters for symbol tables and DWARF, one quarter for answers.
    pub cache_bytes: usize,
    /// The maximum length of a file. Longer files are not read.
    pub max_object_bytes: u64,
    /// The maximum size of a symbol table with its strings. Larger ones are skipped.
    pub max_symbol_bytes: usize,
    /// The maximum total size of the decompressed DWARF sections of a file. Larger DWARF is skipped, and only ELF
    /// symbols are used.
    pub max_dwarf_bytes: usize,
    /// Perf maps are read up to this length.
    pub max_perf_map_bytes: u64,
    /// The maximum number of known objects. The least recently used one is evicted.
    pub max_objects: usize,
    /// The maximum number of open files. The least recently used one is closed.
    pub max_open_files: usize,
    /// The maximum number of waiting addresses. Further ones are refused and can be requested again.
    pub max_waiting: usize,
    /// Folders with separate debug files, like GDB's `debug-file-directory` (gdb documentation, "Debugging Information
    /// in Separate Files"): `FOLDER/.build-id/xx/yyyy.debug`, and `FOLDER/path/of/object/LINK` for a debug link.
    pub debug_folders: Vec<PathBuf>,
    /// Whether names are demangled.
    pub demangle: bool,
    /// Whether DWARF is read, for inlined functions, files and lines.
    pub dwarf: bool,
    /// Whether files on FUSE file systems are read. Off by default, because the server of the file system can make a
    /// read hang forever, and with it all other requests. Containers of rootless Podman may need it (`fuse-overlayfs`).
    pub fuse: bool,
    /// How long answers wait for a debug file that a [`DebugFileServer`](crate::DebugFileServer) downloads. They wait
    /// for a shorter time if no data arrives at all. A file that arrives later still improves the answers.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            max_object_bytes: 8 << 30,
            max_symbol_bytes: 256 << 20,
            max_dwarf_bytes: 512 << 20,
            max_perf_map_bytes: 64 << 20,
            max_objects: 4096,
            max_open_files: 128,
            max_waiting: 1 << 20,
            debug_folders: vec![PathBuf::from("/usr/lib/debug")],
            demangle: true,
            dwarf: true,
            fuse: false,
            patience: Duration::from_secs(2),
        }
    }
}
