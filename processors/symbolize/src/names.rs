//! The interface between the processor and the source of names.

use std::sync::Arc;

use profbridge_symbolizer::SymbolAnswer;

/// Identifies a file: a hash of its content, in lower-case hexadecimal digits (opentelemetry-specification
/// `specification/profiles/mappings.md`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FileId {
    /// The GNU build id (`process.executable.build_id.gnu`), which a separate debug file shares.
    Gnu(Arc<str>),
    /// A hash of the first and last 4096 bytes and the length (`process.executable.build_id.htlhash`).
    Htlhash(Arc<str>),
}

/// The address of code in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeAddress {
    /// An ELF virtual address, as the eBPF profiler sends it.
    Virtual(u64),
    /// A file offset in bytes. pprof has addresses in a process's memory. Before the file is found, these can be
    /// converted only to an offset ([`Mapping::offset_of`](profbridge_model::Mapping::offset_of)).
    InFile(u64),
}

/// A native file that a profiler saw mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// The id of the file. No file with another id may be read instead.
    pub id: FileId,
    /// The path of the file or, from the eBPF profiler, its base name.
    pub filename: Arc<str>,
    /// Some processes that map the file. Empty unless [`NameSource::wants_processes`] returned true.
    pub processes: Vec<MappingProcess>,
}

/// A process as described in its profile. All fields are unverified claims.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct MappingProcess {
    /// `process.pid`, in an unknown PID namespace.
    pub pid: Option<u32>,
    /// `process.executable.path`, as the process sees it.
    pub executable: Option<Arc<str>>,
    /// `host.id` and `host.name`.
    pub hosts: Vec<Arc<str>>,
    /// Whether the process has a `container.id`, so that its paths are not valid on this machine.
    pub contained: bool,
    /// Sender of the profile.
    pub peer: Option<Arc<str>>,
}

/// Provides names of addresses, which it looks up in the background. No method blocks. `Send` but not `Sync`: the
/// processor owns it, and only the pipeline's thread calls it.
pub trait NameSource: Send {
    /// Whether a search for this file needs the processes that map it.
    fn wants_processes(&self, id: &FileId) -> bool;

    /// Requests the names of addresses. The caller must already have moved return addresses back into the call.
    fn ask(&mut self, file: &MappedFile, addresses: &[CodeAddress]);

    /// The current answer for a requested address. `last` means that the caller will not ask again.
    fn answer(&mut self, id: &FileId, address: CodeAddress, last: bool) -> SymbolAnswer;

    /// Number of failed downloads of debug files since the last call.
    fn failed_downloads(&mut self) -> u64 {
        0
    }
}
