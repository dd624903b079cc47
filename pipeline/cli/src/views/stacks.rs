//! Interns the functions and stacks of any number of batches, to draw them or to write them in other tools' formats.
//!
//! A stack is a node in a tree: the path from the root is the stack. Names come from the profiled process, so their
//! total size is limited and control characters are removed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;

use profbridge_model::{Dictionary, Line, LocationId, Profiles, Reason, StackId};
use profbridge_wire::folded::{MAX_DEPTH, frame_name, shortened};
use profbridge_wire::sentry::chunk::origin::{CodeOrigin, Origins};

use super::fold::{CALLERS_NOT_KNOWN, NO_OWN_CODE};
use super::names;
use crate::terminal::{base_name, is_unprintable};

/// The most bytes of names.
const MOST_BYTES: usize = 128 << 20;

/// The most nodes, 32 bytes each including the lookup table.
const MOST_NODES: usize = 4 << 20;

/// Replaces the outermost frames of a stack that is too deep.
const DEEPER: &str = "[deeper frames left out]";

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StackFunction {
    /// Its name, or its file in brackets.
    pub(crate) name: Box<str>,
    /// Its source file; empty if unknown.
    pub(crate) file: Box<str>,
    /// Base name of the file with its machine code; empty if there is no such file.
    pub(crate) module: Box<str>,
    /// Its first line; 0 if unknown.
    pub(crate) start: u32,
    /// The origin of its code.
    pub(crate) origin: CodeOrigin,
    /// Whether an interpreter or a virtual machine executes it.
    pub(crate) is_interpreted: bool,
    /// Whether folding made it, of several functions of libraries.
    pub(crate) is_folded: bool,
}

impl StackFunction {
    /// A frame that stands for no function, such as `[callers not known]`.
    pub(crate) fn placeholder(name: &str) -> Self {
        let empty = || Box::from("");
        let origin = CodeOrigin::Library;
        Self {
            name: name.into(),
            file: empty(),
            module: empty(),
            start: 0,
            origin,
            is_interpreted: false,
            is_folded: false,
        }
    }

    /// Whether it stands for no function.
    pub(crate) fn is_placeholder(&self) -> bool {
        self.name.starts_with('[') && self.module.is_empty() && self.file.is_empty()
    }

    /// The whole name, or what a frame means that stands for no function.
    pub(crate) fn explained(&self) -> &str {
        match &*self.name {
            NO_OWN_CODE => "libraries, interpreters and the kernel, without any function of the program",
            CALLERS_NOT_KNOWN => "the thread ran on before its whole stack could be read",
            "[processor time not sampled]" => "of this processor time only the amount is known",
            name if self.is_folded && name.starts_with("via ") => "libraries that call what stands below",
            name => name,
        }
    }

    /// Where the function is, in short: the base name of its source file for own code, or else the file with its
    /// machine code. Empty if neither is known, or if the name contains it already.
    pub(crate) fn place(&self) -> &str {
        let file = base_name(&self.file);
        let is_by_source = self.module.is_empty() || self.origin == CodeOrigin::Own && !file.is_empty();
        let place = if is_by_source { file } else { &self.module };
        if self.name.starts_with('[') && self.name.contains(place) { "" } else { place }
    }

    /// The same with a line, for own code: `shop.py:51`.
    pub(crate) fn place_with(&self, line: Option<u32>) -> String {
        match (self.place(), line.filter(|&line| line > 0 && self.origin == CodeOrigin::Own)) {
            ("", _) => String::new(),
            (place, Some(line)) if !self.file.is_empty() => format!("{place}:{line}"),
            (place, _) => place.to_owned(),
        }
    }

    /// The same behind a name: ` (shop.py:51)`; empty if it is not known.
    pub(crate) fn in_place(&self, line: Option<u32>) -> String {
        match self.place_with(line) {
            place if place.is_empty() => place,
            place => format!(" ({place})"),
        }
    }
}

/// All origins of code with their names in legends, most important first.
pub(crate) const ORIGINS: [(CodeOrigin, &str); 4] = [
    (CodeOrigin::Own, "own code"),
    (CodeOrigin::Library, "library"),
    (CodeOrigin::Interpreter, "interpreter"),
    (CodeOrigin::Kernel, "kernel"),
];

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

/// The weight of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The function.
    pub(crate) function: u32,
    /// The weight of stacks that end with it.
    pub(crate) own: u64,
    /// The weight of stacks that contain it.
    pub(crate) total: u64,
}

/// All functions and stacks.
#[derive(Debug)]
pub(crate) struct Stacks {
    functions: Vec<StackFunction>,
    /// The name of each function for people: short, and different for functions of one file.
    labels: Vec<Box<str>>,
    /// The function that has a label, by label and file.
    labelled: HashMap<(Box<str>, Box<str>), u32>,
    /// For each function, the line of its first frame; 0 if none has a line.
    lines: Vec<u32>,
    numbers: HashMap<StackFunction, u32>,
    /// The caller's node and the function of each node.
    nodes: Vec<(Node, u32)>,
    children: HashMap<(Node, u32), Node>,
    /// The folded form of stacks; see `fold`.
    pub(super) folded: HashMap<(Node, bool), Node>,
    /// Whether lines of own code are told apart, and not only functions.
    pub(crate) by_line: bool,
    bytes: usize,
    most_bytes: usize,
    most_nodes: usize,
}

impl Default for Stacks {
    fn default() -> Self {
        Self {
            functions: Vec::new(),
            labels: Vec::new(),
            labelled: HashMap::new(),
            lines: Vec::new(),
            numbers: HashMap::new(),
            nodes: vec![(Node::ROOT, u32::MAX)],
            children: HashMap::new(),
            folded: HashMap::new(),
            by_line: false,
            bytes: 0,
            most_bytes: MOST_BYTES,
            most_nodes: MOST_NODES,
        }
    }
}

/// A stack, and the lines of the own code in it.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedStack {
    /// The stack.
    pub(crate) node: Node,
    /// The functions of own code with the lines at which they were, those without a line left out.
    pub(crate) lines: Rc<[(u32, u32)]>,
}

/// Caches for the stacks of one batch.
#[derive(Debug)]
pub(crate) struct StackCache<'a> {
    dictionary: &'a Dictionary,
    origins: Origins<'a>,
    /// For each location so far, the range of its functions in `frames`.
    locations: Vec<Option<Range<usize>>>,
    /// Numbers of functions, innermost first, with their lines; `None` if there are too many functions.
    pub(crate) frames: Vec<Option<(u32, u32)>>,
    stacks: HashMap<Option<StackId>, Result<ResolvedStack, Reason>>,
}

impl<'a> StackCache<'a> {
    /// An empty cache.
    pub(crate) fn new(batch: &'a Profiles) -> Self {
        let dictionary = &**batch.dictionary();
        let locations = vec![None; dictionary.tables().locations.len()];
        let origins = Origins::new(batch);
        Self { dictionary, origins, locations, frames: Vec::new(), stacks: HashMap::new() }
    }
}

impl Stacks {
    /// With other limits.
    #[cfg(test)]
    pub(super) fn bounded(most_bytes: usize, most_nodes: usize) -> Self {
        Self { most_bytes, most_nodes, ..Self::default() }
    }

    /// The range of a location's functions in `frames`.
    pub(crate) fn location(&mut self, cache: &mut StackCache<'_>, id: LocationId) -> Range<usize> {
        if let Some(known) = &cache.locations[id.index()] {
            return known.clone();
        }
        let lines = cache.dictionary.lines(cache.dictionary.location(id));
        let start = cache.frames.len();
        // A location without lines is still a frame, with an unnamed function.
        for at in 0..lines.len().max(1) {
            let frame = self.frame(cache, id, lines.get(at));
            cache.frames.push(frame);
        }
        let range = start..cache.frames.len();
        cache.locations[id.index()] = Some(range.clone());
        range
    }

    /// The number of a frame's function and the frame's line, 0 if unknown; `None` if there is no room for the
    /// function.
    fn frame(&mut self, cache: &StackCache<'_>, id: LocationId, line: Option<&Line>) -> Option<(u32, u32)> {
        let dictionary = cache.dictionary;
        let location = dictionary.location(id);
        let known = line.and_then(|line| line.function).map(|id| dictionary.function(id));
        let mapping = location.mapping.map(|mapping| dictionary.mapping(mapping));
        let code = dictionary.string(mapping.and_then(|mapping| mapping.filename));
        let file = dictionary.string(known.and_then(|function| function.filename));
        let name = frame_name(dictionary, location, line);
        let name = match clean(&name) {
            name if name.is_empty() => "[unknown]".into(),
            name => name,
        };
        let positive = |line: i64| u32::try_from(line).ok().filter(|&line| line > 0);
        let (origin, is_interpreted) = (cache.origins.of(id, line), cache.origins.is_interpreted(id));
        let at = line.and_then(|line| positive(line.line));
        // Lines of own code that are told apart are functions that start there.
        let start = match self.by_line && origin == CodeOrigin::Own {
            true => at,
            false => known.and_then(|function| positive(function.start_line)),
        };
        let start = start.unwrap_or_default();
        let (file, module, is_folded) = (clean(file), clean(base_name(code)), false);
        let function = StackFunction { name, file, module, start, origin, is_interpreted, is_folded };
        let number = self.function(function)?;
        let line = at.unwrap_or_default();
        if line > 0 {
            let first = &mut self.lines[number as usize];
            *first = if *first == 0 { line } else { line.min(*first) };
        }
        Some((number, line))
    }

    /// The number of a function; `None` if there is no room for another one.
    pub(crate) fn function(&mut self, function: StackFunction) -> Option<u32> {
        if let Some(&number) = self.numbers.get(&function) {
            return Some(number);
        }
        // The function is stored twice, and its name a third and fourth time as a label.
        let bytes =
            2 * (size_of::<StackFunction>() + 2 * function.name.len() + function.file.len() + function.module.len());
        if self.bytes + bytes > self.most_bytes {
            return None;
        }
        self.bytes += bytes;
        let number = self.functions.len() as u32;
        self.label(&function, number);
        self.functions.push(function.clone());
        self.lines.push(0);
        self.numbers.insert(function, number);
        Some(number)
    }

    /// Names a function for people. The first one with a short name has it; others of the same file have more of it.
    fn label(&mut self, function: &StackFunction, number: u32) {
        let is_native = !function.is_interpreted && !function.is_folded;
        let mut label: Box<str> =
            if is_native { names::short(&function.name, false).into() } else { function.name.clone() };
        let key = |label: &str| (label.into(), function.file.clone());
        if is_native && self.labelled.contains_key(&key(&label)) {
            label = names::short(&function.name, true).into();
        }
        if self.by_line && function.origin == CodeOrigin::Own && function.start > 0 {
            label = format!("{label}:{}", function.start).into();
        }
        self.labelled.entry(key(&label)).or_insert(number);
        self.labels.push(label);
    }

    /// Resolves a stack of a batch.
    ///
    /// # Errors
    ///
    /// If it has no frames, or there is no room for it.
    pub(crate) fn resolve(
        &mut self,
        cache: &mut StackCache<'_>,
        stack: Option<StackId>,
    ) -> Result<ResolvedStack, Reason> {
        if let Some(known) = cache.stacks.get(&stack) {
            return known.clone();
        }
        let resolved = self.new_stack(cache, stack);
        cache.stacks.insert(stack, resolved.clone());
        resolved
    }

    fn new_stack(&mut self, cache: &mut StackCache<'_>, stack: Option<StackId>) -> Result<ResolvedStack, Reason> {
        let mut leaf_first: Vec<Option<(u32, u32)>> = Vec::new();
        for location in cache.dictionary.stack(stack).flatten() {
            let functions = self.location(cache, location);
            leaf_first.extend_from_slice(&cache.frames[functions]);
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
            leaf_first.push(self.function(StackFunction::placeholder(DEEPER)).map(|number| (number, 0)));
        }
        let mut lines = Vec::new();
        for frame in leaf_first.into_iter().rev() {
            let (function, line) = frame.ok_or(Reason::LimitExceeded)?;
            node = self.child(node, function).ok_or(Reason::LimitExceeded)?;
            // A recursive function counts at its innermost line.
            if line > 0 && self.functions[function as usize].origin == CodeOrigin::Own {
                lines.retain(|(known, _)| *known != function);
                lines.push((function, line));
            }
        }
        Ok(ResolvedStack { node, lines: lines.into() })
    }

    pub(super) fn child(&mut self, of: Node, function: u32) -> Option<Node> {
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
    pub(crate) fn functions(&self) -> impl ExactSizeIterator<Item = (&StackFunction, Option<u32>)> {
        self.functions.iter().zip(&self.lines).map(|(function, &seen)| {
            let line = if function.start > 0 { function.start } else { seen };
            (function, (line > 0).then_some(line))
        })
    }

    /// A function by its number.
    pub(crate) fn get(&self, function: u32) -> &StackFunction {
        &self.functions[function as usize]
    }

    /// The short name of a function.
    pub(crate) fn label_of(&self, function: u32) -> &str {
        &self.labels[function as usize]
    }

    /// The weights of functions, by their own weight, then the total (both descending), then the number.
    pub(crate) fn costs(&self, weighed: &[(Node, u64)]) -> Vec<Cost> {
        let mut costs: Vec<Cost> =
            (0..self.functions.len() as u32).map(|function| Cost { function, own: 0, total: 0 }).collect();
        // The stack in which a function was last counted, so that recursion counts once.
        let mut last = vec![usize::MAX; costs.len()];
        for (number, &(node, weight)) in weighed.iter().enumerate() {
            if let Some((_, leaf)) = self.edge(node) {
                let own = &mut costs[leaf as usize].own;
                *own = own.saturating_add(weight);
            }
            for function in self.path(node) {
                if std::mem::replace(&mut last[function as usize], number) != number {
                    let total = &mut costs[function as usize].total;
                    *total = total.saturating_add(weight);
                }
            }
        }
        costs.retain(|cost| cost.total > 0);
        costs.sort_by_key(|cost| (Reverse((cost.own, cost.total)), cost.function));
        costs
    }

    /// The weight of each stack with everything that it calls, for all stacks with a weight and their callers.
    pub(crate) fn totals(&self, weighed: impl IntoIterator<Item = (Node, u64)>) -> HashMap<Node, u64> {
        let mut open: BTreeMap<Node, u64> = BTreeMap::new();
        for (node, weight) in weighed.into_iter().filter(|&(_, weight)| weight > 0) {
            let sum = open.entry(node).or_default();
            *sum = sum.saturating_add(weight);
        }
        let mut totals = HashMap::new();
        // Callers have smaller numbers than their callees, so a node is complete when it is reached.
        while let Some((node, weight)) = open.pop_last() {
            totals.insert(node, weight);
            if let Some((caller, _)) = self.edge(node) {
                let sum = open.entry(caller).or_default();
                *sum = sum.saturating_add(weight);
            }
        }
        totals
    }

    /// The caller's node and the function's number; `None` for the root.
    pub(crate) fn edge(&self, node: Node) -> Option<(Node, u32)> {
        (node != Node::ROOT).then(|| self.nodes[node.number()])
    }

    /// The innermost function of a stack; `None` for the empty stack.
    pub(crate) fn innermost(&self, node: Node) -> Option<&StackFunction> {
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
