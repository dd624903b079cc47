//! The names of one process's locations: which file the symbolizer reads for each mapping, and the names it has found
//! so far.
//!
//! Files are identified by device and inode on this machine and not by their build id, since a process could map a
//! forged file with another file's build id. Until a file is sampled it needs only a descriptor. All processes together
//! keep a limited number of open files; others are opened again through the process's root, if they are still the same.
//! This also applies to files that the symbolizer closed or dropped to make room for others.

mod kept;
mod kernel;

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use profbridge_sampler::message::{Batch, Location};
use profbridge_symbolizer::{
    FileIdentity, MAX_MOMENTS, Object, ObjectId, ObjectKey, ObjectSource, SymbolAnswer, Symbolizer, Symbols, Unknown,
    perf_map_place,
};

use self::kept::{KEPT, KeptFiles};
use self::kernel::KernelSymbols;
pub(crate) use self::kernel::NAMELESS as NAMELESS_KERNEL;
use crate::assemble::SymbolNames;

/// After this time a file that was not found is looked for again: it may exist again, or be reachable through another
/// process's root.
const RETRY: Duration = Duration::from_secs(10);

/// The kernel's symbols, shared by all processes.
static KERNEL: Mutex<Option<KernelSymbols>> = Mutex::new(None);

/// The source of the code in a mapping.
#[derive(Debug)]
enum SymbolOrigin {
    /// A file. It is open if it was kept and no code of it was sampled yet.
    File { identity: FileIdentity, file: Option<Arc<File>>, path: String },
    /// The code that the kernel maps into every process.
    Vdso,
    /// Code that was compiled at run time.
    PerfMap(File),
    /// No file exists.
    Nothing,
}

/// A source of names, and its object in the symbolizer.
#[derive(Debug)]
struct SymbolSource {
    origin: SymbolOrigin,
    /// `None` until code of the source was sampled. The symbolizer may have dropped the object since.
    object: Option<ObjectId>,
    /// When the file was last looked for again.
    retried: Option<Instant>,
    /// Whether the file was missing then as well.
    missing: bool,
}

impl SymbolSource {
    fn new(origin: SymbolOrigin) -> Self {
        Self { origin, object: None, retried: None, missing: false }
    }

    /// Whether enough time has passed to look for the file again.
    fn is_retried(&self) -> bool {
        let has_file = matches!(self.origin, SymbolOrigin::File { .. });
        has_file && self.retried.is_none_or(|retried| retried.elapsed() >= RETRY)
    }
}

/// The names of one process's locations.
#[derive(Debug)]
pub struct ProcessNames {
    symbolizer: Symbolizer,
    /// Distinguishes the perf maps of processes.
    number: u64,
    root: Option<Arc<File>>,
    kept: &'static KeptFiles,
    sources: Vec<SymbolSource>,
    perf_map: Option<SymbolSource>,
    /// The lengths of the perf map at the times of samples: 0 first, then the others in order of arrival.
    map_lengths: Arc<Vec<u32>>,
}

impl ProcessNames {
    /// Creates an entry for a process without mappings. `number` must be different for each process that uses this
    /// symbolizer.
    #[must_use]
    pub fn new(symbolizer: Symbolizer, number: u64, root: Option<File>) -> Self {
        let root = root.map(Arc::new);
        let map_lengths = Arc::new(vec![0]);
        Self { symbolizer, number, root, kept: &KEPT, sources: Vec::new(), perf_map: None, map_lengths }
    }

    /// Adds a mapped file. Mappings come in the order of their index.
    pub fn mapping(&mut self, path: &str, file: Option<File>) {
        let identified = || file.and_then(|file| Some((FileIdentity::of(&file).ok()?, file)));
        let origin = match path {
            "[vdso]" => SymbolOrigin::Vdso,
            _ => identified().map_or(SymbolOrigin::Nothing, |(identity, file)| {
                let file = self.kept.keep(identity, file, self.root.is_some());
                SymbolOrigin::File { identity, file, path: path.to_owned() }
            }),
        };
        self.sources.push(SymbolSource::new(origin));
    }

    /// Sets the process's perf map.
    pub fn perf_map(&mut self, file: File) {
        self.perf_map = Some(SymbolSource::new(SymbolOrigin::PerfMap(file)));
        self.register(None);
    }

    /// Requests the names of all locations of a batch.
    pub fn ask(&mut self, batch: &Batch) {
        self.ask_for(batch.locations.clone());
    }

    /// Whether the symbolizer may still find more names for a batch. Names that it dropped or refused are requested
    /// again, and a file that it closed to make room is opened again.
    pub fn is_late(&mut self, batch: &Batch) -> bool {
        let mut late = false;
        let mut again = Vec::new();
        for &location in &batch.locations {
            let Some(object) = self.object(location) else { continue };
            let answer = self.symbolizer.answer(object, self.place(location));
            late |= answer.is_late();
            match answer {
                SymbolAnswer::Unknown(Unknown::NotAsked | Unknown::Refused) => again.push(location),
                SymbolAnswer::Unknown(Unknown::NoFile) => {
                    if self.source(location.mapping()).is_some_and(SymbolSource::is_retried) {
                        again.push(location);
                    }
                }
                _ => {
                    if answer.symbols().is_some()
                        && let Some(source) = self.source_mut(location.mapping())
                    {
                        source.missing = false;
                    }
                }
            }
        }
        let late = late || !again.is_empty();
        self.ask_for(again);
        late
    }

    fn ask_for(&mut self, mut locations: Vec<Location>) {
        locations.retain(|location| is_of_file_or_map(*location));
        for location in &locations {
            if self.map_lengths.len() < MAX_MOMENTS && self.moment(location.map_length()).is_none() {
                // The last index that fits stands for the end of the map.
                let is_last = self.map_lengths.len() == MAX_MOMENTS - 1;
                Arc::make_mut(&mut self.map_lengths).push(if is_last { u32::MAX } else { location.map_length() });
            }
        }
        locations.sort_unstable_by_key(|location| (location.mapping(), self.place(*location)));
        locations.dedup();
        for group in locations.chunk_by(|left, right| left.mapping() == right.mapping()) {
            let mapping = group[0].mapping();
            let addresses: Vec<u64> = group.iter().map(|location| self.place(*location)).collect();
            let known = self.source(mapping).and_then(|source| source.object);
            // The symbolizer may have closed the perf map, and then would not read later additions to it.
            let Some(object) = known.filter(|_| mapping.is_some()).or_else(|| self.register(mapping)) else { continue };
            let is = |object, address, why| self.symbolizer.answer(object, address) == SymbolAnswer::Unknown(why);
            let is_missing = |&address: &u64| is(object, address, Unknown::NoFile);
            let was_missing = addresses.iter().any(is_missing);
            if self.symbolizer.ask(object, &addresses) == 0 && is(object, addresses[0], Unknown::NotAsked) {
                // The symbolizer dropped the object to make room for others.
                if let Some(object) = self.register(mapping) {
                    self.symbolizer.ask(object, &addresses);
                }
            } else if (was_missing || addresses.iter().any(is_missing))
                && let Some(source) = self.source_mut(mapping)
                && source.is_retried()
            {
                source.retried = Some(Instant::now());
                if std::mem::replace(&mut source.missing, true) {
                    // The file was not found through this process's root, but another process's root may lead to it
                    // now.
                    self.symbolizer.forget(object);
                }
                if let Some(object) = self.register(mapping) {
                    self.symbolizer.ask(object, &addresses);
                }
            }
        }
    }

    /// Registers an object with the symbolizer, and opens its file again if the file was closed.
    fn register(&mut self, mapping: Option<u32>) -> Option<ObjectId> {
        let Self { symbolizer, number, root, sources, perf_map, map_lengths, .. } = self;
        let source = mapping.map_or(perf_map.as_mut(), |index| sources.get_mut(index as usize))?;
        let registered = match &mut source.origin {
            SymbolOrigin::Nothing => None,
            SymbolOrigin::Vdso => Some(symbolizer.vdso()),
            SymbolOrigin::PerfMap(file) => {
                file.try_clone().ok().map(|file| symbolizer.perf_map(*number, file, Arc::clone(map_lengths)))
            }
            SymbolOrigin::File { identity, file, path } => {
                let open = file.take().and_then(|file| Arc::try_unwrap(file).or_else(|shared| shared.try_clone()).ok());
                let in_root = || {
                    Some(ObjectSource::InRoot { root: Arc::clone(root.as_ref()?), path: PathBuf::from(path.as_str()) })
                };
                open.map(ObjectSource::File).or_else(in_root).map(|source| {
                    let key = ObjectKey::File(*identity);
                    symbolizer.object(Object { key, source, root: root.clone(), path: path.clone() })
                })
            }
        };
        source.object = registered.or(source.object);
        registered.or(source.object)
    }

    fn source(&self, mapping: Option<u32>) -> Option<&SymbolSource> {
        mapping.map_or(self.perf_map.as_ref(), |index| self.sources.get(index as usize))
    }

    fn source_mut(&mut self, mapping: Option<u32>) -> Option<&mut SymbolSource> {
        mapping.map_or(self.perf_map.as_mut(), |index| self.sources.get_mut(index as usize))
    }

    /// The address to look up in the symbolizer; for generated code, combined with the perf map's length at that time.
    fn place(&self, location: Location) -> u64 {
        if location.mapping().is_some() {
            return location.address();
        }
        let last = self.map_lengths.len() - 1;
        perf_map_place(location.address(), self.moment(location.map_length()).unwrap_or(last))
    }

    /// The index of a length of the perf map. Most are among the last ones, or 0, which is the first one.
    fn moment(&self, map_length: u32) -> Option<usize> {
        if map_length == 0 { Some(0) } else { self.map_lengths.iter().rposition(|known| *known == map_length) }
    }

    fn object(&self, location: Location) -> Option<ObjectId> {
        self.source(location.mapping()).filter(|_| is_of_file_or_map(location))?.object
    }
}

/// Whether the name of a location is looked up in a file or a perf map.
fn is_of_file_or_map(location: Location) -> bool {
    location.explanation().is_none() && !location.is_kernel() && !location.is_interpreted()
}

impl SymbolNames for ProcessNames {
    fn symbols(&self, location: Location) -> Option<Arc<Symbols>> {
        if location.is_kernel() {
            let mut kernel = KERNEL.lock().unwrap_or_else(PoisonError::into_inner);
            return Some(kernel.get_or_insert_default().symbols(location.address()));
        }
        let object = self.object(location)?;
        self.symbolizer.last_answer(object, self.place(location)).symbols().cloned()
    }
}

impl Drop for ProcessNames {
    fn drop(&mut self) {
        if let Some(map) = self.perf_map.as_ref().and_then(|map| map.object) {
            self.symbolizer.forget(map);
        }
    }
}

#[cfg(test)]
mod tests;
