//! Loads the modules listed in the text of the maps.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use super::history::MappedAt;
use super::image::MappedImage;
use super::maps::{MAX_ENTRIES, MapsLine, fingerprint, insert_mapping, lines};
use super::view::{CodeMemory, FileId, MapsEntry, ProcessView};
use super::{AddressSpace, LoadError, LoadFault, MappedFile, Module, ModuleKind};
use crate::context::{MAX_RELOCATIONS, Variable, Word};
use crate::elf::{CachedFile, ElfObject, Malformed, ObjectCache};
use crate::runtime::{self, TargetMemory};

/// The maximum number of mapped files of one process that get an index. If a process maps and unmaps files by the
/// thousand, further ones get none.
pub(super) const MAX_MAPPINGS: usize = 65_536;
const PAGE: u64 = 4096;
/// The minimum size of V8's built-in functions, in bytes.
const LEAST_BUILTINS: u64 = 512 << 10;
/// Limits of the search for copies of V8's built-in functions: the number of mappings, and of pages of the text.
const MAX_COPIES: usize = 4;
const MAX_PAGES: usize = 4096;
/// How many mappings next to moved text are examined to find the file it came from.
const BESIDE: usize = 32;
/// The maximum number of reported faults.
const MAX_FAULTS: usize = 64;
/// The maximum number of process contexts, and of variables for thread contexts, that are kept of a process. It has one
/// of each, or several tracing libraries.
const MAX_CONTEXTS: usize = 4;
/// The largest vDSO that is read, in bytes; the kernel's has two pages.
const MAX_VDSO: u64 = 64 << 10;

/// Identifies a mapped file of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct MappedFileKey {
    pub(super) object: u64,
    pub(super) bias: u64,
}

/// A file that was read from memory.
#[derive(Debug, Clone)]
pub(super) struct KnownImage {
    file: FileId,
    /// The address where the start of the file is mapped.
    base: u64,
    object: Arc<ElfObject>,
}

/// The kind of file that is mapped.
#[derive(Debug, Clone)]
enum FileKind {
    File(CachedFile),
    Image(Arc<ElfObject>),
    /// No file, or not an ELF file: code that was compiled at run time.
    Generated,
    /// A file that cannot be used.
    Unusable,
}

pub(super) struct Loader<'a, V: ?Sized> {
    process: &'a V,
    cache: &'a mut ObjectCache,
    before: Option<&'a AddressSpace>,
    memory: Arc<dyn CodeMemory>,
    lines: Vec<MapsLine>,
    executable: Option<FileId>,
    found: HashMap<FileId, FileKind, RandomState>,
    indices: HashMap<MappedFileKey, u32, RandomState>,
    reported: HashSet<Vec<u8>, RandomState>,
    /// The number of mappings in which V8's built-in functions were looked for.
    copies_sought: usize,
    space: AddressSpace,
}

impl<'a, V: ProcessView + ?Sized> Loader<'a, V> {
    pub(super) fn new(
        process: &'a V,
        before: Option<&'a AddressSpace>,
        cache: &'a mut ObjectCache,
        mapped: &[MappedAt],
    ) -> Result<Self, LoadError> {
        let text = process.maps().map_err(LoadError::Maps)?;
        let kept = |line: &MapsLine| line.executable || line.entry.file.inode != 0 || line.is_publication();
        let mut lines: Vec<_> = lines(&text).filter(kept).collect();
        if lines.is_empty() {
            return Err(LoadError::Gone);
        }
        mapped.iter().for_each(|mapped| insert_mapping(&mut lines, &mapped.entry));
        let memory = process.memory().map_err(LoadError::Memory)?;
        let mut space = AddressSpace::with_code(Arc::clone(&memory));
        space.fingerprint = fingerprint(lines.iter());
        let publications = lines.iter().filter(|line| line.is_publication()).map(|line| line.entry.start);
        space.publications = publications.take(MAX_CONTEXTS).collect();
        if let Some(before) = before {
            space.mappings.clone_from(&before.mappings);
            space.identities.clone_from(&before.identities);
        }
        Ok(Self {
            process,
            cache,
            before,
            memory,
            lines,
            executable: process.executable(),
            found: HashMap::default(),
            indices: space.identities.iter().zip(0..).map(|(identity, index)| (*identity, index)).collect(),
            reported: HashSet::default(),
            copies_sought: 0,
            space,
        })
    }

    pub(super) fn load(mut self) -> Result<AddressSpace, LoadError> {
        let lines = std::mem::take(&mut self.lines);
        let executable = lines.iter().filter(|line| line.executable);
        if executable.clone().count() > MAX_ENTRIES {
            self.fault(b"", format!("more than {MAX_ENTRIES} executable mappings"));
        }
        for line in executable.take(MAX_ENTRIES) {
            let module = self.module(line, &lines)?;
            self.add(module);
        }
        mark_builtins(Arc::make_mut(&mut self.space.modules).as_mut_slice());
        self.find_runtimes();
        self.find_variables();
        Ok(self.space)
    }

    fn module(&mut self, line: &MapsLine, lines: &[MapsLine]) -> Result<Module, LoadError> {
        let entry = &line.entry;
        let mut module = Module {
            start: entry.start,
            end: entry.end,
            file: entry.file,
            mapping: None,
            bias: 0,
            object: None,
            kind: ModuleKind::Generated,
            builtins: 0..0,
        };
        let found = match entry.path.as_slice() {
            b"[vsyscall]" if entry.file.inode == 0 => {
                module.kind = ModuleKind::Vsyscall;
                return Ok(module);
            }
            b"[vdso]" if entry.file.inode == 0 => self.vdso(entry),
            _ if entry.file.inode == 0 => FileKind::Generated,
            _ => self.file(line, lines)?,
        };
        let (object, file) = match found {
            FileKind::File(CachedFile { object, file }) => (object, Some(file)),
            FileKind::Image(object) => (object, None),
            FileKind::Generated => match self.moved_text(entry, lines)? {
                Some((cached, line, bias)) => {
                    // `module.file` stays that of the memory (no file), since the kernel's records are about the
                    // memory.
                    module.kind = ModuleKind::File;
                    module.bias = bias;
                    module.mapping = self.index(&line.entry, &cached.object, bias, Some(cached.file));
                    module.object = Some(cached.object);
                    return Ok(module);
                }
                None => return Ok(module),
            },
            FileKind::Unusable => {
                module.kind = ModuleKind::Unusable;
                return Ok(module);
            }
        };
        let Some(bias) = object.bias(entry.start, entry.offset) else {
            self.fault(&entry.path, "mapped at a place that its program headers do not know".into());
            module.kind = ModuleKind::Unusable;
            return Ok(module);
        };
        self.space.hotspot |= entry.path.ends_with(b"/libjvm.so");
        module.kind = ModuleKind::File;
        module.bias = bias;
        module.mapping = self.index(entry, &object, bias, file);
        module.object = Some(object);
        Ok(module)
    }

    /// Finds the file whose text was copied to this memory: some programs move their text to huge pages. The file's
    /// other segments are still next to it, and most bytes of the text equal the file's. Returns the file, one of its
    /// lines in the maps, and its bias.
    fn moved_text(
        &mut self,
        entry: &MapsEntry,
        lines: &[MapsLine],
    ) -> Result<Option<(CachedFile, MapsLine, u64)>, LoadError> {
        let place = lines.partition_point(|line| line.entry.start < entry.start);
        let (below, above) = lines.split_at(place);
        let is_program = |file| self.executable == Some(file);
        let is_other = |line: &&MapsLine| line.entry.file.inode != 0 && line.entry.file != entry.file && !line.gone;
        // A file that is mapped only as data is next to generated code by chance.
        let is_code = |line: &&MapsLine| {
            let file = line.entry.file;
            let is_part = |line: &MapsLine| line.executable && line.entry.file == file;
            let touches = line.entry.end == entry.start || line.entry.start == entry.end;
            touches || is_program(file) || below.iter().rev().take(BESIDE).chain(above.iter().take(BESIDE)).any(is_part)
        };
        let nearest = [below.iter().rev().take(BESIDE).find(is_other), above.iter().take(BESIDE).find(is_other)];
        for line in nearest.into_iter().flatten().filter(is_code).cloned().collect::<Vec<_>>() {
            if let FileKind::File(cached) = self.file(&line, lines)?
                && let Some(bias) = cached.object.bias(line.entry.start, line.entry.offset)
                && self.has_text(entry, &cached, bias)
            {
                return Ok(Some((cached, line, bias)));
            }
        }
        Ok(self.copied_builtins(entry, lines))
    }

    /// Finds V8's built-in functions if V8 has copied them from text that was moved: they begin at a page boundary.
    fn copied_builtins(&mut self, entry: &MapsEntry, lines: &[MapsLine]) -> Option<(CachedFile, MapsLine, u64)> {
        if entry.end - entry.start < LEAST_BUILTINS || self.copies_sought >= MAX_COPIES {
            return None;
        }
        self.copies_sought += 1;
        let known = self.found.iter().find_map(|(file, found)| match found {
            FileKind::File(cached) => Some((file, cached, builtins(&cached.object)?)),
            _ => None,
        });
        let (file, cached, range) = known?;
        let page = MapsEntry { end: entry.start + PAGE, ..entry.clone() };
        let pages = (range.start & !(PAGE - 1)..range.end).step_by(PAGE as usize);
        let mut biases = pages.take(MAX_PAGES).map(|address| entry.start.wrapping_sub(address));
        let bias = biases
            .find(|bias| self.has_text(&page, cached, *bias))
            .filter(|bias| self.has_text(entry, cached, *bias))?;
        let line = lines.iter().find(|line| line.entry.file == *file)?;
        Some((cached.clone(), line.clone(), bias))
    }

    /// Whether most of the bytes in memory equal a file's text.
    fn has_text(&self, entry: &MapsEntry, cached: &CachedFile, bias: u64) -> bool {
        /// How many places are compared, and how many bytes at each.
        const PLACES: u64 = 16;
        const BYTES: usize = 64;
        let range = entry.start.wrapping_sub(bias)..entry.end.wrapping_sub(bias);
        let places = cached.object.text_within(range, BYTES as u64, PLACES);
        let equal = places.iter().filter(|(offset, address)| {
            let (mut there, mut known) = ([0; BYTES], [0; BYTES]);
            self.memory.read(address.wrapping_add(bias), &mut there) == BYTES
                && cached.file.read_at(&mut known, *offset).is_ok_and(|count| count == BYTES)
                && there == known
        });
        // Some instructions may be patched while the program runs.
        !places.is_empty() && equal.count() * 4 >= places.len() * 3
    }

    /// Returns the index of a mapped file; a new file gets the next index.
    fn index(
        &mut self,
        entry: &MapsEntry,
        object: &ElfObject,
        bias: u64,
        file: Option<Arc<std::fs::File>>,
    ) -> Option<u32> {
        let identity = MappedFileKey { object: object.id(), bias };
        if let Some(index) = self.indices.get(&identity) {
            return Some(*index);
        }
        if self.space.mappings.len() >= MAX_MAPPINGS {
            self.fault(&entry.path, format!("more than {MAX_MAPPINGS} files were mapped in one life of the process"));
            return None;
        }
        let (start, end, file_offset) = object.executable_range()?;
        let index = self.space.mappings.len() as u32;
        Arc::make_mut(&mut self.space.mappings).push(MappedFile {
            path: String::from_utf8_lossy(&entry.path).into_owned(),
            start,
            end,
            file_offset,
            build_id: object.build_id().map(<[u8]>::to_vec),
            htlhash: object.htlhash(),
            main: entry.file.inode != 0 && self.executable == Some(entry.file),
            go: object.is_go(),
            file,
        });
        self.space.identities.push(identity);
        self.indices.insert(identity, index);
        Some(index)
    }

    fn file(&mut self, line: &MapsLine, lines: &[MapsLine]) -> Result<FileKind, LoadError> {
        let entry = &line.entry;
        if let Some(found) = self.found.get(&entry.file) {
            return Ok(found.clone());
        }
        let loaded = match self.process.open(entry) {
            Ok(file) => self.cache.load(file),
            // The mapping is gone, so its addresses hold other data.
            Err(error) if line.gone => {
                self.fault(&entry.path, format!("cannot open it: {error}"));
                return Ok(FileKind::Unusable);
            }
            Err(error) => return Ok(self.image(entry, lines, error)),
        };
        let found = match loaded {
            Ok(Some(cached)) => {
                if let Some(fault) = cached.object.fault() {
                    self.fault(&entry.path, fault.to_string());
                }
                FileKind::File(cached)
            }
            Ok(None) => {
                self.fault(&entry.path, "the memory for unwind tables is used up".into());
                FileKind::Unusable
            }
            Err(Malformed::Architecture(architecture)) if self.executable == Some(entry.file) => {
                let path = String::from_utf8_lossy(&entry.path).into_owned();
                return Err(LoadError::Architecture { path, architecture });
            }
            // Programs that compile at run time may keep their code in files that exist only in memory (memfd).
            Err(Malformed::NotElf) => {
                if is_jit_dump(&entry.path) {
                    self.space.jit_dump = Some(entry.clone());
                }
                FileKind::Generated
            }
            Err(fault) => {
                self.fault(&entry.path, fault.to_string());
                FileKind::Unusable
            }
        };
        self.found.insert(entry.file, found.clone());
        Ok(found)
    }

    /// Reads a file from memory that cannot be opened. The result is not shared with other processes, since a process
    /// can forge it.
    fn image(&mut self, entry: &MapsEntry, lines: &[MapsLine], error: std::io::Error) -> FileKind {
        let image = MappedImage::new(&*self.memory, lines, entry.file, entry.start);
        let base = image.base();
        let before = self.before.map(|before| before.images.as_slice()).unwrap_or_default();
        let known = self.space.images.iter().chain(before).find(|known| known.file == entry.file && known.base == base);
        if let Some(known) = known.cloned() {
            let found = FileKind::Image(Arc::clone(&known.object));
            if !self.space.images.iter().any(|image| image.base == base) {
                self.space.images.push(known);
            }
            return found;
        }
        match ElfObject::read_image(&image) {
            Ok(object) if object.memory() <= self.cache.limit() / 8 => {
                let object = Arc::new(object);
                let known = KnownImage { file: entry.file, base, object: Arc::clone(&object) };
                self.space.images.push(known);
                FileKind::Image(object)
            }
            Ok(_) => {
                self.fault(&entry.path, "too large to be read from memory".into());
                FileKind::Unusable
            }
            Err(Malformed::NotElf) => FileKind::Generated,
            Err(fault) => {
                self.fault(&entry.path, format!("cannot open it ({error}), and as it is in memory: {fault}"));
                FileKind::Unusable
            }
        }
    }

    fn vdso(&mut self, entry: &MapsEntry) -> FileKind {
        let length = (entry.end - entry.start).min(MAX_VDSO) as usize;
        let mut bytes = vec![0; length];
        let count = self.memory.read(entry.start, &mut bytes).min(length);
        match self.cache.load_image(&bytes[..count]) {
            Ok(object) => FileKind::Image(object),
            Err(fault) => {
                self.fault(&entry.path, fault.to_string());
                FileKind::Unusable
            }
        }
    }

    fn find_runtimes(&mut self) {
        let modules = Arc::clone(&self.space.modules);
        let path = |module: &Module| {
            let mapped = module.mapping.and_then(|index| self.space.mappings.get(index as usize));
            mapped.map_or_else(String::new, |mapped| mapped.path.clone())
        };
        let (found, refused) = runtime::detect(&modules, path, &mut CodeTarget(&*self.memory));
        self.space.runtimes = found;
        for (path, reason) in refused {
            self.fault(path.as_bytes(), reason);
        }
    }

    /// Finds the variables for thread contexts. Their addresses are read later: the dynamic linker has not set them
    /// yet in a library that was just mapped.
    fn find_variables(&mut self) {
        let modules = &self.space.modules;
        let file = |module: &Module| module.mapping.and_then(|index| self.space.mappings.get(index as usize));
        let name = |module: &Module| file(module).and_then(|mapped| mapped.path.rsplit('/').next()).unwrap_or_default();
        let linkers = || modules.iter().filter(|module| name(module).starts_with("ld-"));
        let linker: Vec<_> = linkers().map(|module| module.start..module.end).take(MAX_CONTEXTS).collect();
        let glibc = !linkers().any(|module| name(module).starts_with("ld-musl"));
        let mut found: Vec<Variable> = Vec::new();
        for module in modules.iter() {
            let Some(variable) = module.object.as_ref().and_then(|object| object.thread_local()) else { continue };
            let word = |relocation: &crate::elf::Relocation| Word {
                kind: relocation.kind,
                address: relocation.address.wrapping_add(module.bias),
            };
            let variable = Variable {
                offset: variable.offset,
                in_program: variable.in_program.filter(|_| file(module).is_some_and(|mapped| mapped.main)),
                words: variable.relocations.iter().take(MAX_RELOCATIONS).map(word).collect(),
                linker: linker.clone(),
                glibc,
            };
            // A file may have several executable mappings.
            if found.len() < MAX_CONTEXTS && !found.contains(&variable) {
                found.push(variable);
            }
        }
        self.space.variables = found;
    }

    /// Adds a module, or extends the previous one if both are generated code without a gap between them.
    fn add(&mut self, module: Module) {
        let modules = Arc::make_mut(&mut self.space.modules);
        if let Some(last) = modules.last_mut()
            && last.end == module.start
            && last.kind == ModuleKind::Generated
            && module.kind == ModuleKind::Generated
        {
            last.end = module.end;
            return;
        }
        modules.push(module);
    }

    fn fault(&mut self, path: &[u8], reason: String) {
        if self.space.faults.len() < MAX_FAULTS && self.reported.insert(path.to_vec()) {
            self.space.faults.push(LoadFault { path: String::from_utf8_lossy(path).into_owned(), reason });
        }
    }
}

/// Whether a file has the name of a jitdump file: programs map theirs executable so that profilers find it.
fn is_jit_dump(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let number = name.strip_prefix(b"jit-").and_then(|name| name.strip_suffix(b".dump"));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// A process's memory, for the search for interpreters.
struct CodeTarget<'a>(&'a dyn CodeMemory);

impl TargetMemory for CodeTarget<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.0.read(address, bytes) == bytes.len()
    }
}

/// Marks V8's built-in functions. V8 maps the part of its program that holds them a second time, near the code that it
/// compiles (`src/codegen/code-range.cc`, `RemapEmbeddedBuiltins`). They have no call frame information but keep frame
/// pointers, in both mappings. Code of one file that is mapped twice at different biases is assumed to be these
/// functions.
fn mark_builtins(modules: &mut [Module]) {
    let mut by_object: HashMap<u64, Vec<usize>, RandomState> = HashMap::default();
    for (place, module) in modules.iter().enumerate() {
        if let Some(object) = &module.object {
            by_object.entry(object.id()).or_default().push(place);
        }
    }
    for places in by_object.into_values() {
        let twice = (places.len() > 1).then(|| mapped_twice(modules, &places)).flatten();
        let object = places.first().and_then(|place| modules[*place].object.as_ref());
        if let Some(range) = twice.or_else(|| builtins(object?)) {
            for place in places {
                modules[place].builtins = range.clone();
            }
        }
    }
}

/// Finds V8's built-in functions if they are not mapped twice, as in Node 18 and without compiled code (`--jitless`):
/// more than a megabyte of contiguous code without call frame information.
fn builtins(object: &ElfObject) -> Option<Range<u64>> {
    object.symbol(runtime::V8_VERSION)?;
    object.tables()?.largest_gap().filter(|gap| gap.end - gap.start >= LEAST_BUILTINS)
}

/// The addresses of a file that are mapped twice, at different biases.
fn mapped_twice(modules: &[Module], places: &[usize]) -> Option<Range<u64>> {
    // A program that maps one file more often than this is not V8; the limit bounds the comparisons.
    const MAX_PLACES: usize = 32;
    let addresses = |module: &Module| module.start.wrapping_sub(module.bias)..module.end.wrapping_sub(module.bias);
    let places = || places.iter().take(MAX_PLACES).map(|place| &modules[*place]);
    places()
        .flat_map(|one| places().map(move |other| (one, other)))
        .filter(|(one, other)| one.bias < other.bias)
        .find_map(|(one, other)| {
            let (one, other) = (addresses(one), addresses(other));
            let both = one.start.max(other.start)..one.end.min(other.end);
            (!both.is_empty()).then_some(both)
        })
}
