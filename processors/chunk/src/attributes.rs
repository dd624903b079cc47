//! Which attributes of a sample say what its process is, and are moved up to the resource.

use std::collections::HashMap;

use profbridge_model::{AttributeId, AttributeSetId, Dictionary};

/// Namespaces that describe a process or what it runs in (OpenTelemetry semantic conventions 1.44, registry).
const MOVED: [&str; 4] = ["process.", "container.", "service.", "host."];

/// What lies in these namespaces and yet describes a thread, a moment or a file: custom labels of the eBPF profiler
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

/// Whether an attribute with this key is moved from samples to the resource.
pub(crate) fn is_moved(key: &str) -> bool {
    MOVED.iter().any(|prefix| key.starts_with(prefix)) && !KEPT.iter().any(|prefix| key.starts_with(prefix))
}

/// What is moved out of each attribute set of one dictionary. Each set is looked at once, when it is first asked for;
/// none is where no attribute of the dictionary is one that moves, which is the usual case.
pub(crate) struct Moves<'a> {
    dictionary: &'a Dictionary,
    /// By attribute; empty where none moves.
    moved: Vec<bool>,
    /// By attribute set: 0 where it was not looked at, else one more than the position in `lists`.
    memo: Vec<u32>,
    /// The distinct lists of attributes that move; the first is empty.
    lists: Vec<Vec<AttributeId>>,
    index: HashMap<Vec<AttributeId>, u32>,
}

impl<'a> Moves<'a> {
    pub(crate) fn new(dictionary: &'a Dictionary) -> Self {
        let attributes = &dictionary.tables().attributes;
        let mut moved: Vec<bool> =
            attributes.iter().map(|attribute| is_moved(dictionary.string(attribute.key))).collect();
        let mut memo = Vec::new();
        if moved.iter().any(|&moved| moved) {
            memo.resize(dictionary.tables().attribute_sets.len(), 0);
        } else {
            moved.clear();
        }
        Self { dictionary, moved, memo, lists: vec![Vec::new()], index: HashMap::from([(Vec::new(), 0)]) }
    }

    /// Whether anything can move at all.
    pub(crate) fn any(&self) -> bool {
        !self.moved.is_empty()
    }

    /// The list of attributes that is moved out of a set; 0 is none.
    #[inline]
    pub(crate) fn of(&mut self, set: Option<AttributeSetId>) -> u32 {
        let Some(id) = set else { return 0 };
        match self.memo.get(id.index()) {
            None => 0,
            Some(0) => self.look_at(id),
            Some(&known) => known - 1,
        }
    }

    fn look_at(&mut self, id: AttributeSetId) -> u32 {
        let set = self.dictionary.attribute_set(Some(id));
        let mut list: Vec<_> = set.iter().flatten().copied().filter(|id| self.moved[id.index()]).collect();
        list.sort_unstable();
        let lists = &mut self.lists;
        let at = *self.index.entry(list).or_insert_with_key(|list| {
            lists.push(list.clone());
            lists.len() as u32 - 1
        });
        self.memo[id.index()] = at + 1;
        at
    }

    /// The attributes of a list.
    pub(crate) fn list(&self, at: u32) -> &[AttributeId] {
        &self.lists[at as usize]
    }

    /// What stays in a set.
    pub(crate) fn stays(&self, set: Option<AttributeSetId>) -> impl Iterator<Item = Option<AttributeId>> + '_ {
        let stays = |id: &AttributeId| !self.moved.get(id.index()).copied().unwrap_or(false);
        self.dictionary.attribute_set(set).iter().flatten().copied().filter(stays).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: what describes the process moves, what describes a thread, a moment, a file or a label stays.
    #[test]
    fn keys() {
        for key in ["process.pid", "process.executable.name", "container.id", "service.name", "host.id", "host.name"] {
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
