//! Symbol tables, DWARF and perf maps that the thread keeps for later requests.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};

use super::debug_file::{Finder, RemoteFiles};
use super::state::{Content, ObjectOrigin};
use crate::counters::Counting;
use crate::dwarf::{Dwarf, DwarfBudget, DwarfFailure, Error, SourceFrames, Sources};
use crate::elf::Elf;
use crate::go_table::{self, GoTable, Steps};
use crate::input::{self, Input};
use crate::perf_map::PerfMap;
use crate::symbol_table::{SymbolTable, SymbolTableBuilder};
use crate::unwind_table::UnwindTable;
use crate::{FileIdentity, ObjectId, Requested, Settings, Unknown, plt, vdso};

/// The maximum number of files that stay open between reading the symbol table and DWARF. Further ones are opened
/// again.
const MAX_KEPT_OPEN: usize = 32;
/// If no data arrives for this long, answers no longer wait for the server.
const MAX_IDLE: Duration = Duration::from_secs(10);
/// The maximum number of pairs of object and reason that are stored in order to log each only once.
const MAX_COMPLAINTS: usize = 1 << 14;

/// Symbol tables, DWARF and perf maps, bounded in bytes: the least recently used ones are evicted.
#[derive(Debug)]
pub(super) struct ObjectTables<'a> {
    settings: &'a Settings,
    counting: &'a Counting,
    stop: &'a AtomicBool,
    remote: &'a RemoteFiles,
    /// Build ids of debug files that may still arrive, by object. The object is read again when they do.
    coming: HashMap<ObjectId, Vec<Box<[u8]>>>,
    entries: HashMap<ObjectId, CachedObject>,
    clock: u64,
    limit: usize,
    /// Objects and reasons that were logged already.
    complaints: HashSet<(ObjectId, &'static str)>,
}

#[derive(Debug)]
struct CachedObject {
    names: CachedNames,
    used: u64,
}

#[derive(Debug)]
enum CachedNames {
    Elf(Box<ElfNames>),
    Table(SymbolTable),
    PerfMap {
        map: PerfMap,
        identity: FileIdentity,
    },
    /// Reading the file panicked, so it is not tried again.
    Broken,
}

#[derive(Debug)]
struct ElfNames {
    symbols: SymbolTable,
    /// Go's function table, if there is no symbol table.
    go: Option<GoTable>,
    /// Function starts, if there is no symbol table.
    unwind: UnwindTable,
    /// The base name of the file.
    name: String,
    code: Vec<(u64, u64)>,
    dwarf: DwarfState,
}

#[derive(Debug)]
enum DwarfState {
    /// There is DWARF that was not read yet. `None` if its file has to be opened again.
    Unread(Option<Box<Sources>>),
    Read(Box<Dwarf>),
    None,
}

impl ElfNames {
    fn bytes(&self) -> usize {
        let dwarf = if let DwarfState::Read(dwarf) = &self.dwarf { dwarf.bytes() } else { 0 };
        let go = self.go.as_ref().map_or(0, GoTable::bytes);
        self.symbols.bytes() + go + self.unwind.bytes() + self.name.len() + self.code.len() * 16 + dwarf
    }
}

/// The names of one object, for looking up addresses.
#[derive(Debug)]
pub(super) struct LoadedNames<'s> {
    names: &'s CachedNames,
    /// Whether a debug file with better names may arrive soon.
    pub(super) waits: bool,
}

impl LoadedNames<'_> {
    /// The mangled name for an address.
    pub(super) fn find(&self, address: u64) -> Option<&[u8]> {
        match self.names {
            CachedNames::Elf(elf) => elf.symbols.find(address),
            CachedNames::Table(table) => table.find(address),
            CachedNames::PerfMap { map, .. } => map.find(address),
            CachedNames::Broken => None,
        }
    }

    /// Whether `name` is another name of the symbol that contains an address.
    pub(super) fn is_alias(&self, address: u64, name: &str) -> bool {
        matches!(self.names, CachedNames::Elf(elf) if elf.symbols.is_alias(address, name.as_bytes()))
    }

    /// The function that contains an address, from Go's own table.
    pub(super) fn go_function(&self, address: u64) -> Option<go_table::GoFunction<'_>> {
        self.go()?.function(address)
    }

    /// File and line of an address in a function of Go's table.
    pub(super) fn go_line(
        &self,
        function: &go_table::GoFunction<'_>,
        address: u64,
        steps: &mut Steps,
    ) -> Option<(&[u8], u32)> {
        self.go()?.line(function, address, steps)
    }

    fn go(&self) -> Option<&GoTable> {
        match self.names {
            CachedNames::Elf(elf) => elf.go.as_ref(),
            _ => None,
        }
    }

    /// The base name of the file and the start of the function that contains an address, from the unwind table.
    pub(super) fn start(&self, address: u64) -> Option<(&str, u64)> {
        match self.names {
            CachedNames::Elf(elf) if !elf.name.is_empty() => Some((&elf.name, elf.unwind.start(address)?)),
            _ => None,
        }
    }

    /// Whether DWARF may add data.
    pub(super) fn has_dwarf(&self) -> bool {
        matches!(self.names, CachedNames::Elf(elf) if !matches!(elf.dwarf, DwarfState::None))
    }

    /// Whether names are linker symbols, and not names that a runtime wrote to a perf map.
    pub(super) fn is_mangled(&self) -> bool {
        !matches!(self.names, CachedNames::PerfMap { .. })
    }
}

impl<'a> ObjectTables<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        counting: &'a Counting,
        stop: &'a AtomicBool,
        remote: &'a RemoteFiles,
    ) -> Self {
        let limit = settings.cache_bytes / 4 * 3;
        let (coming, entries, complaints) = (HashMap::default(), HashMap::default(), HashSet::default());
        Self { settings, counting, stop, remote, coming, entries, clock: 0, limit, complaints }
    }

    fn finder(&self) -> Finder<'a> {
        Finder { remote: self.remote, settings: self.settings, counting: self.counting, stop: self.stop }
    }

    pub(super) fn forget(&mut self, object: ObjectId) {
        self.entries.remove(&object);
        self.coming.remove(&object);
    }

    /// Whether any requested debug file may still arrive.
    pub(super) fn is_expecting(&self) -> bool {
        !self.coming.is_empty()
    }

    /// Whether a debug file of an object may arrive soon enough for answers to wait for it.
    pub(super) fn is_worth_waiting(&self, object: ObjectId) -> bool {
        let (Some(ids), Some(server)) = (self.coming.get(&object), &self.remote.server) else { return false };
        ids.iter().any(|id| match server.request(id) {
            Requested::Coming { since, idle } => since < self.settings.patience && idle < MAX_IDLE,
            // The next check opens the file.
            Requested::Here(_) | Requested::Missing => true,
        })
    }

    /// The objects whose debug files have all arrived or are missing, and whether at least one file arrived, so that
    /// the object has to be read again.
    pub(super) fn arrived(&mut self) -> Vec<(ObjectId, bool)> {
        let Self { remote, coming, entries, counting, .. } = self;
        let Some(server) = &remote.server else { return Vec::new() };
        counting.debug_files_failed.store(server.failures(), Ordering::Relaxed);
        let mut arrived = Vec::new();
        coming.retain(|&object, ids| {
            let mut came = false;
            ids.retain(|id| {
                let requested = server.request(id);
                came |= matches!(requested, Requested::Here(_));
                matches!(requested, Requested::Coming { .. })
            });
            if came {
                entries.remove(&object);
            }
            if came || ids.is_empty() {
                arrived.push((object, came));
            }
            !came && !ids.is_empty()
        });
        arrived
    }

    /// After a panic, stops using an object's DWARF or the object as a whole.
    pub(super) fn give_up(&mut self, object: ObjectId, only_dwarf: bool) {
        match self.entries.get_mut(&object) {
            Some(CachedObject { names: CachedNames::Elf(elf), .. }) if only_dwarf => elf.dwarf = DwarfState::None,
            _ => {
                self.entries.insert(object, CachedObject { names: CachedNames::Broken, used: self.clock });
            }
        }
    }

    /// The symbols of an object. Reads its file if they are not in memory.
    pub(super) fn symbols(&mut self, object: ObjectId, content: Option<&Content>) -> Result<LoadedNames<'_>, Unknown> {
        self.clock += 1;
        if !self.entries.contains_key(&object) {
            let names = match content {
                None => Err(Unknown::NoFile),
                Some(Content::Elf(origin)) => self.read_elf(origin, object),
                Some(Content::PerfMap(..)) => {
                    let nobody = FileIdentity { device: 0, inode: 0, size: 0, modified_nano: 0 };
                    Ok(CachedNames::PerfMap { map: PerfMap::default(), identity: nobody })
                }
                Some(Content::Vdso) => vdso::read().and_then(|bytes| self.read_vdso(bytes)),
            };
            let coming = self.remote.coming.take();
            if !coming.is_empty() {
                self.coming.insert(object, coming);
            }
            let names = names.inspect_err(|&why| self.complain(object, content, why))?;
            self.entries.insert(object, CachedObject { names, used: 0 });
        }
        let (settings, counting, clock) = (self.settings, self.counting, self.clock);
        let waits = self.is_worth_waiting(object);
        let Some(entry) = self.entries.get_mut(&object) else { return Err(Unknown::Failed) };
        entry.used = clock;
        if let CachedNames::PerfMap { map, identity } = &mut entry.names
            && let Some(Content::PerfMap(file, lengths)) = content
        {
            read_perf_map(file, map, identity, settings, counting)?;
            map.lengths = Arc::clone(lengths);
        }
        if matches!(entry.names, CachedNames::Broken) {
            return Err(Unknown::Failed);
        }
        Ok(LoadedNames { names: &entry.names, waits })
    }

    fn read_elf(&self, origin: &ObjectOrigin, object: ObjectId) -> Result<CachedNames, Unknown> {
        let elf = self.finder().object(origin)?;
        let mut code = elf.code();
        let complete = elf.section(b".symtab").is_some() && (!self.settings.dwarf || Dwarf::is_in(&elf));
        let debug = if complete { None } else { self.finder().debug_file(origin, &elf) };
        if code.is_empty()
            && let Some(debug) = &debug
        {
            code = debug.code();
        }
        let limit = self.settings.max_symbol_bytes;
        let skipped = |why: Unknown| {
            self.count(why);
            tracing::warn!(file = ?origin.path, object = object.0, reason = ?why, "symbol table skipped");
        };
        let has_table = |files: [Option<&Elf>; 2]| files.into_iter().flatten().any(Elf::has_symbol_table);
        let inner = if has_table([Some(&elf), debug.as_ref()]) { None } else { elf.mini_debug_info(limit) };
        let inner = inner.and_then(|inner| inner.inspect_err(|&why| skipped(why)).ok());
        let mut builder = SymbolTableBuilder::new(code.clone(), limit);
        for file in [Some(&elf), debug.as_ref(), inner.as_ref()].into_iter().flatten() {
            // A file without a symbol table may still have DWARF.
            builder.add_elf(file).unwrap_or_else(skipped);
        }
        plt::add_stubs(&elf, &mut builder, limit).unwrap_or_else(skipped);
        Counting::add(&self.counting.symbol_tables, 1);
        let (go, unwind) = if has_table([debug.as_ref(), inner.as_ref()]) || elf.has_symbol_table() {
            (None, UnwindTable::default())
        } else {
            self.without_symbols(origin, object, &elf, &code)
        };
        let name = basename(&origin.path).to_owned();
        let source = [Some(elf), debug].into_iter().flatten().find(Dwarf::is_in);
        let dwarf = match source.filter(|_| self.settings.dwarf) {
            Some(file) => {
                let is_open = |dwarf: &DwarfState| matches!(dwarf, DwarfState::Unread(Some(_)));
                let open =
                    |cached: &&CachedObject| matches!(&cached.names, CachedNames::Elf(elf) if is_open(&elf.dwarf));
                let keep = self.entries.values().filter(open).count() < MAX_KEPT_OPEN;
                // DWARF that is not kept may need a file from the server first, too.
                let sources = Box::new(self.finder().sources(origin, file));
                DwarfState::Unread(keep.then_some(sources))
            }
            None => DwarfState::None,
        };
        Ok(CachedNames::Elf(Box::new(ElfNames { symbols: builder.build(), go, unwind, name, code, dwarf })))
    }

    /// The tables that stripping keeps: Go's own table, and function starts.
    fn without_symbols(
        &self,
        origin: &ObjectOrigin,
        object: ObjectId,
        elf: &Elf,
        code: &[(u64, u64)],
    ) -> (Option<GoTable>, UnwindTable) {
        let limit = self.settings.max_symbol_bytes;
        let skipped = |table: &str, why: Unknown| {
            self.count(why);
            tracing::warn!(file = ?origin.path, object = object.0, table, reason = ?why, "table of functions skipped");
        };
        let go = GoTable::read(elf, limit).inspect_err(|&why| skipped(".gopclntab", why)).unwrap_or_default();
        let unwind = UnwindTable::read(elf, code, limit).inspect_err(|&why| skipped(".eh_frame", why));
        (go, unwind.unwrap_or_default())
    }

    fn read_vdso(&self, bytes: Arc<[u8]>) -> Result<CachedNames, Unknown> {
        let elf = Elf::read(Input::from_memory(bytes))?;
        let mut builder = SymbolTableBuilder::new(elf.code(), self.settings.max_symbol_bytes);
        builder.add_elf(&elf)?;
        Ok(CachedNames::Table(builder.build()))
    }

    /// The result of DWARF for addresses, which must be in ascending order. `None` if there is no DWARF or it cannot be
    /// read.
    pub(super) fn places(
        &mut self,
        object: ObjectId,
        content: Option<&Content>,
        addresses: &[u64],
    ) -> Option<Vec<Option<SourceFrames>>> {
        // The symbols may have been evicted meanwhile.
        self.symbols(object, content).ok()?;
        let finder = self.finder();
        let Some(CachedObject { names: CachedNames::Elf(elf), .. }) = self.entries.get_mut(&object) else {
            return None;
        };
        let origin = match content {
            Some(Content::Elf(origin)) => Some(&**origin),
            _ => None,
        };
        let mut budget = DwarfBudget::new(self.stop);
        let result = elf.read_dwarf(finder, origin, &mut budget).and_then(|dwarf| {
            let Some(dwarf) = dwarf else { return Ok(None) };
            let open = |path: &Path| finder.beside(origin?, path);
            dwarf.find(addresses, &open, &mut budget).map(Some).map_err(DwarfFailure::Broken)
        });
        match result {
            Ok(places) => places,
            // Reading was interrupted, which is not the file's fault.
            Err(_) if self.stop.load(Ordering::Relaxed) => None,
            Err(failure) => {
                elf.dwarf = DwarfState::None;
                let path = origin.map_or("", |origin| &origin.path);
                let reason = self.count_failure(&failure);
                tracing::warn!(file = ?path, object = object.0, reason, "debug information skipped");
                None
            }
        }
    }

    /// Evicts the least recently used entries until the rest fits.
    pub(super) fn make_room(&mut self) {
        let mut bytes: usize = self.entries.values().map(CachedObject::bytes).sum();
        while bytes > self.limit {
            let oldest = self.entries.iter().filter(|(_, entry)| entry.bytes() > 0).min_by_key(|(_, entry)| entry.used);
            let Some((&oldest, entry)) = oldest else { break };
            bytes -= entry.bytes();
            self.entries.remove(&oldest);
            Counting::add(&self.counting.tables_evicted, 1);
        }
        Counting::set(&self.counting.table_bytes, bytes);
    }

    fn count_failure(&self, failure: &DwarfFailure) -> &'static str {
        match failure {
            DwarfFailure::Unreadable(why) => {
                self.count(*why);
                match why {
                    Unknown::TooLarge => "larger than allowed",
                    Unknown::Unsupported => "compressed in a way that is not read",
                    Unknown::NoFile => "cannot be read",
                    _ => "makes no sense",
                }
            }
            DwarfFailure::Broken(Error::GaveUp) => {
                Counting::add(&self.counting.dwarf_given_up, 1);
                "takes more work than its size explains"
            }
            DwarfFailure::Broken(Error::Malformed) => {
                self.count(Unknown::Malformed);
                "makes no sense"
            }
        }
    }

    fn count(&self, why: Unknown) {
        let counter: &AtomicU64 = match why {
            Unknown::TooLarge => &self.counting.too_large,
            Unknown::Malformed => &self.counting.malformed,
            Unknown::Unsupported => &self.counting.unsupported,
            Unknown::Failed => &self.counting.panics,
            Unknown::NoFile | Unknown::NotAsked | Unknown::Refused | Unknown::NoSymbol => &self.counting.files_missing,
        };
        Counting::add(counter, 1);
    }

    /// Counts and logs each pair of object and reason once.
    fn complain(&mut self, object: ObjectId, content: Option<&Content>, why: Unknown) {
        if self.complaints.len() >= MAX_COMPLAINTS {
            self.complaints.clear();
        }
        let reason = match why {
            Unknown::TooLarge => "larger than allowed",
            Unknown::Unsupported => "of a kind that is not read",
            Unknown::Malformed => "no ELF file that makes sense",
            _ => "not found, not readable, or another one",
        };
        if !self.complaints.insert((object, reason)) {
            return;
        }
        self.count(why);
        let file = match content {
            Some(Content::Elf(origin)) => &*origin.path,
            Some(Content::PerfMap(..)) => "perf map",
            Some(Content::Vdso) => "[vdso]",
            None => "closed",
        };
        tracing::debug!(file = ?file, object = object.0, reason, "no symbols");
    }
}

impl CachedObject {
    fn bytes(&self) -> usize {
        match &self.names {
            CachedNames::Elf(elf) => elf.bytes(),
            CachedNames::Table(table) => table.bytes(),
            CachedNames::PerfMap { map, .. } => map.bytes(),
            CachedNames::Broken => 0,
        }
    }
}

impl ElfNames {
    /// The DWARF. Reads it if it is not in memory.
    fn read_dwarf(
        &mut self,
        finder: Finder<'_>,
        origin: Option<&ObjectOrigin>,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<Option<&mut Dwarf>, DwarfFailure> {
        if let DwarfState::Unread(sources) = &mut self.dwarf {
            let sources = match sources.take() {
                Some(sources) => Some(*sources),
                None => {
                    origin.map(|origin| open_again(finder, origin)).transpose().map_err(DwarfFailure::Unreadable)?
                }
            };
            let Some(sources) = sources else { return Err(DwarfFailure::Unreadable(Unknown::NoFile)) };
            let dwarf = Dwarf::load(sources, self.code.clone(), finder.settings.max_dwarf_bytes, budget)?;
            Counting::add(&finder.counting.dwarf, 1);
            self.dwarf = DwarfState::Read(Box::new(dwarf));
        }
        match &mut self.dwarf {
            DwarfState::Read(dwarf) => Ok(Some(dwarf)),
            DwarfState::Unread(_) | DwarfState::None => Ok(None),
        }
    }
}

/// The last part of a path, without the ` (deleted)` that Linux appends to deleted files (`proc_pid_maps(5)`).
fn basename(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

fn open_again(finder: Finder<'_>, origin: &ObjectOrigin) -> Result<Sources, Unknown> {
    let elf = finder.object(origin)?;
    let file = if Dwarf::is_in(&elf) { elf } else { finder.debug_file(origin, &elf).ok_or(Unknown::NoFile)? };
    Ok(finder.sources(origin, file))
}

fn read_perf_map(
    file: &File,
    map: &mut PerfMap,
    identity: &mut FileIdentity,
    settings: &Settings,
    counting: &Counting,
) -> Result<(), Unknown> {
    let length = input::check(file, settings.fuse)?;
    let now = FileIdentity::of(file).map_err(|_| Unknown::NoFile)?;
    // The file is another one, or was truncated and rewritten.
    if (now.device, now.inode) != (identity.device, identity.inode) || length < identity.size {
        *map = PerfMap::default();
    }
    *identity = now;
    let (malformed, full) = (map.malformed_lines, map.full);
    map.read(file, settings.max_perf_map_bytes).map_err(|_| Unknown::NoFile)?;
    Counting::add(&counting.perf_map_lines_malformed, map.malformed_lines - malformed);
    if map.full && !full {
        Counting::add(&counting.too_large, 1);
        tracing::warn!("perf map is larger than allowed; its last entries are ignored");
    }
    Ok(())
}
