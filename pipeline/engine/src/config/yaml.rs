//! Parses YAML text into nodes.
//!
//! Uses the events of the parser beneath serde-saphyr instead of deserializing: only the events tell how a scalar was
//! quoted and where a key is, and with them all duplicate keys of a file can be reported at once.

use std::collections::HashMap;
use std::sync::Arc;

use serde_saphyr::granit_parser::{self, Event, Parser, ScalarStyle, Span, Tag};

use super::expand::{self, Env};
use super::node::{Dropped, Entry, Node, NodeKind, Scalar};
use super::position::Pos;

/// Maximum nesting depth of maps and lists. Merging and reading recurse, so this bounds the stack.
pub(super) const MAX_DEPTH: usize = 64;
/// Maximum number of nodes of a source after aliases are expanded: far above any configuration, far below an alias bomb
/// (nested aliases that expand exponentially).
const MAX_NODES: usize = 20_000;

/// Parsing stops after this many faults.
const MAX_FAULTS: usize = 100;

/// A problem in the text itself, before its position is resolved.
pub(super) struct YamlFault {
    pub(super) at: Pos,
    /// A second position, whose line the hint mentions.
    pub(super) first: Option<Pos>,
    pub(super) message: String,
    pub(super) hint: String,
}

/// A map or list that is not closed yet.
struct OpenContainer {
    at: Pos,
    anchor: usize,
    /// `Some` for a map.
    entries: Option<Vec<Entry>>,
    items: Vec<Arc<Node>>,
    /// The key whose value comes next.
    key: Option<(String, Pos, bool)>,
}

struct Builder<'a> {
    text: &'a str,
    source: u32,
    /// The byte offset of the YAML within the source.
    base: usize,
    env: Env<'a>,
    stack: Vec<OpenContainer>,
    anchors: HashMap<usize, Arc<Node>>,
    nodes: usize,
    root: Option<Arc<Node>>,
    faults: Vec<YamlFault>,
    complete: bool,
    dropped: Vec<Dropped>,
}

/// The result of parsing.
pub(super) struct ParsedYaml {
    /// The tree; null if there is none.
    pub(super) root: Node,
    pub(super) faults: Vec<YamlFault>,
    /// Whether the text was parsed to its end. If not, the tree is incomplete.
    pub(super) complete: bool,
    pub(super) dropped: Vec<Dropped>,
}

/// Reads the YAML that begins at byte `base` of a source.
pub(super) fn parse(text: &str, base: usize, source: u32, env: Env<'_>) -> ParsedYaml {
    let mut builder = Builder {
        text,
        source,
        base,
        env,
        stack: Vec::new(),
        anchors: HashMap::new(),
        nodes: 0,
        root: None,
        faults: Vec::new(),
        complete: true,
        dropped: Vec::new(),
    };
    builder.run();
    let end = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let nothing = Pos { source, start: u32::try_from(base).unwrap_or(u32::MAX).min(end), end };
    let root = builder.root.take().and_then(Arc::into_inner).unwrap_or_else(|| Node::null(nothing));
    ParsedYaml { root, faults: builder.faults, complete: builder.complete, dropped: builder.dropped }
}

impl Builder<'_> {
    fn run(&mut self) {
        let mut options = granit_parser::Options::default();
        options.set_emit_comments(false);
        options.flow_nesting_limit = MAX_DEPTH;
        options.block_nesting_limit = MAX_DEPTH;
        let text = self.text;
        let mut documents = 0_u32;
        for event in Parser::new_from_str_with_options(&text[self.base..], options) {
            let (event, span) = match event {
                Ok(event) => event,
                Err(error) => {
                    self.syntax(&error);
                    self.complete = false;
                    return;
                }
            };
            let at = self.pos(&span);
            if matches!(event, Event::DocumentStart(..)) {
                documents += 1;
                if documents > 1 {
                    let hint = "put it into a file of its own and pass both with `--config`";
                    self.fault(at, "a second YAML document begins here", hint);
                    self.complete = false;
                    return;
                }
            }
            if !self.event(event, at) || self.faults.len() > MAX_FAULTS {
                self.complete = false;
                return;
            }
        }
    }

    /// Processes one event; returns `false` if parsing should stop.
    fn event(&mut self, event: Event<'_>, at: Pos) -> bool {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                // For a missing value the parser reports the text `~`.
                let text = if at.start == at.end { "" } else { &*text };
                let node = self.scalar(text, style, tag.as_deref(), at);
                self.finish(Arc::new(node), anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), "seq", at);
                self.open(at, anchor, None)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), "map", at);
                self.open(at, anchor, Some(Vec::new()))
            }
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(open) => self.close(open, at),
                None => false,
            },
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => {
                    self.nodes = self.nodes.saturating_add(node.weight());
                    if self.stack.len() + node.depth() > MAX_DEPTH {
                        return self.too_deep(at);
                    }
                    self.within_limit(at) && self.finish(node, 0)
                }
                None => {
                    self.fault(at, "this alias refers to a value that contains it", "write the value out");
                    false
                }
            },
            _ => true,
        }
    }

    fn open(&mut self, at: Pos, anchor: usize, entries: Option<Vec<Entry>>) -> bool {
        if self.stack.len() >= MAX_DEPTH {
            return self.too_deep(at);
        }
        self.stack.push(OpenContainer { at, anchor, entries, items: Vec::new(), key: None });
        true
    }

    fn too_deep(&mut self, at: Pos) -> bool {
        self.fault(at, "values are nested too deeply", &format!("at most {MAX_DEPTH} levels"));
        false
    }

    fn close(&mut self, open: OpenContainer, end: Pos) -> bool {
        let mut at = open.at;
        // A flow collection ends at its bracket; a block collection ends at its last value.
        at.end = if self.text.as_bytes().get(at.start as usize).is_some_and(|b| matches!(b, b'[' | b'{')) {
            end.end.max(at.start)
        } else {
            at.end
        };
        let kind = match open.entries {
            Some(entries) => NodeKind::Map(self.merge_keys(entries)),
            None => NodeKind::Seq(open.items),
        };
        self.finish(Arc::new(Node { at, kind }), open.anchor)
    }

    /// Adds a finished node to its parent; returns `false` if parsing should stop.
    fn finish(&mut self, node: Arc<Node>, anchor: usize) -> bool {
        self.nodes = self.nodes.saturating_add(1);
        if !self.within_limit(node.at) {
            return false;
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.stack.last_mut() else {
            self.root = Some(node);
            return true;
        };
        let Some(entries) = &mut open.entries else {
            open.items.push(node);
            return true;
        };
        let Some((key, at, merge)) = open.key.take() else {
            self.key(node);
            return true;
        };
        match entries.iter().find(|entry| entry.key == key && !merge).map(Entry::pos) {
            // The key was refused before.
            None if key.is_empty() => self.drop_value(key, node),
            None => entries.push(Entry { key, at: vec![at], value: node }),
            Some(first) => {
                self.drop_value(key, node);
                let (message, hint) = ("this key stands here twice".into(), "the first one is in".into());
                self.faults.push(YamlFault { at, first: Some(first), message, hint });
            }
        }
        true
    }

    /// Keeps a value that is not part of the tree, because it may be a secret.
    fn drop_value(&mut self, key: String, node: Arc<Node>) {
        let open = self.stack.iter().filter_map(|open| open.key.as_ref()).map(|(key, ..)| key.clone());
        self.dropped.push(Dropped { path: open.chain([key]).collect(), node });
    }

    /// Uses a node as the key of the next entry.
    fn key(&mut self, node: Arc<Node>) {
        let key = match &node.kind {
            NodeKind::Scalar(scalar) if scalar.raw.is_empty() => {
                self.fault(node.at, "this key is empty", "write a name before the colon");
                (String::new(), node.at, true)
            }
            NodeKind::Scalar(scalar) => (scalar.raw.clone(), node.at, scalar.plain && scalar.raw == "<<"),
            _ => {
                self.fault(node.at, "a key must be text", "write it without brackets and braces");
                self.drop_value(String::new(), node.clone());
                (String::new(), node.at, true)
            }
        };
        if let Some(open) = self.stack.last_mut() {
            open.key = Some(key);
        }
    }

    /// Expands the merge keys `<<` (YAML 1.1 type `merge`); keys in the map itself take precedence.
    fn merge_keys(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        let (merges, mut own): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|entry| entry.key == "<<");
        for merge in merges {
            let maps: Vec<Arc<Node>> = match &merge.value.kind {
                NodeKind::Map(_) => vec![merge.value.clone()],
                NodeKind::Seq(items) => items.clone(),
                NodeKind::Scalar(_) => Vec::new(),
            };
            if maps.is_empty() || maps.iter().any(|map| !matches!(map.kind, NodeKind::Map(_))) {
                self.fault(
                    merge.pos(),
                    "`<<` merges maps, and this is none",
                    "write `<<: *name` with the anchor of a map",
                );
                self.drop_value(merge.key.clone(), merge.value.clone());
                continue;
            }
            for entry in maps.iter().filter_map(|map| map.entries()).flatten() {
                if !own.iter().any(|known| known.key == entry.key) {
                    self.nodes = self.nodes.saturating_add(entry.value.weight());
                    own.push(entry.clone());
                }
            }
        }
        own
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, at: Pos) -> Node {
        let mut plain = matches!(style, ScalarStyle::Plain);
        match tag.map(|tag| (tag.core_suffix(), tag)) {
            None => {}
            Some((Some("str"), _)) => plain = false,
            Some((Some("int" | "float" | "bool" | "null"), _)) => plain = true,
            // The non-specific tag `!` makes a plain scalar text (YAML 1.2.2, 6.9.1).
            Some((None, tag)) if tag.handle().is_empty() && tag.suffix() == "!" => plain = false,
            Some(_) => self.fault(at, "this tag is not supported", "delete the word that begins with `!`"),
        }
        let is_key = self.stack.last().is_some_and(|open| open.entries.is_some() && open.key.is_none());
        if is_key {
            let raw = text.to_owned();
            return Node {
                at,
                kind: NodeKind::Scalar(Scalar { text: raw.clone(), raw, plain, from_env: false, broken: None }),
            };
        }
        let expanded = expand::expand(text, self.env);
        if let Some((message, hint)) = &expanded.broken {
            self.fault(at, message, hint);
        }
        Node {
            at,
            kind: NodeKind::Scalar(Scalar {
                text: expanded.text,
                raw: text.to_owned(),
                plain,
                from_env: expanded.from_env,
                broken: expanded.broken,
            }),
        }
    }

    fn check_tag(&mut self, tag: Option<&Tag>, suffix: &str, at: Pos) {
        if tag.is_some_and(|tag| tag.core_suffix() != Some(suffix)) {
            self.fault(at, "this tag is not supported", "delete the word that begins with `!`");
        }
    }

    fn within_limit(&mut self, at: Pos) -> bool {
        if self.nodes <= MAX_NODES {
            return true;
        }
        self.fault(at, "too many values", &format!("at most {MAX_NODES} after aliases and `<<` are replaced"));
        false
    }

    fn fault(&mut self, at: Pos, message: &str, hint: &str) {
        self.faults.push(YamlFault { at, first: None, message: message.into(), hint: hint.into() });
    }

    fn syntax(&mut self, error: &granit_parser::ScanError) {
        let start = error.marker().byte_offset().unwrap_or_default().saturating_add(self.base).min(self.text.len());
        let at = Pos { source: self.source, start: clamp(start), end: clamp(start) };
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = self.text[line_start..].lines().next().unwrap_or_default();
        let indent = &line[..line.len() - line.trim_start().len()];
        let message = error.kind().to_string();
        let hint = if indent.contains('\t') {
            "YAML is indented with spaces; replace the tab"
        } else if message.contains("anchor") {
            "put quotes around text that begins with `*` or `&`"
        } else if message.contains("quoted") {
            "a quote in this line or above is not closed"
        } else if message.contains("recursion limit") {
            "maps and lists can be nested 64 levels deep"
        } else {
            "a bracket or a quote may not be closed; lines of one map begin in the same column; \
             text with `: `, ` #` or a special first character needs quotes"
        };
        self.fault(at, &format!("this is not YAML: {message}"), hint);
    }

    fn pos(&self, span: &Span) -> Pos {
        let byte = |marker: &granit_parser::Marker| {
            marker.byte_offset().unwrap_or_default().saturating_add(self.base).min(self.text.len())
        };
        let (start, end) = (byte(&span.start), byte(&span.end));
        // The parser's span of a block scalar extends to the next token; the excerpt ends with the text.
        let end = match self.text.get(start..end) {
            Some(text) => start + text.trim_end().len(),
            None => start,
        };
        Pos { source: self.source, start: clamp(start), end: clamp(end.max(start)) }
    }
}

fn clamp(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}
