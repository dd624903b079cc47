//! The tree of a parsed YAML source: every node with its position, every scalar with its original text.
//!
//! The types deliberately have no `Debug`: a tree contains secrets.

use std::sync::Arc;

use super::position::Pos;
use super::scalar;

/// A value and its position. In a merged map the position is that of its key.
pub(super) struct Node {
    pub(super) at: Pos,
    pub(super) kind: NodeKind,
}

pub(super) enum NodeKind {
    Scalar(Scalar),
    Seq(Vec<Arc<Node>>),
    Map(Vec<Entry>),
}

/// A key of a map with its value.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    /// The positions of the key: one for each source that contains it. The last source takes precedence.
    pub(super) at: Vec<Pos>,
    pub(super) value: Arc<Node>,
}

/// A scalar. The code that reads it decides its type, so that `0123` stays `0123` where text is expected.
pub(super) struct Scalar {
    /// The value, with environment references expanded.
    pub(super) text: String,
    /// The value before environment references were expanded.
    pub(super) raw: String,
    /// Whether it was written without quotes, so that it may be null, a boolean or a number.
    pub(super) plain: bool,
    /// Whether parts of `text` came from the environment.
    pub(super) from_env: bool,
    /// Why a reference could not be expanded: message and hint.
    pub(super) broken: Option<(String, String)>,
}

/// A value that is not in the tree because its key is wrong, with its path. The value may still be a secret.
pub(super) struct Dropped {
    pub(super) path: Vec<String>,
    pub(super) node: Arc<Node>,
}

impl Scalar {
    /// Whether YAML reads the scalar as null.
    pub(super) fn is_null(&self) -> bool {
        self.plain && self.broken.is_none() && scalar::is_null(&self.text)
    }
}

impl Entry {
    /// The key's position in the source that takes precedence.
    pub(super) fn pos(&self) -> Pos {
        self.at.last().copied().unwrap_or_default()
    }
}

impl Node {
    /// An empty value, such as the one after `otlp:` with nothing under it.
    pub(super) fn null(at: Pos) -> Self {
        let kind = NodeKind::Scalar(Scalar {
            text: String::new(),
            raw: String::new(),
            plain: true,
            from_env: false,
            broken: None,
        });
        Self { at, kind }
    }

    /// Whether YAML reads the node as null.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, NodeKind::Scalar(scalar) if scalar.is_null())
    }

    /// The entries of a map; empty if the node is null; `None` if it is something else.
    pub(super) fn entries(&self) -> Option<&[Entry]> {
        match &self.kind {
            NodeKind::Map(entries) => Some(entries),
            NodeKind::Scalar(scalar) if scalar.is_null() => Some(&[]),
            _ => None,
        }
    }

    /// The items of a list; empty if the node is null; `None` if it is something else.
    pub(super) fn items(&self) -> Option<&[Arc<Node>]> {
        match &self.kind {
            NodeKind::Seq(items) => Some(items),
            NodeKind::Scalar(scalar) if scalar.is_null() => Some(&[]),
            _ => None,
        }
    }

    /// The entry `key` of a map.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries()?.iter().find(|entry| entry.key == key)
    }

    /// The node at `path` below this one; list items are addressed by index.
    pub(super) fn find(&self, path: &[String]) -> Option<&Node> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        match &self.kind {
            NodeKind::Map(_) => self.entry(first)?.value.find(rest),
            NodeKind::Seq(items) => items.get(first.parse::<usize>().ok()?)?.find(rest),
            NodeKind::Scalar(_) => None,
        }
    }

    /// The number of nesting levels; 1 for a scalar.
    pub(super) fn depth(&self) -> usize {
        let below = match &self.kind {
            NodeKind::Scalar(_) => 0,
            NodeKind::Seq(items) => items.iter().map(|item| item.depth()).max().unwrap_or(0),
            NodeKind::Map(entries) => entries.iter().map(|entry| entry.value.depth()).max().unwrap_or(0),
        };
        below + 1
    }

    /// The number of nodes, including this one.
    pub(super) fn weight(&self) -> usize {
        let below: usize = match &self.kind {
            NodeKind::Scalar(_) => 0,
            NodeKind::Seq(items) => items.iter().map(|item| item.weight()).sum(),
            NodeKind::Map(entries) => entries.iter().map(|entry| entry.value.weight()).sum(),
        };
        below.saturating_add(1)
    }

    /// The end of this node in the source `source`, as a byte offset.
    pub(super) fn extent(&self, source: u32) -> u32 {
        let own = if self.at.source == source && !self.at.is_whole() { self.at.end } else { 0 };
        let below = match &self.kind {
            NodeKind::Scalar(_) => 0,
            NodeKind::Seq(items) => items.iter().map(|item| item.extent(source)).max().unwrap_or(0),
            NodeKind::Map(entries) => {
                let keys = entries.iter().flat_map(|e| &e.at).filter(|at| at.source == source).map(|at| at.end);
                let values = entries.iter().map(|entry| entry.value.extent(source));
                keys.chain(values).max().unwrap_or(0)
            }
        };
        own.max(below)
    }

    /// Calls `visit` with every scalar below this node and the path of keys to it.
    pub(super) fn walk<'a>(&'a self, path: &mut Vec<String>, visit: &mut dyn FnMut(&[String], &'a Node, &'a Scalar)) {
        match &self.kind {
            NodeKind::Scalar(scalar) => visit(path, self, scalar),
            NodeKind::Seq(items) => {
                for (index, item) in items.iter().enumerate() {
                    path.push(index.to_string());
                    item.walk(path, visit);
                    path.pop();
                }
            }
            NodeKind::Map(entries) => {
                for entry in entries {
                    path.push(entry.key.clone());
                    entry.value.walk(path, visit);
                    path.pop();
                }
            }
        }
    }
}
