//! Finds an object's file and its separate debug file.
//!
//! The rules are GDB's (GDB documentation, "Debugging Information in Separate Files"): by build id in `.build-id` of a
//! debug folder; by the debug link's name beside the object, in `.debug` beside the object, and at the object's path
//! below a debug folder. A file found by a link must match the link's checksum; a file found by a build id must have
//! that build id. A [`DebugFileServer`] can supply files that are not on this machine, by build id.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::state::ObjectOrigin;
use crate::counters::Counting;
use crate::dwarf::{Dwarf, Sources};
use crate::elf::{DebugLink, Elf};
use crate::input::{self, Input};
use crate::{DebugFileServer, ObjectKey, ObjectSource, Requested, Settings, Unknown};

/// The debug folder inside a root folder other than this machine's.
const DEBUG_FOLDER: &str = "/usr/lib/debug";
/// The number of bytes that are read at a time to compute a checksum.
const STEP: usize = 1 << 20;

/// A server, and the build ids requested since the last check whose files may still arrive.
#[derive(Debug, Default)]
pub(super) struct RemoteFiles {
    pub(super) server: Option<Arc<dyn DebugFileServer>>,
    pub(super) coming: RefCell<Vec<Box<[u8]>>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Finder<'a> {
    pub(super) remote: &'a RemoteFiles,
    pub(super) settings: &'a Settings,
    pub(super) counting: &'a Counting,
    pub(super) stop: &'a AtomicBool,
}

impl Finder<'_> {
    /// Opens an object's file, and checks that it matches the key.
    pub(super) fn object(self, origin: &ObjectOrigin) -> Result<Elf, Unknown> {
        let file = match &origin.source {
            ObjectSource::File(file) => file.try_clone().map_err(|_| Unknown::NoFile)?,
            ObjectSource::Path(path) => input::open_on_this_machine(path, self.settings.fuse)?,
            ObjectSource::InRoot { root, path } => input::open_in_root(root, path, self.settings.fuse)?,
            ObjectSource::BuildId => return self.by_build_id_key(origin),
        };
        let elf = self.read_elf(file)?;
        let same = match &origin.key {
            ObjectKey::BuildId(id) => elf.build_id().as_deref() == Some(id),
            ObjectKey::File(identity) => elf.input.identity().as_ref() == Some(identity),
            ObjectKey::Other(_) => true,
        };
        if same { Ok(elf) } else { Err(Unknown::NoFile) }
    }

    /// Prefers the object to its debug file, although the debug file also has all names.
    fn by_build_id_key(self, origin: &ObjectOrigin) -> Result<Elf, Unknown> {
        let ObjectKey::BuildId(id) = &origin.key else { return Err(Unknown::NoFile) };
        let found = ["", ".debug"].iter().find_map(|suffix| self.by_build_id(origin, id, suffix));
        found.or_else(|| self.find_on_server(id)).ok_or(Unknown::NoFile)
    }

    /// The separate debug file of an object, if there is one.
    pub(super) fn debug_file(self, origin: &ObjectOrigin, object: &Elf) -> Option<Elf> {
        let id = object.build_id();
        let by_id = id.as_ref().and_then(|id| self.by_build_id(origin, id, ".debug"));
        let found = by_id.or_else(|| self.by_link(origin, &object.debug_link()?));
        // A file that contains debug information itself needs no download.
        let wanted = id.filter(|_| !self.settings.dwarf || !Dwarf::is_in(object));
        let found = found.or_else(|| self.find_on_server(&wanted?))?;
        Counting::add(&self.counting.debug_files, 1);
        Some(found)
    }

    /// All files with the DWARF of an object. `file` has the compilation units.
    pub(super) fn sources(self, origin: &ObjectOrigin, file: Elf) -> Sources {
        let shared = file.shared_debug_link().and_then(|(path, id)| self.shared_file(origin, &path, &id));
        let path = if let ObjectSource::Path(path) = &origin.source { path.as_os_str() } else { origin.path.as_ref() };
        let mut package = path.to_owned();
        package.push(".dwp");
        let package = if path.is_empty() { None } else { self.beside(origin, Path::new(&package)) };
        Sources { file, shared, package }
    }

    /// The file to which dwz moved the data that several debug files share.
    fn shared_file(self, origin: &ObjectOrigin, path: &str, id: &[u8]) -> Option<Elf> {
        // Debug folders have these files in `.dwz`, and the rest of the path is relative to it.
        let below_folder = path.rsplit_once(".dwz/").map(|(_, below)| below);
        let below_folder = below_folder.map(|path| below(Path::new(".dwz"), Path::new(path)));
        let in_root = || self.in_root(root_of(origin)?, &Path::new(DEBUG_FOLDER).join(below_folder.as_ref()?));
        let in_folders = || {
            let below_folder = below_folder.as_ref()?;
            self.settings.debug_folders.iter().find_map(|folder| self.on_this_machine(&folder.join(below_folder)))
        };
        let is_same = |elf: &Elf| elf.build_id().as_deref() == Some(id);
        let accept = |elf: &Elf| self.accept(is_same(elf));
        let found = self.by_build_id(origin, id, ".debug").or_else(|| in_root().filter(accept));
        let found = found.or_else(|| in_folders().filter(accept));
        let found = found.or_else(|| self.beside(origin, Path::new(path)).filter(accept));
        found.or_else(|| self.find_on_server(id))
    }

    /// Opens a file at a path from an object or its debug information, inside the root folder to which the path refers.
    pub(super) fn beside(self, origin: &ObjectOrigin, path: &Path) -> Option<Elf> {
        let path = folder_of(origin).join(path);
        match root_of(origin) {
            Some(root) => self.in_root(root, &path),
            None if matches!(origin.source, ObjectSource::Path(_)) => self.on_this_machine(&path),
            None => None,
        }
    }

    fn by_build_id(self, origin: &ObjectOrigin, id: &[u8], suffix: &str) -> Option<Elf> {
        let (first, rest) = id.split_first().filter(|(_, rest)| !rest.is_empty())?;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let path = format!(".build-id/{:02x}/{}{suffix}", first, hex(rest));
        let in_root = root_of(origin).map(|root| self.in_root(root, &Path::new(DEBUG_FOLDER).join(&path)));
        let in_folders = self.settings.debug_folders.iter().map(|folder| self.on_this_machine(&folder.join(&path)));
        let accept = |elf: &Elf| self.accept(elf.build_id().as_deref() == Some(id));
        in_root.into_iter().chain(in_folders).flatten().find(accept)
    }

    fn find_on_server(self, id: &[u8]) -> Option<Elf> {
        match self.remote.server.as_ref()?.request(id) {
            Requested::Here(file) => {
                let found = self.read_elf(file).ok().filter(|elf| elf.build_id().as_deref() == Some(id));
                self.accept(found.is_some());
                found
            }
            Requested::Coming { .. } => {
                self.remote.coming.borrow_mut().push(id.into());
                None
            }
            Requested::Missing => None,
        }
    }

    fn by_link(self, origin: &ObjectOrigin, link: &DebugLink) -> Option<Elf> {
        let folder = folder_of(origin);
        let beside = [folder.join(&link.name), folder.join(".debug").join(&link.name)];
        let below = below(Path::new(DEBUG_FOLDER), &folder).join(&link.name);
        let in_root = root_of(origin)
            .into_iter()
            .flat_map(|root| beside.iter().chain([&below]).map(move |path| self.in_root(root, path)));
        // A path chosen by the profiled process must not be opened outside of that process's root.
        let trusted = matches!(origin.source, ObjectSource::Path(_));
        let on_this_machine = beside.iter().filter(|_| trusted).map(|path| self.on_this_machine(path));
        let folders = self.settings.debug_folders.iter();
        let in_folders = folders.map(|debug| self.on_this_machine(&below_link(debug, &folder, link)));
        let accept = |elf: &Elf| self.accept(self.checksum(&elf.input) == Some(link.crc));
        in_root.chain(on_this_machine).chain(in_folders).flatten().find(accept)
    }

    fn accept(self, good: bool) -> bool {
        if !good {
            Counting::add(&self.counting.debug_files_refused, 1);
        }
        good
    }

    fn in_root(self, root: &File, path: &Path) -> Option<Elf> {
        self.read_elf(input::open_in_root(root, path, self.settings.fuse).ok()?).ok()
    }

    fn on_this_machine(self, path: &Path) -> Option<Elf> {
        self.read_elf(input::open_on_this_machine(path, self.settings.fuse).ok()?).ok()
    }

    fn read_elf(self, file: File) -> Result<Elf, Unknown> {
        Elf::read(Input::new(file, self.settings)?)
    }

    /// The CRC-32 of a whole file; `None` if the file is larger than allowed.
    fn checksum(self, input: &Input) -> Option<u32> {
        let limit = self.settings.max_dwarf_bytes.saturating_add(self.settings.max_symbol_bytes).saturating_mul(4);
        if input.len() > limit as u64 {
            Counting::add(&self.counting.too_large, 1);
            return None;
        }
        let mut crc = flate2::Crc::new();
        let mut at = 0;
        while at < input.len() {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            let bytes = input.read(at, (input.len() - at).min(STEP as u64), STEP).ok()?;
            crc.update(&bytes);
            at += bytes.len() as u64;
        }
        Some(crc.sum())
    }
}

/// The root folder in which an object's path is valid.
fn root_of(origin: &ObjectOrigin) -> Option<&File> {
    match &origin.source {
        ObjectSource::InRoot { root, .. } => Some(origin.root.as_deref().unwrap_or(root)),
        _ => origin.root.as_deref(),
    }
}

/// The folder that contains an object.
fn folder_of(origin: &ObjectOrigin) -> PathBuf {
    let path = match &origin.source {
        ObjectSource::Path(path) | ObjectSource::InRoot { path, .. } => path,
        ObjectSource::File(_) | ObjectSource::BuildId => Path::new(&origin.path),
    };
    path.parent().map(Path::to_owned).unwrap_or_default()
}

/// Appends `folder` to a debug folder, without parts that would lead out of the debug folder.
fn below(debug: &Path, folder: &Path) -> PathBuf {
    let parts = folder.components().filter_map(|part| match part {
        Component::Normal(name) => Some(OsString::from(name)),
        _ => None,
    });
    debug.iter().map(OsString::from).chain(parts).collect()
}

fn below_link(debug: &Path, folder: &Path, link: &DebugLink) -> PathBuf {
    below(debug, folder).join(&link.name)
}

#[cfg(test)]
mod tests;
