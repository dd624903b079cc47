//! Merges the sources, each as one figment provider.
//!
//! figment decides precedence (later sources override earlier ones, maps are merged, everything else is replaced). It
//! only sees maps whose leaves are node indexes instead of values, so it can neither change a type, nor split a key at
//! its dots, nor print a value.

use std::collections::HashMap;
use std::sync::Arc;

use figment::value::{Dict, Map, Num, Tag, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::node::{Entry, Node, NodeKind};
use super::position::Pos;

/// A parsed source.
struct Layer {
    name: Arc<str>,
    values: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.to_string())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

/// The positions at which a key was written, and the order in which keys first appeared.
struct WrittenKey {
    order: usize,
    at: Vec<Pos>,
}

/// Merges trees in the given order.
#[derive(Default)]
pub(super) struct Merger {
    figment: Figment,
    /// The nodes whose indexes figment merges.
    leaves: Vec<Arc<Node>>,
    written: HashMap<Vec<String>, WrittenKey>,
    root: Pos,
}

impl Merger {
    /// Adds a source whose root must be a map.
    pub(super) fn add(&mut self, name: Arc<str>, root: &Node) {
        let mut path = Vec::new();
        self.root = root.at;
        let values = self.dict(root.entries().unwrap_or_default(), &mut path);
        self.figment = std::mem::take(&mut self.figment).merge(Layer { name, values });
    }

    fn dict(&mut self, entries: &[Entry], path: &mut Vec<String>) -> Dict {
        let mut dict = Dict::new();
        for entry in entries {
            path.push(entry.key.clone());
            let order = self.written.len();
            let written = self.written.entry(path.clone()).or_insert(WrittenKey { order, at: Vec::new() });
            written.at.extend_from_slice(&entry.at);
            let value = match &entry.value.kind {
                NodeKind::Map(entries) => Value::Dict(Tag::Default, self.dict(entries, path)),
                NodeKind::Scalar(_) | NodeKind::Seq(_) => {
                    self.leaves.push(entry.value.clone());
                    Value::Num(Tag::Default, Num::USize(self.leaves.len() - 1))
                }
            };
            path.pop();
            dict.insert(entry.key.clone(), value);
        }
        dict
    }

    /// The merged tree. It always exists, because providers that return maps do not fail.
    pub(super) fn finish(self) -> Option<Node> {
        let merged = self.figment.data().ok()?.remove(&Profile::Default).unwrap_or_default();
        let mut path = Vec::new();
        Some(self.map(merged, self.root, &mut path))
    }

    fn map(&self, dict: Dict, at: Pos, path: &mut Vec<String>) -> Node {
        let mut entries: Vec<(usize, Entry)> = Vec::new();
        for (key, value) in dict {
            path.push(key.clone());
            let (order, written) = self.written.get(path.as_slice()).map_or((0, &[][..]), |w| (w.order, &w.at));
            let at = written.last().copied().unwrap_or_default();
            let value = match value {
                Value::Dict(_, dict) => Arc::new(self.map(dict, at, path)),
                Value::Num(_, Num::USize(leaf)) => {
                    self.leaves.get(leaf).cloned().unwrap_or_else(|| Arc::new(Node::null(at)))
                }
                _ => Arc::new(Node::null(at)),
            };
            path.pop();
            entries.push((order, Entry { key, at: written.to_vec(), value }));
        }
        entries.sort_by_key(|(order, _)| *order);
        Node { at, kind: NodeKind::Map(entries.into_iter().map(|(_, entry)| entry).collect()) }
    }
}
