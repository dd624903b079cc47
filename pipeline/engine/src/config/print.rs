//! Prints the merged tree without its secrets.

use super::expand;
use super::node::{Node, NodeKind, Scalar};
use super::redact::{self, REDACTED};
use super::text::Sources;

/// Returns the tree as YAML.
pub(super) fn redacted(sources: &Sources, root: &Node) -> String {
    let mut printer = Printer { sources, out: String::new(), path: Vec::new() };
    match root.entries() {
        Some(entries) if !entries.is_empty() => printer.block(root, 0),
        _ => printer.out.push_str("{}\n"),
    }
    printer.out
}

struct Printer<'a> {
    sources: &'a Sources,
    out: String,
    path: Vec<String>,
}

impl Printer<'_> {
    fn block(&mut self, node: &Node, depth: usize) {
        let indent = "  ".repeat(depth);
        match &node.kind {
            NodeKind::Map(entries) => {
                for entry in entries {
                    self.out.push_str(&indent);
                    let hidden = redact::hides_keys(&self.path);
                    self.out.push_str(&if hidden { quoted(REDACTED) } else { key(&entry.key) });
                    self.out.push(':');
                    self.path.push(entry.key.clone());
                    self.value(&entry.value, depth + 1);
                    self.path.pop();
                }
            }
            NodeKind::Seq(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.out.push_str(&indent);
                    self.out.push('-');
                    self.path.push(index.to_string());
                    self.value(item, depth + 1);
                    self.path.pop();
                }
            }
            NodeKind::Scalar(_) => {}
        }
    }

    /// Writes what follows a colon or a dash.
    fn value(&mut self, node: &Node, depth: usize) {
        match &node.kind {
            NodeKind::Map(entries) if entries.is_empty() => self.out.push_str(" {}\n"),
            NodeKind::Seq(items) if items.is_empty() => self.out.push_str(" []\n"),
            NodeKind::Map(_) | NodeKind::Seq(_) => {
                self.out.push('\n');
                self.block(node, depth);
            }
            NodeKind::Scalar(scalar) => {
                let text = self.scalar(node, scalar);
                if !text.is_empty() {
                    self.out.push(' ');
                    self.out.push_str(&text);
                }
                self.out.push('\n');
            }
        }
    }

    fn scalar(&self, node: &Node, scalar: &Scalar) -> String {
        let secret = redact::is_secret_path(&self.path) || self.sources.hides(node.at);
        let empty = scalar.raw.is_empty();
        if secret && !empty && !expand::is_only_references(&scalar.raw) {
            return quoted(REDACTED);
        }
        let shown = redact::without_inline_secrets(&scalar.raw);
        let as_written = scalar.plain && shown == scalar.raw && !shown.contains(|c: char| c.is_control());
        if as_written { shown } else { quoted(&shown) }
    }
}

fn key(key: &str) -> String {
    let key = redact::without_inline_secrets(key);
    let plain = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'));
    if plain { key } else { quoted(&key) }
}

/// Quotes a text as JSON, since JSON strings are valid YAML (YAML 1.2.2, 7.3.1).
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_else(|_| format!("\"{REDACTED}\""))
}
