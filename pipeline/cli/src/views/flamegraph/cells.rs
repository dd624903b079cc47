//! Where each function of a flame graph stands, in its own unit: how deep, from where, and how wide.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use crate::views::kind::Kind;
use crate::views::stacks::{Node, Stacks};

/// What is narrower than this part of the whole is left out: a tenth of a pixel on most screens.
const NARROWEST: u64 = 10_000;

/// The most cells of a picture, of some 250 bytes each. Where there would be more, the narrowest are left out: deep
/// stacks that are all about as wide as the narrowest would make a file that no browser opens.
pub(super) const MOST_CELLS: usize = 100_000;

/// A function in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell<'a> {
    /// How many others it stands on.
    pub(super) depth: usize,
    /// Where it begins.
    pub(super) left: u64,
    /// How wide it is.
    pub(super) width: u64,
    /// What it is called.
    pub(super) name: &'a str,
    /// Where it lies; empty where the name is enough.
    pub(super) place: &'a str,
    /// Whose code it is; `None` of what is no code.
    pub(super) kind: Option<Kind>,
}

/// The cells of a picture.
#[derive(Debug, Default)]
pub(super) struct Cells<'a> {
    /// Callers first.
    pub(super) cells: Vec<Cell<'a>>,
    /// How much of the whole is in functions that are too narrow to be among them, or for which there are too many.
    pub(super) narrow: u64,
}

/// What a process is called, where there are several, and what each of its stacks weighs.
pub(super) type Weighed<'a> = (Option<&'a str>, Vec<(Node, u64)>);

/// The cells of processes, each with its stacks' weights. What all stand on is called `root`, what the stacks of a
/// process stand on as the process. The widest stand on the left. Empty where nothing has any weight.
pub(super) fn cells<'a>(stacks: &'a Stacks, root: &'a str, processes: Vec<Weighed<'a>>) -> Cells<'a> {
    let mut sums: Vec<(Option<&str>, Sums)> =
        processes.into_iter().map(|(label, weights)| (label, Sums::of(stacks, weights))).collect();
    let total = sums.iter().fold(0u64, |sum, (_, of)| sum.saturating_add(of.total()));
    if total == 0 {
        return Cells::default();
    }
    sums.sort_by_key(|(label, of)| (Reverse(of.total()), *label));
    let least = total.div_ceil(NARROWEST);
    let plain = |depth, left, width, name| Cell { depth, left, width, name, place: "", kind: None };
    let mut cells = vec![plain(0, 0, total, root)];
    let mut open = BinaryHeap::new();
    let mut narrow = 0;
    let mut left = 0;
    for (process, (label, of)) in sums.iter().enumerate() {
        let outermost = Open::new(of.total(), 1, left, process, Node::ROOT);
        left = left.saturating_add(of.total());
        match label {
            None => narrow += of.open_called(&outermost, least, &mut open),
            Some(_) if of.total() < least => narrow += of.total(),
            Some(_) => open.push(outermost),
        }
    }
    // The widest comes first, and what it calls is no wider.
    while let Some(next) = open.pop() {
        let Open { width, depth: Reverse(depth), left: Reverse(left), process: Reverse(process), node } = next;
        let Some((label, of)) = sums.get(process).filter(|_| cells.len() < MOST_CELLS) else {
            narrow += width;
            continue;
        };
        cells.push(match stacks.innermost(node.0) {
            Some(function) => {
                let (name, place, kind) = (&*function.name, function.place(), Some(function.kind));
                Cell { depth, left, width, name, place, kind }
            }
            None => plain(depth, left, width, label.filter(|label| !label.is_empty()).unwrap_or("[unknown process]")),
        });
        narrow += of.open_called(&Open { depth: Reverse(depth + 1), ..next }, least, &mut open);
    }
    Cells { cells, narrow }
}

/// A function that has a place and is not among the cells yet. The widest is the greatest, of these the outermost, and
/// of these the one on the left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Open {
    width: u64,
    depth: Reverse<usize>,
    left: Reverse<u64>,
    process: Reverse<usize>,
    node: Reverse<Node>,
}

impl Open {
    fn new(width: u64, depth: usize, left: u64, process: usize, node: Node) -> Self {
        let (depth, left) = (Reverse(depth), Reverse(left));
        Self { width, depth, left, process: Reverse(process), node: Reverse(node) }
    }
}

/// What stacks weigh together with all that they call.
struct Sums {
    totals: HashMap<Node, u64>,
    children: HashMap<Node, Vec<Node>>,
}

impl Sums {
    fn of(stacks: &Stacks, weights: Vec<(Node, u64)>) -> Self {
        let mut sums = Self { totals: HashMap::new(), children: HashMap::new() };
        let mut open: BTreeMap<Node, u64> = BTreeMap::new();
        for (node, weight) in weights.into_iter().filter(|&(_, weight)| weight > 0) {
            let sum = open.entry(node).or_default();
            *sum = sum.saturating_add(weight);
        }
        // A caller's number is less than those of what it calls, so by then it has all of their weight.
        while let Some((node, weight)) = open.pop_last() {
            sums.totals.insert(node, weight);
            if let Some((caller, _)) = stacks.edge(node) {
                sums.children.entry(caller).or_default().push(node);
                let sum = open.entry(caller).or_default();
                *sum = sum.saturating_add(weight);
            }
        }
        for children in sums.children.values_mut() {
            // Which of several equals came first must not show.
            let name = |node: &Node| stacks.innermost(*node).map(|function| &*function.name);
            children.sort_by_key(|node| (Reverse(sums.totals.get(node)), name(node), *node));
        }
        sums
    }

    fn total(&self) -> u64 {
        self.totals.get(&Node::ROOT).copied().unwrap_or_default()
    }

    /// Opens what a function calls, or the outermost functions, with the place that `at` has. Returns how much of it is
    /// too narrow.
    fn open_called(&self, at: &Open, least: u64, open: &mut BinaryHeap<Open>) -> u64 {
        let (mut left, mut narrow) = (at.left.0, 0);
        for &child in self.children.get(&at.node.0).into_iter().flatten() {
            let width = self.totals.get(&child).copied().unwrap_or_default();
            if width < least {
                narrow += width;
                continue;
            }
            open.push(Open { width, left: Reverse(left), node: Reverse(child), ..*at });
            left = left.saturating_add(width);
        }
        narrow
    }
}
