//! The names of one process's locations: which file each mapping is for the symbolizer, and what it says by now.
//!
//! Files are known by their identity on this machine and not by their build id, since a process could map a forged file with
//! another's build id. Before anything of a file is sampled it only costs its descriptor, and of those a process keeps a
//! bounded number: the others are found again inside of the process's root, if they are still the same.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use profbridge_ptrace::message::{Batch, Location, Mapping};
use profbridge_symbolize::{Answer, FileIdentity, Key, Object, ObjectId, Source, Symbolizer, Symbols, Unknown};

use crate::assemble::Names;

/// So many files of a process are kept open before anything of them is sampled.
const MAX_OPEN_FILES: usize = 64;

/// A mapping as the symbolizer needs it.
#[derive(Debug)]
enum Place {
    /// Nothing of it was sampled yet.
    Unasked { identity: FileIdentity, file: Option<File>, path: String },
    /// The symbolizer knows it.
    Object(ObjectId),
    /// There is no file.
    Nothing,
}

/// The names of one process's locations.
#[derive(Debug)]
pub struct ProcessNames {
    symbolizer: Symbolizer,
    /// Tells perf maps of processes apart.
    number: u64,
    root: Option<Arc<File>>,
    places: Vec<Place>,
    open_files: usize,
    perf_map: Option<ObjectId>,
}

impl ProcessNames {
    /// A process without mappings. `number` is another one for each process that uses this symbolizer.
    #[must_use]
    pub fn new(symbolizer: Symbolizer, number: u64, root: Option<File>) -> Self {
        let root = root.map(Arc::new);
        Self { symbolizer, number, root, places: Vec::new(), open_files: 0, perf_map: None }
    }

    /// A file is mapped. Mappings come in the order of their index.
    pub fn mapping(&mut self, mapping: Mapping) {
        let place = match (mapping.file, mapping.path) {
            (_, path) if path == "[vdso]" => Place::Object(self.symbolizer.vdso()),
            (Some(file), path) => match FileIdentity::of(&file) {
                Ok(identity) => {
                    let keep = self.open_files < MAX_OPEN_FILES || self.root.is_none();
                    self.open_files += usize::from(keep);
                    Place::Unasked { identity, file: keep.then_some(file), path }
                }
                Err(_) => Place::Nothing,
            },
            (None, _) => Place::Nothing,
        };
        self.places.push(place);
    }

    /// The process's perf map as it is now.
    pub fn perf_map(&mut self, file: File) {
        self.perf_map = Some(self.symbolizer.perf_map(self.number, file));
    }

    /// Asks for the names of all locations of a batch.
    pub fn ask(&mut self, batch: &Batch) {
        self.ask_for(batch.locations.iter().copied());
    }

    /// Whether the symbolizer may still say more about a batch. What it forgot or refused is asked for again.
    pub fn is_late(&mut self, batch: &Batch) -> bool {
        let mut late = false;
        let mut again = Vec::new();
        for &location in &batch.locations {
            let Some(object) = self.object(location) else { continue };
            let answer = self.symbolizer.answer(object, location.address);
            if let Answer::Unknown(Unknown::NotAsked | Unknown::Refused) = answer {
                again.push(location);
            }
            late |= answer.is_late();
        }
        let late = late || !again.is_empty();
        self.ask_for(again.into_iter());
        late
    }

    fn ask_for(&mut self, locations: impl Iterator<Item = Location>) {
        let mut asked: Vec<(ObjectId, u64)> =
            locations.filter_map(|location| Some((self.find(location)?, location.address))).collect();
        asked.sort_unstable();
        asked.dedup();
        for group in asked.chunk_by(|left, right| left.0 == right.0) {
            let addresses: Vec<u64> = group.iter().map(|&(_, address)| address).collect();
            self.symbolizer.ask(group[0].0, &addresses);
        }
    }

    /// The object of a location, which becomes known to the symbolizer where it is not.
    fn find(&mut self, location: Location) -> Option<ObjectId> {
        let Some(index) = location.mapping else { return self.perf_map };
        let place = self.places.get_mut(index as usize)?;
        if let Place::Unasked { identity, file, path } = place {
            let source = match (file.take(), &self.root) {
                (Some(file), _) => {
                    self.open_files -= 1;
                    Source::File(file)
                }
                (None, Some(root)) => Source::InRoot { root: Arc::clone(root), path: PathBuf::from(path.as_str()) },
                (None, None) => {
                    *place = Place::Nothing;
                    return None;
                }
            };
            let object =
                Object { key: Key::File(*identity), source, root: self.root.clone(), path: std::mem::take(path) };
            *place = Place::Object(self.symbolizer.object(object));
        }
        self.object(location)
    }

    fn object(&self, location: Location) -> Option<ObjectId> {
        let Some(index) = location.mapping else { return self.perf_map };
        match self.places.get(index as usize)? {
            Place::Object(object) => Some(*object),
            Place::Unasked { .. } | Place::Nothing => None,
        }
    }
}

impl Names for ProcessNames {
    fn symbols(&self, location: Location) -> Option<Arc<Symbols>> {
        let object = self.object(location)?;
        self.symbolizer.last_answer(object, location.address).symbols().cloned()
    }
}

impl Drop for ProcessNames {
    fn drop(&mut self) {
        if let Some(map) = self.perf_map {
            self.symbolizer.forget(map);
        }
    }
}

#[cfg(test)]
mod tests;
