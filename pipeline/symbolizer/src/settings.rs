//! What a [`Symbolizer`](crate::Symbolizer) may use and where it looks.

use std::path::PathBuf;
use std::time::Duration;

/// What a [`Symbolizer`](crate::Symbolizer) may use and where it looks. All sizes are in bytes.
///
/// Files are hostile: each limit is checked before anything of that size is allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What is kept between questions: three quarters for symbol tables and DWARF, one quarter for answers.
    pub cache_bytes: usize,
    /// Files longer than this are not looked into.
    pub max_object_bytes: u64,
    /// A symbol table, with its strings, that is larger is skipped.
    pub max_symbol_bytes: usize,
    /// DWARF whose sections are larger, decompressed and in total, is skipped: the ELF symbols are all there is.
    pub max_dwarf_bytes: usize,
    /// Perf maps are read up to here.
    pub max_perf_map_bytes: u64,
    /// Objects that are known at the same time: the one that was used least recently makes room.
    pub max_objects: usize,
    /// Files that are kept open at the same time: the one that was used least recently is closed.
    pub max_open_files: usize,
    /// Addresses that wait at the same time: further ones are refused, and may be asked again.
    pub max_waiting: usize,
    /// Folders with separate debug files, as GDB's `debug-file-directory` (gdb documentation, "Debugging Information in
    /// Separate Files"): `FOLDER/.build-id/xx/yyyy.debug`, and `FOLDER/path/of/object/LINK` for a debug link.
    pub debug_folders: Vec<PathBuf>,
    /// Whether names are demangled.
    pub demangle: bool,
    /// Whether DWARF is read, for inlined functions, files and lines.
    pub dwarf: bool,
    /// Whether files on FUSE file systems are read. Off by default, since whoever serves the file can let a read hang
    /// for ever, and with it all work that waits behind. Containers of rootless Podman may need it (`fuse-overlayfs`).
    pub fuse: bool,
    /// For how long answers wait for a debug file that a [`DebugFileServer`](crate::DebugFileServer) brings; what comes
    /// later makes them better. Shorter where nothing comes at all.
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
