//! Collects the addresses in a batch that can be named, by file.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use profbridge_model::dictionary::{Attribute, Dictionary, Value};
use profbridge_model::{AttributeSetId, LocationId, Mapping, MappingId, Profiles};

use crate::names::{CodeAddress, FileId, MappedFile, MappingProcess, NameSource};

/// The maximum number of processes that are searched for one file. All of them map the same file, so one is usually
/// enough.
const MAX_PROCESSES: usize = 4;

/// A location without a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) location: LocationId,
    /// Index of the location's file in [`Queries::files`].
    pub(crate) file: u32,
    pub(crate) address: CodeAddress,
}

/// All queries of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Queries {
    pub(crate) files: Vec<MappedFile>,
    pub(crate) queries: Vec<Query>,
    /// The number of native locations that cannot be named, because their file has no id, or their address is outside
    /// of its mapping.
    pub(crate) hopeless: u64,
}

impl Queries {
    /// Collects the queries of a batch.
    pub(crate) fn of(profiles: &Profiles, names: &dyn NameSource) -> Self {
        let dictionary = &**profiles.dictionary();
        let mut files = FileQueries::new(dictionary);
        let mut machine_code = HashMap::new();
        let mut found = Self::default();
        for (index, location) in dictionary.tables().locations.iter().enumerate().skip(1) {
            let Some(mapping) = location.mapping.filter(|_| location.lines_len == 0) else { continue };
            let native = location
                .attributes
                .is_none_or(|set| *machine_code.entry(set).or_insert_with(|| is_machine_code(dictionary, set)));
            if !native {
                continue;
            }
            let address = address_in(dictionary.mapping(mapping), location.address);
            match (files.index_of(mapping), address, LocationId::new(index as u32)) {
                (Some(file), Some(address), Some(location)) => {
                    found.queries.push(Query { location, file, address });
                }
                _ => found.hopeless += 1,
            }
        }
        found.files = files.found;
        let searched: Vec<bool> = found.files.iter().map(|file| names.wants_processes(&file.id)).collect();
        if searched.contains(&true) {
            let mut search = ProcessSearch::new(profiles, files.by_mapping, &searched);
            search.run(&mut found.files);
        }
        found
    }
}

/// Whether a location's frame type permits native code: for an interpreter, the address is an index into bytecode. A
/// location without a type but with a mapping counts as native code, as in the conversion.
fn is_machine_code(dictionary: &Dictionary, set: AttributeSetId) -> bool {
    match dictionary.find(Some(set), "profile.frame.type") {
        Some(Value::String(kind)) => matches!(dictionary.string(*kind), "native" | "kernel" | "go" | "rust"),
        Some(_) => false,
        None => true,
    }
}

/// The address relative to the file. Addresses of kernel frames are relative to a start address that is not sent; their
/// mapping is empty.
fn address_in(mapping: &Mapping, address: u64) -> Option<CodeAddress> {
    if mapping.moved_by() > 0 {
        return mapping.offset_of(address).map(CodeAddress::InFile);
    }
    mapping.contains(address).then_some(CodeAddress::Virtual(address))
}

/// The files of a batch. Mappings of the same file share one entry.
struct FileQueries<'a> {
    dictionary: &'a Dictionary,
    by_mapping: HashMap<MappingId, Option<u32>>,
    by_id: HashMap<FileId, u32>,
    found: Vec<MappedFile>,
}

impl<'a> FileQueries<'a> {
    fn new(dictionary: &'a Dictionary) -> Self {
        Self { dictionary, by_mapping: HashMap::new(), by_id: HashMap::new(), found: Vec::new() }
    }

    fn index_of(&mut self, mapping: MappingId) -> Option<u32> {
        if let Some(&known) = self.by_mapping.get(&mapping) {
            return known;
        }
        let attributes = self.dictionary.mapping(mapping).attributes;
        let text = |key: &str, digits: std::ops::RangeInclusive<usize>| match self.dictionary.find(attributes, key) {
            Some(Value::String(id)) => hexadecimal(self.dictionary.string(*id), digits),
            _ => None,
        };
        // A GNU build id has 2 to 64 bytes, as in `profbridge_symbolizer::ObjectKey`, and an htlhash has 16.
        let id = text("process.executable.build_id.gnu", 4..=128)
            .map(FileId::Gnu)
            .or_else(|| text("process.executable.build_id.htlhash", 32..=32).map(FileId::Htlhash));
        let file = id.map(|id| {
            let next = self.found.len() as u32;
            let file = *self.by_id.entry(id.clone()).or_insert(next);
            if file == next {
                let filename = self.dictionary.string(self.dictionary.mapping(mapping).filename).into();
                self.found.push(MappedFile { id, filename, processes: Vec::new() });
            }
            file
        });
        self.by_mapping.insert(mapping, file);
        file
    }
}

/// Hexadecimal digits in lower case, for comparison.
fn hexadecimal(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<Arc<str>> {
    let valid = digits.contains(&text.len())
        && text.len().is_multiple_of(2)
        && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    valid.then(|| text.to_ascii_lowercase().into())
}

/// A process and its index.
type Numbered = (u32, MappingProcess);

/// Finds the processes that map a file: those with a sample in the file.
struct ProcessSearch<'a> {
    profiles: &'a Profiles,
    /// For each mapping of interest, the index of its file.
    wanted: HashMap<MappingId, u32>,
    processes: HashMap<MappingProcess, u32>,
    /// Caches the process for a resource and the attributes of its samples.
    by_attributes: HashMap<(usize, Option<AttributeSetId>), Option<Numbered>>,
    /// The number of files that still need a process.
    open: usize,
}

impl<'a> ProcessSearch<'a> {
    fn new(profiles: &'a Profiles, by_mapping: HashMap<MappingId, Option<u32>>, searched: &[bool]) -> Self {
        let of = |(mapping, file): (MappingId, Option<u32>)| {
            file.filter(|&file| searched[file as usize]).map(|file| (mapping, file))
        };
        Self {
            profiles,
            wanted: by_mapping.into_iter().filter_map(of).collect(),
            processes: HashMap::new(),
            by_attributes: HashMap::new(),
            open: searched.iter().filter(|&&searched| searched).count(),
        }
    }

    fn run(&mut self, files: &mut [MappedFile]) {
        let (profiles, dictionary) = (self.profiles, &**self.profiles.dictionary());
        let mut seen = HashSet::new();
        for (at, resource) in profiles.resources().iter().enumerate() {
            for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
                for sample in profiles.samples(profile) {
                    let Some((number, process)) = self.process(at, sample.attributes) else { continue };
                    if !seen.insert((number, sample.stack)) {
                        continue;
                    }
                    for location in dictionary.stack(sample.stack).flatten() {
                        let Some(mapping) = dictionary.location(location).mapping else { continue };
                        let Some(&file) = self.wanted.get(&mapping) else { continue };
                        let known = &mut files[file as usize].processes;
                        if known.len() < MAX_PROCESSES && !known.contains(&process) {
                            known.push(process.clone());
                            self.open -= usize::from(known.len() == MAX_PROCESSES);
                        }
                    }
                    if self.open == 0 {
                        return;
                    }
                }
            }
        }
    }

    /// The process of a sample. The sample's attributes override those of its resource.
    fn process(&mut self, resource: usize, set: Option<AttributeSetId>) -> Option<Numbered> {
        let Self { profiles, processes, by_attributes, .. } = self;
        let found = by_attributes.entry((resource, set)).or_insert_with(|| {
            let dictionary = &**profiles.dictionary();
            let mut process = MappingProcess { peer: profiles.peer.clone(), ..MappingProcess::default() };
            for attribute in &profiles.resources()[resource].resource.attributes {
                read_attribute(&mut process, dictionary, attribute);
            }
            for attribute in dictionary.attributes(set) {
                read_attribute(&mut process, dictionary, attribute);
            }
            let useful = process.pid.is_some() || process.executable.is_some();
            useful.then(|| {
                let next = processes.len() as u32;
                (*processes.entry(process.clone()).or_insert(next), process)
            })
        });
        found.clone()
    }
}

fn read_attribute(process: &mut MappingProcess, dictionary: &Dictionary, attribute: &Attribute) {
    let text = || match attribute.value {
        Value::String(id) => Some(dictionary.string(id)).filter(|text| !text.is_empty()),
        _ => None,
    };
    match dictionary.string(attribute.key) {
        "process.pid" => {
            if let Value::Int(pid) = attribute.value {
                process.pid = u32::try_from(pid).ok().filter(|&pid| pid > 0);
            }
        }
        "process.executable.path" => process.executable = text().map(Arc::from).or(process.executable.take()),
        "container.id" => process.contained |= text().is_some(),
        "host.id" | "host.name" => process.hosts.extend(text().map(Arc::from)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
