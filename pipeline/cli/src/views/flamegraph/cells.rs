//! Computes the layout of a flame graph in the unit of its weights: depth, left edge and width of each function.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use profbridge_wire::sentry::chunk::origin::CodeOrigin;

use crate::views::stacks::{Node, Stacks};

/// Narrower cells than this fraction of the total are left out: a tenth of a pixel on most screens.
const NARROWEST: u64 = 10_000;

/// The most cells in a picture, about 250 bytes each. Beyond that, the narrowest are left out: deep stacks with equal
/// widths would make a file too large for browsers.
pub(super) const MOST_CELLS: usize = 100_000;

/// A function's cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell<'a> {
    /// Number of cells below it.
    pub(super) depth: usize,
    /// The left edge.
    pub(super) left: u64,
    /// The width.
    pub(super) width: u64,
    /// The stack that ends with it.
    pub(super) node: Node,
    /// The label.
    pub(super) name: &'a str,
    /// The whole name.
    pub(super) whole_name: &'a str,
    /// Where its code is, with the line of own code that has the largest weight; empty if the name says enough.
    pub(super) place: String,
    /// The origin of the code; `None` if the cell is not code.
    pub(super) origin: Option<CodeOrigin>,
}

/// All cells of a picture.
#[derive(Debug, Default)]
pub(super) struct Cells<'a> {
    /// Callers come first.
    pub(super) cells: Vec<Cell<'a>>,
    /// Total width of the functions that were left out because they are too narrow or too many.
    pub(super) narrow: u64,
}

/// A process's label, if there are several processes, and the weight of each stack.
pub(super) type Weighed<'a> = (Option<&'a str>, Vec<(Node, u64)>);

/// Computes the cells of processes from the weights of their stacks. `lines` has the hottest line of each function.
/// `root` labels the cell below everything else, and each process gets a cell. Wider cells are further left. Empty if
/// all weights are zero.
pub(super) fn cells<'a>(
    stacks: &'a Stacks,
    lines: &HashMap<u32, u32>,
    root: &'a str,
    processes: Vec<Weighed<'a>>,
) -> Cells<'a> {
    let mut sums: Vec<(Option<&str>, StackTotals)> =
        processes.into_iter().map(|(label, weights)| (label, StackTotals::of(stacks, weights))).collect();
    let total = sums.iter().fold(0u64, |sum, (_, of)| sum.saturating_add(of.total()));
    if total == 0 {
        return Cells::default();
    }
    sums.sort_by_key(|(label, of)| (Reverse(of.total()), *label));
    let least = total.div_ceil(NARROWEST);
    let plain = |depth, left, width, name| Cell {
        depth,
        left,
        width,
        node: Node::ROOT,
        name,
        whole_name: name,
        place: String::new(),
        origin: None,
    };
    let mut cells = vec![plain(0, 0, total, root)];
    let mut open = BinaryHeap::new();
    let mut narrow = 0;
    let mut left = 0;
    for (process, (label, of)) in sums.iter().enumerate() {
        let outermost = PendingCell::new(of.total(), 1, left, process, Node::ROOT);
        left = left.saturating_add(of.total());
        match label {
            None => narrow += of.open_called(&outermost, least, &mut open),
            Some(_) if of.total() < least => narrow += of.total(),
            Some(_) => open.push(outermost),
        }
    }
    // Takes the widest cell first. Its callees are no wider.
    while let Some(next) = open.pop() {
        let PendingCell { width, depth: Reverse(depth), left: Reverse(left), process: Reverse(process), node } = next;
        let Some((label, of)) = sums.get(process).filter(|_| cells.len() < MOST_CELLS) else {
            narrow += width;
            continue;
        };
        cells.push(match stacks.edge(node.0) {
            Some((_, number)) => {
                let function = stacks.get(number);
                let (name, whole_name, origin) = (stacks.label_of(number), function.explained(), Some(function.origin));
                let place = function.place_with(lines.get(&number).copied());
                let origin = origin.filter(|_| !function.is_placeholder());
                Cell { depth, left, width, node: node.0, name, whole_name, place, origin }
            }
            None => plain(depth, left, width, label.filter(|label| !label.is_empty()).unwrap_or("[unknown process]")),
        });
        narrow += of.open_called(&PendingCell { depth: Reverse(depth + 1), ..next }, least, &mut open);
    }
    Cells { cells, narrow }
}

/// A function with a position that is not yet a cell. Ordered by width, then outermost first, then leftmost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PendingCell {
    width: u64,
    depth: Reverse<usize>,
    left: Reverse<u64>,
    process: Reverse<usize>,
    node: Reverse<Node>,
}

impl PendingCell {
    fn new(width: u64, depth: usize, left: u64, process: usize, node: Node) -> Self {
        let (depth, left) = (Reverse(depth), Reverse(left));
        Self { width, depth, left, process: Reverse(process), node: Reverse(node) }
    }
}

/// The weight of each stack, including everything that it calls.
struct StackTotals {
    totals: HashMap<Node, u64>,
    children: HashMap<Node, Vec<Node>>,
}

impl StackTotals {
    fn of(stacks: &Stacks, weights: Vec<(Node, u64)>) -> Self {
        let mut sums = Self { totals: stacks.totals(weights), children: HashMap::new() };
        for &node in sums.totals.keys() {
            if let Some((caller, _)) = stacks.edge(node) {
                sums.children.entry(caller).or_default().push(node);
            }
        }
        for children in sums.children.values_mut() {
            // Equal weights are ordered by name, so that the order of input does not show.
            let name = |node: &Node| stacks.innermost(*node).map(|function| &*function.name);
            children.sort_by_key(|node| (Reverse(sums.totals.get(node)), name(node), *node));
        }
        sums
    }

    fn total(&self) -> u64 {
        self.totals.get(&Node::ROOT).copied().unwrap_or_default()
    }

    /// Opens the callees of a function, or the outermost functions, within the cell `at`. Returns the total width of
    /// those that are too narrow.
    fn open_called(&self, at: &PendingCell, least: u64, open: &mut BinaryHeap<PendingCell>) -> u64 {
        let (mut left, mut narrow) = (at.left.0, 0);
        for &child in self.children.get(&at.node.0).into_iter().flatten() {
            let width = self.totals.get(&child).copied().unwrap_or_default();
            if width < least {
                narrow += width;
                continue;
            }
            open.push(PendingCell { width, left: Reverse(left), node: Reverse(child), ..*at });
            left = left.saturating_add(width);
        }
        narrow
    }
}
