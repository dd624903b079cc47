//! Looks up names in files, on background threads.
//!
//! One thread finds files and verifies their ids; the [`Symbolizer`]'s thread reads them. Both start with the first
//! query, so creating a processor has no side effects.

mod find;
mod identify;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use profbridge_symbolizer::{Object, ObjectId, ObjectKey, ObjectSource, Segments, SymbolAnswer, Symbolizer, Unknown};

use self::find::Finder;
use crate::config::Settings;
use crate::names::{CodeAddress, FileId, MappedFile, NameSource};

/// The maximum number of files that wait to be found. Others are refused, and requested again with the next batch.
const MAX_JOBS: usize = 1024;

/// The maximum number of files whose state is stored. Beyond that, all are dropped except those being searched for.
const MAX_FILES: usize = 65_536;

/// The maximum number of addresses that wait for files that are being searched for. Others are requested again with the
/// next batch.
const MAX_EARLY: usize = 1 << 20;

/// After this time a missing file is searched for again, since a process that maps it may have started.
const RETRY: Duration = Duration::from_secs(10);

/// Finds and reads files in the background.
#[derive(Debug)]
pub struct Background {
    settings: Settings,
    running: Option<WorkerHandle>,
    failed: bool,
    /// The number of failed downloads that were already reported.
    failed_downloads: u64,
}

#[derive(Debug)]
struct WorkerHandle {
    symbolizer: Symbolizer,
    files: Arc<Mutex<KnownFiles>>,
    jobs: SyncSender<MappedFile>,
}

/// The state of all known files.
#[derive(Debug, Default)]
struct KnownFiles {
    states: HashMap<FileId, FileState>,
    /// Number of addresses that wait for the search.
    early: usize,
}

impl KnownFiles {
    /// Queues addresses for a file that is being searched for.
    fn wait(&mut self, id: &FileId, addresses: &[CodeAddress]) {
        if let Some(FileState::Sought(early)) = self.states.get_mut(id) {
            let room = MAX_EARLY.saturating_sub(self.early).min(addresses.len());
            early.extend_from_slice(&addresses[..room]);
            self.early += room;
        }
    }

    /// Records the end of a search. Returns the addresses that waited for it.
    fn settle(&mut self, id: FileId, state: FileState) -> Vec<CodeAddress> {
        let Some(FileState::Sought(early)) = self.states.insert(id, state) else { return Vec::new() };
        self.early -= early.len();
        early
    }
}

#[derive(Debug)]
enum FileState {
    /// The search is running. These addresses are requested when the file is found.
    Sought(Vec<CodeAddress>),
    /// The symbolizer has the file, or searches for its separate debug file. `missing` is set if the symbolizer
    /// reported that the file does not exist, or no longer exists.
    Found { object: ObjectId, parts: Option<Segments>, missing: bool, since: Instant },
    /// The file was not found.
    Missing { since: Instant },
}

/// Converts an address to an ELF virtual address. File offsets can be converted only if the file itself was found: the
/// program headers of a separate debug file do not contain the original offsets.
fn resolve(parts: Option<&Segments>, address: CodeAddress) -> Option<u64> {
    match address {
        CodeAddress::Virtual(address) => Some(address),
        CodeAddress::InFile(offset) => parts?.address(offset),
    }
}

fn resolve_all(parts: Option<&Segments>, addresses: &[CodeAddress]) -> Vec<u64> {
    addresses.iter().filter_map(|&address| resolve(parts, address)).collect()
}

impl FileState {
    /// Whether the file should be searched for now.
    fn is_wanted(&self) -> bool {
        match self {
            Self::Sought(_) | Self::Found { missing: false, .. } => false,
            Self::Found { since, .. } | Self::Missing { since } => since.elapsed() >= RETRY,
        }
    }
}

/// Whether the symbolizer has evicted an object.
fn is_forgotten(symbolizer: &Symbolizer, object: ObjectId, addresses: &[u64]) -> bool {
    let unknown = |&address: &u64| symbolizer.answer(object, address) == SymbolAnswer::Unknown(Unknown::NotAsked);
    addresses.first().is_some_and(unknown)
}

fn lock(files: &Mutex<KnownFiles>) -> MutexGuard<'_, KnownFiles> {
    // A panic cannot leave the state inconsistent, so a poisoned lock can be used.
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Background {
    /// Creates a source of names. Does not start any thread yet.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: settings.clone(), running: None, failed: false, failed_downloads: 0 }
    }

    fn start(&mut self) -> std::io::Result<WorkerHandle> {
        let server = profbridge_debuginfod::start(&self.settings.debuginfod)?;
        let symbolizer = Symbolizer::with_server(self.settings.symbolizer.clone(), server)?;
        let files = Arc::new(Mutex::new(KnownFiles::default()));
        let (jobs, inbox) = sync_channel(MAX_JOBS);
        let worker =
            FileWorker { symbolizer: symbolizer.clone(), files: Arc::clone(&files), settings: self.settings.clone() };
        thread::Builder::new().name("find files".to_owned()).spawn(move || worker.run(&inbox))?;
        Ok(WorkerHandle { symbolizer, files, jobs })
    }
}

impl NameSource for Background {
    fn wants_processes(&self, id: &FileId) -> bool {
        let Some(running) = &self.running else { return true };
        lock(&running.files).states.get(id).is_none_or(FileState::is_wanted)
    }

    fn ask(&mut self, file: &MappedFile, addresses: &[CodeAddress]) {
        if self.running.is_none() && !self.failed {
            match self.start() {
                Ok(running) => self.running = Some(running),
                Err(error) => {
                    self.failed = true;
                    tracing::error!("native frames stay without names, since no thread could be started: {error}");
                }
            }
        }
        let Some(WorkerHandle { symbolizer, files, jobs }) = &self.running else { return };
        let mut files = lock(files);
        let wanted = match files.states.get(&file.id) {
            Some(FileState::Sought(_)) => return files.wait(&file.id, addresses),
            // Another query would get the same answer, and the batch would wait for it.
            Some(state @ FileState::Found { missing: true, .. }) => state.is_wanted(),
            Some(FileState::Found { object, parts, .. }) => {
                let addresses = resolve_all(parts.as_ref(), addresses);
                symbolizer.ask(*object, &addresses) == 0 && is_forgotten(symbolizer, *object, &addresses)
            }
            Some(state @ FileState::Missing { .. }) => state.is_wanted(),
            None => true,
        };
        if !wanted {
            return;
        }
        if files.states.len() >= MAX_FILES {
            files.states.retain(|_, state| matches!(state, FileState::Sought(_)));
        }
        match jobs.try_send(file.clone()) {
            Ok(()) => {
                let before = files.states.insert(file.id.clone(), FileState::Sought(Vec::new()));
                if let Some(FileState::Found { object, .. }) = before {
                    // The new search may find another source, which is then another object.
                    symbolizer.forget(object);
                }
                files.wait(&file.id, addresses);
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    fn answer(&mut self, id: &FileId, address: CodeAddress, last: bool) -> SymbolAnswer {
        let Some(WorkerHandle { symbolizer, files, .. }) = &self.running else {
            return SymbolAnswer::Unknown(Unknown::Failed);
        };
        match lock(files).states.get_mut(id) {
            Some(FileState::Sought(_)) => SymbolAnswer::Pending,
            Some(FileState::Missing { .. }) => SymbolAnswer::Unknown(Unknown::NoFile),
            None => SymbolAnswer::Unknown(Unknown::NotAsked),
            Some(FileState::Found { object, parts, missing, since }) => {
                let Some(address) = resolve(parts.as_ref(), address) else {
                    return SymbolAnswer::Unknown(Unknown::NoSymbol);
                };
                let answer =
                    if last { symbolizer.last_answer(*object, address) } else { symbolizer.answer(*object, address) };
                // The file was closed to make room for others, or there is no separate debug file.
                if answer == SymbolAnswer::Unknown(Unknown::NoFile) && !*missing {
                    (*missing, *since) = (true, Instant::now());
                }
                answer
            }
        }
    }

    fn failed_downloads(&mut self) -> u64 {
        let failed = self.running.as_ref().map_or(0, |running| running.symbolizer.counters().debug_files_failed);
        failed - std::mem::replace(&mut self.failed_downloads, failed)
    }
}

/// State of the thread that finds files.
struct FileWorker {
    symbolizer: Symbolizer,
    files: Arc<Mutex<KnownFiles>>,
    settings: Settings,
}

impl FileWorker {
    /// Runs until the processor is dropped.
    fn run(self, jobs: &Receiver<MappedFile>) {
        let finder = Finder::new(&self.settings);
        while let Ok(file) = jobs.recv() {
            // A failure with one file must not affect others.
            let object = catch_unwind(AssertUnwindSafe(|| self.object(&finder, &file))).unwrap_or_default();
            let since = Instant::now();
            let (object, parts) = object.map_or((None, None), |(object, parts)| (Some(object), parts));
            let early_parts = parts.clone();
            let state = match object {
                Some(object) => FileState::Found { object, parts, missing: false, since },
                None => FileState::Missing { since },
            };
            // Requests the addresses before the state changes, because a reader that sees `Found` takes addresses that
            // were not requested for unknown.
            let mut files = lock(&self.files);
            let early = files.settle(file.id, state);
            if let Some(object) = object {
                self.symbolizer.ask(object, &resolve_all(early_parts.as_ref(), &early));
            }
        }
    }

    /// Passes the file to the symbolizer. Also returns the file's segments, if it is the file itself and not a debug
    /// file.
    fn object(&self, finder: &Finder, file: &MappedFile) -> Option<(ObjectId, Option<Segments>)> {
        let key = match &file.id {
            FileId::Gnu(digits) => ObjectKey::from_hex(digits)?,
            FileId::Htlhash(digits) => ObjectKey::Other(format!("htlhash {digits}").into()),
        };
        let mut parts = None;
        let object = match finder.find(file) {
            Some(found) => {
                parts = Segments::read(&found.file, &self.settings.symbolizer).ok();
                Object {
                    key,
                    source: ObjectSource::File(found.file),
                    root: Some(Arc::new(found.root)),
                    path: found.path,
                }
            }
            // Separate debug files can be found only by a GNU build id.
            None if matches!(key, ObjectKey::BuildId(_)) => {
                Object { key, source: ObjectSource::BuildId, root: None, path: file.filename.to_string() }
            }
            None => return None,
        };
        let located = matches!(object.source, ObjectSource::File(_));
        tracing::debug!(file = %file.filename, path = %object.path, located, "names are read from a file");
        Some((self.symbolizer.object(object), parts))
    }
}
