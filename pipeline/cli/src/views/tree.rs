//! The tree of own code: what each function of the program called of its own, and in which library the time went.

use std::cmp::Reverse;
use std::collections::HashMap;

use profbridge_wire::sentry::chunk::origin::CodeOrigin;

use super::fold::{CALLERS_NOT_KNOWN, NO_OWN_CODE};
use super::stacks::{Node, Stacks};

/// Chains of calls are joined into one row if the called function has this share of its caller's time, in percent.
const JOINED_PERCENT: u64 = 95;

/// The smallest share of a row, in parts of the total.
const LEAST_PARTS: u64 = 100;

/// The smallest share that is named behind a row.
const LEAST_INSIDE_PARTS: u64 = 200;

/// How many libraries are named behind a row.
const MOST_INSIDE: usize = 3;

/// A function of own code, as called along one path.
#[derive(Debug, Default)]
struct Own {
    function: u32,
    /// Whether its callers are not known.
    is_cut: bool,
    total: u64,
    /// The time in what it calls outside of own code, by library or placeholder.
    inside: HashMap<Box<str>, u64>,
    called: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeRow {
    /// How deep it is.
    pub(crate) depth: usize,
    /// The time in its last function and everything that this called.
    pub(crate) total: u64,
    /// The functions, each called by the one before.
    pub(crate) names: Vec<String>,
    /// The number of the last function; `None` if there is no own code.
    pub(crate) function: Option<u32>,
    /// Where the time went that was not spent in other rows, the largest first.
    pub(crate) inside: Vec<(Box<str>, u64)>,
}

/// The tree of all stacks in some time.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    stacks: &'a Stacks,
    all: Vec<Own>,
    /// The time of stacks without own code, by library.
    without: HashMap<Box<str>, u64>,
    /// The time of stacks without any function, by placeholder.
    unknown: HashMap<Box<str>, u64>,
    total: u64,
}

impl<'a> Tree<'a> {
    /// The tree of folded stacks.
    pub(crate) fn new(stacks: &'a Stacks, folded: &[(Node, u64)]) -> Self {
        let mut tree =
            Self { stacks, all: vec![Own::default()], without: HashMap::new(), unknown: HashMap::new(), total: 0 };
        let mut places: HashMap<(usize, u32, bool), usize> = HashMap::new();
        for &(node, weight) in folded {
            tree.add(&mut places, node, weight);
        }
        tree
    }

    fn add(&mut self, places: &mut HashMap<(usize, u32, bool), usize>, node: Node, weight: u64) {
        self.total += weight;
        let path = self.stacks.path(node);
        let is_own = |&function: &u32| is_own(self.stacks, function);
        let Some(last) = path.iter().rposition(is_own) else {
            let mut labels = path.iter().map(|&function| self.stacks.label_of(function));
            match labels.next() {
                Some(NO_OWN_CODE) | None => {
                    *self.without.entry(library(labels.next().unwrap_or_default())).or_default() += weight;
                }
                // Time of which no function is known.
                Some(placeholder) => *self.unknown.entry(placeholder.into()).or_default() += weight,
            }
            return;
        };
        let is_cut = self.stacks.label_of(path[0]) == CALLERS_NOT_KNOWN;
        let mut at = 0;
        let mut before = None;
        // A function that calls itself is one.
        for function in
            path[..=last].iter().copied().filter(is_own).filter(|&function| before.replace(function) != Some(function))
        {
            let is_cut = is_cut && at == 0;
            let place = *places.entry((at, function, is_cut)).or_insert(self.all.len());
            if place == self.all.len() {
                self.all.push(Own { function, is_cut, ..Own::default() });
                self.all[at].called.push(place);
            }
            self.all[place].total += weight;
            at = place;
        }
        if let Some(&below) = path.get(last + 1) {
            *self.all[at].inside.entry(library(self.stacks.label_of(below))).or_default() += weight;
        }
    }

    /// The time in or under own code.
    pub(crate) fn own_total(&self) -> u64 {
        self.total - self.without.values().chain(self.unknown.values()).sum::<u64>()
    }

    /// The rows with the largest times, at most `most`, in the order of the tree, and the number of others.
    pub(crate) fn rows(&self, most: usize) -> (Vec<TreeRow>, usize) {
        let mut rows = Vec::new();
        let mut open: Vec<(usize, usize)> = self.sorted(0).into_iter().rev().map(|at| (at, 0)).collect();
        while let Some((first, depth)) = open.pop() {
            let mut at = first;
            let mut names = vec![self.name(at)];
            while let [only] = self.all[at].called[..]
                && self.all[only].total >= self.all[at].total / 100 * JOINED_PERCENT
            {
                at = only;
                names.push(self.name(at));
            }
            let own = &self.all[at];
            rows.push(TreeRow {
                depth,
                total: self.all[first].total,
                names,
                function: Some(own.function),
                inside: self.largest(&own.inside),
            });
            open.extend(self.sorted(at).into_iter().rev().map(|called| (called, depth + 1)));
        }
        let without: u64 = self.without.values().sum();
        if without > 0 {
            let names = vec![NO_OWN_CODE.to_owned()];
            rows.push(TreeRow { depth: 0, total: without, names, function: None, inside: self.largest(&self.without) });
        }
        for (placeholder, total) in self.largest(&self.unknown) {
            rows.push(TreeRow { depth: 0, total, names: vec![placeholder.into()], function: None, inside: Vec::new() });
        }
        let least = self.total / LEAST_PARTS;
        let mut totals: Vec<u64> =
            rows.iter().map(|row| row.total).filter(|&total| total > 0 && total >= least).collect();
        totals.sort_unstable_by_key(|&total| Reverse(total));
        let least = totals.get(most.min(totals.len()).saturating_sub(1)).copied().unwrap_or(1);
        let all = rows.len();
        let mut shown: Vec<TreeRow> = rows.into_iter().filter(|row| row.total >= least).collect();
        // If rows have equal times, the last ones are dropped: a caller comes before its callees.
        shown.truncate(most);
        let others = all - shown.len();
        (shown, others)
    }

    /// The path to the function of own code with the largest time outside of other own code, and that time.
    pub(crate) fn hottest(&self) -> Option<(Vec<String>, u32, u64)> {
        let alone = |at: usize| {
            let own = &self.all[at];
            own.total - own.called.iter().map(|&called| self.all[called].total).sum::<u64>()
        };
        let mut callers = vec![0; self.all.len()];
        for (at, own) in self.all.iter().enumerate() {
            own.called.iter().for_each(|&called| callers[called] = at);
        }
        let hottest = (1..self.all.len()).max_by_key(|&at| (alone(at), Reverse(at)))?;
        let mut names = Vec::new();
        let mut at = hottest;
        while at > 0 {
            names.push(self.name(at));
            at = callers[at];
        }
        names.reverse();
        (alone(hottest) > 0).then(|| (names, self.all[hottest].function, alone(hottest)))
    }

    fn name(&self, at: usize) -> String {
        let Own { function, is_cut, .. } = self.all[at];
        let name = self.stacks.label_of(function);
        if is_cut { format!("{name} (callers not known)") } else { name.to_owned() }
    }

    /// What a function called, the largest time first.
    fn sorted(&self, at: usize) -> Vec<usize> {
        let mut called = self.all[at].called.clone();
        called.sort_by_key(|&called| (Reverse(self.all[called].total), self.name(called)));
        called
    }

    fn largest(&self, inside: &HashMap<Box<str>, u64>) -> Vec<(Box<str>, u64)> {
        let least = self.total / LEAST_INSIDE_PARTS;
        let mut all: Vec<_> = inside.iter().map(|(name, &weight)| (name.clone(), weight)).collect();
        all.retain(|(name, weight)| !name.is_empty() && *weight > 0 && *weight >= least);
        all.sort_by(|(one, weight), (other, than)| than.cmp(weight).then_with(|| one.cmp(other)));
        all.truncate(MOST_INSIDE);
        all
    }
}

/// Whether a function is own code, and not a frame that stands for others.
pub(crate) fn is_own(stacks: &Stacks, function: u32) -> bool {
    let function = stacks.get(function);
    function.origin == CodeOrigin::Own && !function.is_placeholder()
}

/// The innermost function of own code in a path.
pub(crate) fn innermost_own(stacks: &Stacks, path: &[u32]) -> Option<u32> {
    path.iter().rev().copied().find(|&function| is_own(stacks, function))
}

/// The library in the label of a folded frame: of `dumps (json)` `json`, of `pbkdf2_hmac → libcrypto` `libcrypto`.
fn library(label: &str) -> Box<str> {
    if let Some((_, library)) = label.rsplit_once(" → ") {
        return library.into();
    }
    let inner = label.strip_suffix(')').and_then(|label| label.rsplit_once(" ("));
    inner.map_or(label, |(_, library)| library).into()
}
