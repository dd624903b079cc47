//! The code that is mapped in a process, with everything needed to unwind it.
//!
//! A module is identified by its file (device and inode) and its bias, never by its path: paths are reused, and V8
//! maps node's own text a second time at another bias. A mapped file keeps its index however often the maps are read.
//! Everything read here was made by the target: it is checked, limited, and never mapped into this process.

#[cfg(test)]
pub(crate) mod fake;
mod history;
mod image;
mod load;
mod maps;
#[cfg(target_os = "linux")]
mod process;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use history::History;
pub use history::MappedAt;
pub(crate) use maps::recorded;
pub use maps::{MAX_ENTRIES, executable};
pub use view::{CodeMemory, FileId, MapsEntry, ProcessView};

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::Variable;
use crate::elf::{ElfObject, ObjectCache};
use crate::message::Location;
use crate::runtime::Found;

/// An executable mapping.
#[derive(Debug, Clone)]
pub struct Module {
    /// The start address.
    pub start: u64,
    /// The end address.
    pub end: u64,
    /// The mapped file as shown in the maps: inode 0 for memory without a file.
    pub file: FileId,
    /// The mapped file, as an index into [`AddressSpace::mappings`]; `None` for code outside of any file.
    pub mapping: Option<u32>,
    /// The bias: added (wrapping) to an address of the file (ELF virtual address), it gives the address in the process.
    pub bias: u64,
    /// The data needed for unwinding.
    pub object: Option<Arc<ElfObject>>,
    /// The kind of code.
    pub kind: ModuleKind,
    /// Addresses of the file with V8's built-in functions, which keep frame pointers; empty in other files.
    pub builtins: Range<u64>,
}

impl Module {
    /// Whether Go compiled this module.
    pub(crate) fn is_go(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.is_go())
    }
}

/// The origin of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleKind {
    /// From an ELF file, or the kernel's vDSO.
    File,
    /// Compiled at run time: memory without a file, or with one that is not an ELF file.
    Generated,
    /// From a file that cannot be used, see [`AddressSpace::faults`]. Callers of such code are found only by scanning
    /// the stack.
    Unusable,
    /// The kernel's vsyscall page, which cannot be read.
    Vsyscall,
}

/// A file that is mapped executable, at one bias.
#[derive(Debug, Clone)]
pub struct MappedFile {
    /// The file's path in the process's own mount namespace, or `[vdso]`. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The start of the file's executable segments (ELF virtual address).
    pub start: u64,
    /// The end of the file's executable segments (ELF virtual address).
    pub end: u64,
    /// The file offset of `start`.
    pub file_offset: u64,
    /// The GNU build id.
    pub build_id: Option<Vec<u8>>,
    /// The file's hash as OTel's profiler defines it, see [`crate::message::Mapping::htlhash`].
    pub htlhash: Option<[u8; 16]>,
    /// Whether this is the process's main executable.
    pub main: bool,
    /// Whether Go compiled the file.
    pub go: bool,
    /// The file, open for reading: exactly the mapped one, even if it was replaced or deleted.
    pub file: Option<Arc<File>>,
}

/// A file of a process that could not be used, or a part of one. The rest is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadFault {
    /// The path, as in the maps.
    pub path: String,
    /// The error.
    pub reason: String,
}

/// Why an address space could not be loaded at all.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The maps could not be read.
    #[error("cannot read the maps: {0}")]
    Maps(#[source] std::io::Error),
    /// The memory cannot be read.
    #[error("cannot read the memory: {0}")]
    Memory(#[source] std::io::Error),
    /// The maps are empty: the process is gone, or executed another program.
    #[error("the process is gone")]
    Gone,
    /// The main executable is not for x86-64.
    #[error("the executable {path} is {architecture}, only 64-bit x86-64 can be unwound")]
    Architecture {
        /// The path of the executable.
        path: String,
        /// The architecture for which the executable was built.
        architecture: String,
    },
}

/// The id of the next address space. Its upper bit distinguishes these ids from the ids of objects.
static NEXT: AtomicU64 = AtomicU64::new(1 << 63);

/// The code of one process. It is immutable: when the process maps something new, another one is loaded.
#[derive(Debug)]
pub struct AddressSpace {
    id: u64,
    modules: Arc<Vec<Module>>,
    /// Ranges in which modules are ignored, because the latest mapping there has not been read yet.
    unread: Vec<Range<u64>>,
    mappings: Arc<Vec<MappedFile>>,
    identities: Vec<load::MappedFileKey>,
    images: Vec<load::KnownImage>,
    faults: Vec<LoadFault>,
    /// The hash of the executable file mappings, see [`maps::fingerprint`].
    fingerprint: u64,
    /// The interpreters in the modules.
    runtimes: Vec<Found>,
    /// The mapping of the file in which the program lists the code that it generates (jitdump).
    pub(crate) jit_dump: Option<MapsEntry>,
    /// Addresses where process contexts may be published.
    publications: Vec<u64>,
    /// The thread-local variables that hold the contexts of threads (OTEP 4947).
    variables: Vec<Variable>,
    /// Whether Java's HotSpot virtual machine is mapped, so that generated code is probably compiled Java.
    pub(crate) hotspot: bool,
    code: Arc<dyn CodeMemory>,
}

impl AddressSpace {
    fn with_code(code: Arc<dyn CodeMemory>) -> Self {
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            modules: Arc::default(),
            unread: Vec::new(),
            mappings: Arc::default(),
            identities: Vec::new(),
            images: Vec::new(),
            faults: Vec::new(),
            fingerprint: 0,
            runtimes: Vec::new(),
            jit_dump: None,
            publications: Vec::new(),
            variables: Vec::new(),
            hotspot: false,
            code,
        }
    }

    /// Reads the maps, and every executable file that is not in `cache` yet. Mapped files of `before` keep their
    /// indices.
    ///
    /// # Errors
    ///
    /// When the maps cannot be read, or the main executable is of another architecture. Single files that are malformed
    /// or cannot be read are listed in [`Self::faults`].
    pub fn load<V: ProcessView + ?Sized>(
        process: &V,
        before: Option<&AddressSpace>,
        cache: &mut ObjectCache,
    ) -> Result<AddressSpace, LoadError> {
        Self::load_with(process, before, cache, &[])
    }

    /// Like [`Self::load`], but earlier mappings, in the order in which they were mapped, replace those now at their
    /// addresses.
    pub(crate) fn load_with<V: ProcessView + ?Sized>(
        process: &V,
        before: Option<&AddressSpace>,
        cache: &mut ObjectCache,
        mapped: &[MappedAt],
    ) -> Result<AddressSpace, LoadError> {
        load::Loader::new(process, before, cache, mapped)?.load()
    }

    /// A copy without the modules in a range of addresses, whose new mapping has not been read yet.
    fn without(&self, range: Range<u64>) -> Self {
        Self {
            id: self.id,
            modules: Arc::clone(&self.modules),
            mappings: Arc::clone(&self.mappings),
            unread: self.unread.iter().cloned().chain([range]).collect(),
            hotspot: self.hotspot,
            ..Self::with_code(Arc::clone(&self.code))
        }
    }

    /// Whether a mapping is known and unchanged.
    fn has(&self, entry: &MapsEntry) -> bool {
        self.find(entry.start).is_some_and(|module| {
            let bias = module.object.as_ref().and_then(|object| object.bias(entry.start, entry.offset));
            let path = || {
                let mapped = module.mapping.and_then(|index| self.mappings.get(index as usize));
                mapped.is_some_and(|mapped| mapped.path.as_bytes() == entry.path)
            };
            module.end >= entry.end
                && (module.file == entry.file || module.file.has_anonymous_device() && path())
                && bias.is_none_or(|bias| bias == module.bias)
                && !self.is_unread(&(entry.start..entry.end))
        })
    }

    /// Whether code of these kinds may lie in a range.
    fn overlaps(&self, range: &Range<u64>, kinds: impl Fn(ModuleKind) -> bool) -> bool {
        let after = self.modules.partition_point(|module| module.end <= range.start);
        let mut within = self.modules[after..].iter().take_while(|module| module.start < range.end);
        self.is_unread(range) || within.any(|module| kinds(module.kind))
    }

    fn is_unread(&self, range: &Range<u64>) -> bool {
        self.unread.iter().any(|unread| unread.start < range.end && range.start < unread.end)
    }

    /// Whether executable file mappings have changed. This is the only way to notice a library that replaces another
    /// one at the same addresses.
    ///
    /// # Errors
    ///
    /// When the maps cannot be read.
    pub fn is_outdated<V: ProcessView + ?Sized>(&self, process: &V) -> std::io::Result<bool> {
        let text = process.maps()?;
        let lines: Vec<_> = maps::lines(&text).collect();
        // Empty maps mean that the process is gone, which is noticed elsewhere.
        Ok(!lines.is_empty() && maps::fingerprint(lines.iter()) != self.fingerprint)
    }

    /// The executable mapping at an address.
    pub fn find(&self, address: u64) -> Option<&Module> {
        let after = self.modules.partition_point(|module| module.start <= address);
        let module = self.modules.get(after.checked_sub(1)?)?;
        (address < module.end && !self.unread.iter().any(|unread| unread.contains(&address))).then_some(module)
    }

    /// The start of the function that contains this address, by the unwind tables of its file.
    pub(crate) fn function(&self, address: u64) -> Option<u64> {
        let module = self.find(address)?;
        let tables = module.object.as_ref()?.tables()?;
        Some(tables.function(address.wrapping_sub(module.bias))?.wrapping_add(module.bias))
    }

    /// The location of an address.
    pub fn locate(&self, address: u64) -> Location {
        match self.find(address) {
            Some(Module { mapping: Some(mapping), bias, .. }) => {
                Location::Native { mapping: Some(*mapping), address: address.wrapping_sub(*bias) }
            }
            _ => Location::Native { mapping: None, address },
        }
    }

    /// The mapped files by index, including files that are no longer mapped.
    pub fn mappings(&self) -> &[MappedFile] {
        &self.mappings
    }

    /// The files that could not be used.
    pub fn faults(&self) -> &[LoadFault] {
        &self.faults
    }

    /// The interpreters whose frames can be read from memory.
    pub fn runtimes(&self) -> &[Found] {
        &self.runtimes
    }

    /// Addresses where process contexts may be published ([`crate::context::publication`]).
    pub fn publications(&self) -> &[u64] {
        &self.publications
    }

    /// The thread-local variables that hold the contexts of threads.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The executable mappings by address.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The id, which differs from the ids of all other address spaces and all [`ElfObject`]s of this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Reads code. Returns the number of bytes that could be read.
    pub(crate) fn read_code(&self, address: u64, bytes: &mut [u8]) -> usize {
        self.code.read(address, bytes)
    }
}
