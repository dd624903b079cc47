//! A simulated process for tests.
#![allow(clippy::expect_used, reason = "these are tests")]

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::{AddressSpace, CodeMemory, FileId, MapsEntry, ProcessView};
use crate::elf::ObjectCache;

/// A process with these maps, files and pieces of memory.
#[derive(Debug, Default)]
pub(crate) struct FakeProcess {
    pub(crate) maps: String,
    pub(crate) executable: Option<FileId>,
    /// The files that can be opened, by path.
    pub(crate) files: Vec<(&'static str, File)>,
    pub(crate) memory: Vec<(u64, Vec<u8>)>,
}

impl FakeProcess {
    /// Loads the process's address space; `before` is an earlier one.
    pub(crate) fn load(&self, before: Option<&AddressSpace>) -> AddressSpace {
        AddressSpace::load(self, before, &mut ObjectCache::default()).expect("it loads")
    }
}

#[derive(Debug)]
struct FakeMemory(Vec<(u64, Vec<u8>)>);

impl CodeMemory for FakeMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        let found =
            self.0.iter().find_map(|(start, part)| part.get(usize::try_from(address.checked_sub(*start)?).ok()?..));
        let count = found.map_or(0, |part| part.len().min(bytes.len()));
        bytes[..count].copy_from_slice(&found.unwrap_or_default()[..count]);
        count
    }
}

impl ProcessView for FakeProcess {
    fn maps(&self) -> io::Result<Vec<u8>> {
        Ok(self.maps.clone().into_bytes())
    }

    fn executable(&self) -> Option<FileId> {
        self.executable
    }

    fn open(&self, entry: &MapsEntry) -> io::Result<File> {
        let found = self.files.iter().find(|(path, _)| path.as_bytes() == entry.path);
        found.ok_or(io::ErrorKind::PermissionDenied.into()).and_then(|(_, file)| file.try_clone())
    }

    fn memory(&self) -> io::Result<Arc<dyn CodeMemory>> {
        Ok(Arc::new(FakeMemory(self.memory.clone())))
    }
}
