//! Decides which sample attributes describe the process and move to the resource.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;
use profbridge_model::{AttributeId, AttributeSetId, Dictionary};

/// Namespaces of attributes that describe a process or its environment (OpenTelemetry semantic conventions 1.44,
/// registry).
const MOVED: [&str; 5] = ["process.", "container.", "service.", "host.", "k8s."];

/// Keys in these namespaces that nevertheless describe a thread, a moment or a file: custom labels of the eBPF profiler
/// (opentelemetry-ebpf-profiler `reporter/internal/pdata/generate.go`), build ids of mappings, attributes of metrics.
const KEPT: [&str; 7] = [
    "process.context.",
    "process.context_switch_type",
    "process.executable.build_id.",
    "process.cpu.",
    "process.paging.",
    "process.state",
    "container.cpu.",
];

/// Whether an attribute with this key moves from samples to the resource.
pub(crate) fn is_moved(key: &str) -> bool {
    MOVED.iter().any(|prefix| key.starts_with(prefix)) && !KEPT.iter().any(|prefix| key.starts_with(prefix))
}

/// The moving attributes of each attribute set in a dictionary. Each set is examined once, on first use. If no
/// attribute of the dictionary moves, which is the usual case, no set is examined.
#[derive(Debug)]
pub(crate) struct Moves {
    dictionary: Arc<Dictionary>,
    /// For each attribute, whether it moves; empty if none does.
    moved: Vec<bool>,
    /// For each attribute set, 0 if it was not examined yet, else the list's position plus one.
    memo: Vec<u32>,
    /// The distinct lists of moving attributes, one after the other; the first list is empty.
    items: Vec<AttributeId>,
    /// The end of each list in `items`.
    ends: Vec<u32>,
    index: HashTable<u32>,
    state: RandomState,
    scratch: Vec<AttributeId>,
}

impl Moves {
    pub(crate) fn new(dictionary: &Arc<Dictionary>) -> Self {
        let attributes = &dictionary.tables().attributes;
        let mut moved: Vec<bool> =
            attributes.iter().map(|attribute| is_moved(dictionary.string(attribute.key))).collect();
        let mut memo = Vec::new();
        if moved.iter().any(|&moved| moved) {
            memo.resize(dictionary.tables().attribute_sets.len(), 0);
        } else {
            moved.clear();
        }
        Self {
            dictionary: Arc::clone(dictionary),
            moved,
            memo,
            items: Vec::new(),
            ends: vec![0],
            index: HashTable::new(),
            state: RandomState::new(),
            scratch: Vec::new(),
        }
    }

    /// Whether any attribute can move.
    pub(crate) fn any(&self) -> bool {
        !self.moved.is_empty()
    }

    /// The number of distinct lists.
    pub(crate) fn lists(&self) -> usize {
        self.ends.len()
    }

    /// Drops all lists.
    pub(crate) fn forget(&mut self) {
        self.memo.fill(0);
        (self.items, self.ends, self.index) = (Vec::new(), vec![0], HashTable::new());
    }

    /// Allocated memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.moved.capacity()
            + (self.memo.capacity() + self.ends.capacity()) * size_of::<u32>()
            + self.items.capacity() * size_of::<AttributeId>()
            + self.index.allocation_size()
    }

    /// The list of attributes that move out of a set; 0 if none do.
    #[inline]
    pub(crate) fn of(&mut self, set: Option<AttributeSetId>) -> u32 {
        let Some(id) = set else { return 0 };
        match self.memo.get(id.index()) {
            None => 0,
            Some(0) => self.classify(id),
            Some(&known) => known - 1,
        }
    }

    fn classify(&mut self, id: AttributeSetId) -> u32 {
        let mut list = std::mem::take(&mut self.scratch);
        list.clear();
        let set = self.dictionary.attribute_set(Some(id));
        list.extend(set.iter().flatten().copied().filter(|id| self.moved[id.index()]));
        list.sort_unstable();
        let at = if list.is_empty() { 0 } else { self.intern(&list) };
        self.scratch = list;
        self.memo[id.index()] = at + 1;
        at
    }

    fn intern(&mut self, list: &[AttributeId]) -> u32 {
        let hash = self.state.hash_one(list);
        if let Some(&known) = self.index.find(hash, |&at| self.list(at) == list) {
            return known;
        }
        let at = self.ends.len() as u32;
        self.items.extend_from_slice(list);
        self.ends.push(self.items.len() as u32);
        let (items, ends, state) = (&self.items, &self.ends, &self.state);
        self.index.insert_unique(hash, at, |&at| state.hash_one(part(items, ends, at)));
        at
    }

    pub(crate) fn list(&self, at: u32) -> &[AttributeId] {
        part(&self.items, &self.ends, at)
    }

    pub(crate) fn stays(&self, set: Option<AttributeSetId>) -> impl Iterator<Item = Option<AttributeId>> + '_ {
        let stays = |id: &AttributeId| !self.moved.get(id.index()).copied().unwrap_or(false);
        self.dictionary.attribute_set(set).iter().flatten().copied().filter(stays).map(Some)
    }
}

fn part<'a>(items: &'a [AttributeId], ends: &[u32], at: u32) -> &'a [AttributeId] {
    let end = ends[at as usize] as usize;
    let start = (at as usize).checked_sub(1).map_or(0, |before| ends[before] as usize);
    &items[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: attributes of the process move; those of a thread, a moment or a file, and labels, stay in the
    /// sample.
    #[test]
    fn keys() {
        let process = ["process.pid", "process.executable.name", "container.id", "service.name"];
        for key in process.into_iter().chain(["host.id", "host.name", "k8s.node.name", "k8s.pod.uid"]) {
            assert!(is_moved(key), "{key}");
        }
        for key in [
            "thread.id",
            "thread.name",
            "cpu.logical_number",
            "process.context.label.tenant",
            "process.executable.build_id.gnu",
            "process.context_switch_type",
            "processor",
            "hostname",
            "",
        ] {
            assert!(!is_moved(key), "{key}");
        }
    }
}
