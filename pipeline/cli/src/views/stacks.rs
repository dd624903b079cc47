//! Interns the functions and stacks of any number of batches, to draw them or to write them in other tools' formats.
//!
//! A stack is a node in a tree: the path from the root is the stack. Names come from the profiled process, so their
//! total size is limited and control characters are removed.

use std::collections::HashMap;
use std::ops::Range;

use profbridge_model::{Dictionary, Line, Location, LocationId, Profiles, Reason, StackId};
use profbridge_wire::folded::{MAX_DEPTH, frame_name, shortened};

use super::kind::Kind;
use crate::terminal::is_unprintable;

/// The most bytes of names.
const MOST_BYTES: usize = 128 << 20;

/// The most nodes, 32 bytes each including the lookup table.
const MOST_NODES: usize = 4 << 20;

/// Replaces the outermost frames of a stack that is too deep.
const DEEPER: &str = "[deeper frames left out]";

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    /// Its name, or its file in brackets.
    pub(crate) name: Box<str>,
    /// Its source file; empty if unknown.
    pub(crate) file: Box<str>,
    /// Base name of the file with its machine code; empty if there is no such file.
    pub(crate) module: Box<str>,
    /// Its first line; 0 if unknown.
    pub(crate) start: u32,
    /// The kind of code.
    pub(crate) kind: Kind,
}

impl Function {
    /// Where the function is, in short: the file with its machine code, or the base name of its source file. Empty if
    /// neither is known, or if the name contains it already.
    pub(crate) fn place(&self) -> &str {
        let file = self.file.rsplit('/').next().unwrap_or_default();
        // Interpreted code is identified by its source, whichever file contains the interpreter.
        let place =
            if self.module.is_empty() || self.kind == Kind::Own && is_script(file) { file } else { &self.module };
        if self.name.starts_with('[') && self.name.contains(place) { "" } else { place }
    }
}

/// Whether a source file is interpreted, and not compiled to machine code.
fn is_script(file: &str) -> bool {
    matches!(file.rsplit_once('.'), Some((_, "py" | "js" | "mjs" | "cjs" | "ts" | "rb" | "php" | "pl" | "pm" | "lua")))
}

/// A stack: the tree node of its innermost function. Callers have smaller numbers than their callees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node(u32);

impl Node {
    /// The empty stack.
    pub(crate) const ROOT: Self = Self(0);

    fn number(self) -> usize {
        self.0 as usize
    }
}

/// All functions and stacks.
#[derive(Debug)]
pub(crate) struct Stacks {
    functions: Vec<Function>,
    /// For each function, the line of its first frame; 0 if none has a line.
    lines: Vec<u32>,
    numbers: HashMap<Function, u32>,
    /// The caller's node and the function of each node.
    nodes: Vec<(Node, u32)>,
    children: HashMap<(Node, u32), Node>,
    bytes: usize,
    most_bytes: usize,
    most_nodes: usize,
}

impl Default for Stacks {
    fn default() -> Self {
        Self {
            functions: Vec::new(),
            lines: Vec::new(),
            numbers: HashMap::new(),
            nodes: vec![(Node::ROOT, u32::MAX)],
            children: HashMap::new(),
            bytes: 0,
            most_bytes: MOST_BYTES,
            most_nodes: MOST_NODES,
        }
    }
}

/// Caches for the stacks of one batch.
#[derive(Debug)]
pub(crate) struct StackCache {
    /// For each location so far, the range of its functions in `numbers`.
    locations: Vec<Option<Range<usize>>>,
    /// Numbers of functions, innermost first; `None` if there are too many.
    numbers: Vec<Option<u32>>,
    nodes: HashMap<Option<StackId>, Result<Node, Reason>>,
}

impl StackCache {
    /// An empty cache.
    pub(crate) fn new(batch: &Profiles) -> Self {
        let locations = vec![None; batch.dictionary().tables().locations.len()];
        Self { locations, numbers: Vec::new(), nodes: HashMap::new() }
    }
}

impl Stacks {
    /// With other limits.
    #[cfg(test)]
    pub(super) fn bounded(most_bytes: usize, most_nodes: usize) -> Self {
        Self { most_bytes, most_nodes, ..Self::default() }
    }

    /// The range of a location's functions in `numbers`.
    fn location(&mut self, of: &mut StackCache, dictionary: &Dictionary, id: LocationId) -> Range<usize> {
        if let Some(known) = &of.locations[id.index()] {
            return known.clone();
        }
        let location = dictionary.location(id);
        let lines = dictionary.lines(location);
        let start = of.numbers.len();
        // A location without lines is still a frame, with an unnamed function.
        for at in 0..lines.len().max(1) {
            let number = self.number(dictionary, location, lines.get(at));
            of.numbers.push(number);
        }
        let range = start..of.numbers.len();
        of.locations[id.index()] = Some(range.clone());
        range
    }

    fn number(&mut self, dictionary: &Dictionary, location: &Location, line: Option<&Line>) -> Option<u32> {
        let known = line.and_then(|line| line.function).map(|id| dictionary.function(id));
        let mapping = location.mapping.map(|mapping| dictionary.mapping(mapping));
        let code = dictionary.string(mapping.and_then(|mapping| mapping.filename));
        let module = code.rsplit('/').next().unwrap_or_default();
        let file = dictionary.string(known.and_then(|function| function.filename));
        let name = frame_name(dictionary, location, line);
        let kind = Kind::of(dictionary, location, &name, code, file);
        let name = match clean(&name) {
            name if name.is_empty() => "[unknown]".into(),
            name => name,
        };
        let positive = |line: i64| u32::try_from(line).ok().filter(|&line| line > 0);
        let start = known.and_then(|function| positive(function.start_line)).unwrap_or_default();
        let function = Function { name, file: clean(file), module: clean(module), start, kind };
        let number = self.function(function)?;
        if let Some(line) = line.and_then(|line| positive(line.line)) {
            let first = &mut self.lines[number as usize];
            *first = if *first == 0 { line } else { line.min(*first) };
        }
        Some(number)
    }

    /// The number of a function; `None` if there is no room for another one.
    fn function(&mut self, function: Function) -> Option<u32> {
        if let Some(&number) = self.numbers.get(&function) {
            return Some(number);
        }
        let bytes = 2 * (size_of::<Function>() + function.name.len() + function.file.len() + function.module.len());
        if self.bytes + bytes > self.most_bytes {
            return None;
        }
        self.bytes += bytes;
        let number = self.functions.len() as u32;
        self.functions.push(function.clone());
        self.lines.push(0);
        self.numbers.insert(function, number);
        Some(number)
    }

    /// The node for a stack of a batch.
    ///
    /// # Errors
    ///
    /// If it has no frames, or there is no room for it.
    pub(crate) fn node(
        &mut self,
        of: &mut StackCache,
        batch: &Profiles,
        stack: Option<StackId>,
    ) -> Result<Node, Reason> {
        if let Some(known) = of.nodes.get(&stack) {
            return *known;
        }
        let node = self.new_node(of, batch.dictionary(), stack);
        of.nodes.insert(stack, node);
        node
    }

    fn new_node(
        &mut self,
        of: &mut StackCache,
        dictionary: &Dictionary,
        stack: Option<StackId>,
    ) -> Result<Node, Reason> {
        let mut leaf_first: Vec<Option<u32>> = Vec::new();
        for location in dictionary.stack(stack).flatten() {
            let functions = self.location(of, dictionary, location);
            leaf_first.extend_from_slice(&of.numbers[functions]);
            if leaf_first.len() > MAX_DEPTH {
                break;
            }
        }
        if leaf_first.is_empty() {
            return Err(Reason::NoFrames);
        }
        let mut node = Node::ROOT;
        if leaf_first.len() > MAX_DEPTH {
            leaf_first.truncate(MAX_DEPTH);
            let empty = || Box::from("");
            let deeper =
                Function { name: DEEPER.into(), file: empty(), module: empty(), start: 0, kind: Kind::Library };
            leaf_first.push(self.function(deeper));
        }
        for function in leaf_first.into_iter().rev() {
            node = self.child(node, function.ok_or(Reason::LimitExceeded)?).ok_or(Reason::LimitExceeded)?;
        }
        Ok(node)
    }

    fn child(&mut self, of: Node, function: u32) -> Option<Node> {
        if let Some(&known) = self.children.get(&(of, function)) {
            return Some(known);
        }
        if self.nodes.len() >= self.most_nodes {
            return None;
        }
        let node = Node(self.nodes.len() as u32);
        self.nodes.push((of, function));
        self.children.insert((of, function), node);
        Some(node)
    }

    /// All functions by number, each with its first line or else the line of its first frame.
    pub(crate) fn functions(&self) -> impl ExactSizeIterator<Item = (&Function, Option<u32>)> {
        self.functions.iter().zip(&self.lines).map(|(function, &seen)| {
            let line = if function.start > 0 { function.start } else { seen };
            (function, (line > 0).then_some(line))
        })
    }

    /// The caller's node and the function's number; `None` for the root.
    pub(crate) fn edge(&self, node: Node) -> Option<(Node, u32)> {
        (node != Node::ROOT).then(|| self.nodes[node.number()])
    }

    /// The innermost function of a stack; `None` for the empty stack.
    pub(crate) fn innermost(&self, node: Node) -> Option<&Function> {
        self.edge(node).and_then(|(_, function)| self.functions.get(function as usize))
    }

    /// The numbers of a stack's functions, outermost first.
    pub(crate) fn path(&self, node: Node) -> Vec<u32> {
        let mut path = Vec::new();
        let mut at = node;
        while let Some((caller, function)) = self.edge(at) {
            path.push(function);
            at = caller;
        }
        path.reverse();
        path
    }
}

/// Makes text safe to show: removes characters that control a terminal or change the direction of text, and shortens
/// long text so that different texts stay different.
pub(crate) fn clean(text: &str) -> Box<str> {
    let text = shortened(text.trim());
    if !text.contains(is_unprintable) {
        return text.into();
    }
    text.chars().map(|c| if is_unprintable(c) { ' ' } else { c }).collect::<String>().trim().into()
}
