//! What is asked, and who answers.

use std::sync::Arc;

use profbridge_symbolizer::Answer;

/// What tells a file from all others: a hash of its content, in lower-case hexadecimal digits
/// (opentelemetry-specification `specification/profiles/mappings.md`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FileId {
    /// Its GNU build id (`process.executable.build_id.gnu`), which its separate debug file shares.
    Gnu(Arc<str>),
    /// A hash of its first and last 4096 bytes and its length (`process.executable.build_id.htlhash`).
    Htlhash(Arc<str>),
}

/// Where in a file code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// An ELF virtual address, as the eBPF profiler sends it.
    Virtual(u64),
    /// A place in the file, in bytes from its start: all that is known of an address of a process's memory, as pprof
    /// has it, before the file was seen ([`Mapping::offset_of`](profbridge_model::Mapping::offset_of)).
    InFile(u64),
}

/// A file of machine code that a profiler has seen mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// What it is told by: no other file may be read in its place.
    pub id: FileId,
    /// Its path or, from the eBPF profiler, its base name.
    pub filename: Arc<str>,
    /// Processes that have it mapped: few of them, and none where [`Names::wants_processes`] said so.
    pub processes: Vec<Process>,
}

/// A process as its profile describes it. Everything in here is what somebody claims.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Process {
    /// `process.pid`: in which namespace is not said.
    pub pid: Option<u32>,
    /// `process.executable.path`, as the process sees it.
    pub executable: Option<Arc<str>>,
    /// `host.id` and `host.name`.
    pub hosts: Vec<Arc<str>>,
    /// Whether it has a `container.id`: its paths are then not this machine's.
    pub contained: bool,
    /// Who sent the profile.
    pub peer: Option<Arc<str>>,
}

/// Knows names of addresses, or finds them out in the background. No method waits. `Send` and not `Sync`: the processor
/// owns it, which moves to the pipeline's thread and is called by that alone.
pub trait Names: Send {
    /// Whether it matters for a file which processes have it mapped: it has to be looked for.
    fn wants_processes(&self, id: &FileId) -> bool;

    /// Asks for the names of addresses, those of callers moved back into the call.
    fn ask(&mut self, file: &MappedFile, addresses: &[Address]);

    /// What is known by now about an address that was asked for. `last`: the asker has to do with it.
    fn answer(&mut self, id: &FileId, address: Address, last: bool) -> Answer;

    /// How many attempts to bring a debug file have failed since the last call.
    fn failed_downloads(&mut self) -> u64 {
        0
    }
}
