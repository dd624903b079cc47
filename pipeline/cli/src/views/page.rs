//! The page: one HTML file that shows profiles with filters, a time line and a table, without a network.
//!
//! The page holds a tree of stacks and rows, which say how much weight a stack has in a view, thread, span and slice of
//! time, and when in the slice it began. The script adds up the rows that are chosen. Each row names its stack as it was
//! sampled and as it is folded. Everything is bounded: the lightest stacks become one frame, and first the order within
//! slices is given up, then the slices grow until there are few enough rows. No weight is lost by that.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use profbridge_model::Link;
use serde::Serialize;
use serde_json::Value;

use super::flamegraph::{GraphStyle, Layout};
use super::reading::{State, Unit};
use super::stacks::{Node, ORIGINS, Stacks, clean};
use super::timeline::{Timeline, Track, thread_name};
use crate::args::By;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

/// How large a page gets.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// The most stacks, folded and as sampled each, of all views. Lighter ones are summed up in their callers.
    nodes: usize,
    /// The most rows, about 40 bytes each.
    rows: usize,
    /// How many slices the time has, and with too many rows at least.
    slices: (u64, u64),
    /// The most spans and threads that can be chosen. Further ones are one.
    spans: usize,
    threads: usize,
}

const BOUNDS: Bounds = Bounds { nodes: 40_000, rows: 100_000, slices: (240, 15), spans: 500, threads: 1_000 };

/// Into how many parts a slice is divided to tell the order in it.
const PARTS: u64 = 1_000;

/// The frame of stacks that are too light to be in the page.
const RARE: &str = "[other functions]";

/// What a row is about. Stacks are numbers of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    view: u32,
    thread: u32,
    span: u32,
    slice: u32,
    /// When in the slice it began, in parts of it.
    at: u32,
    own: u32,
    raw: u32,
}

/// The weights of rows: in the file from before, if two are compared, and in the file.
type Rows = HashMap<Key, [u64; 2]>;

/// The data of a page, as its script reads it.
#[derive(Debug, Default, Serialize)]
struct Page<'a> {
    title: &'a str,
    views: Vec<View>,
    processes: Vec<&'a str>,
    /// The process and name of each thread.
    threads: Vec<(usize, String)>,
    /// The label of each span, and the name of the request that it belongs to; empty if that is not known.
    spans: Vec<(String, Box<str>)>,
    slices: u64,
    slice_ns: u64,
    start_ms: u64,
    /// Whether stacks are shown as sampled at first, and whether both forms are there.
    native: bool,
    has_raw: bool,
    /// Whether the outermost functions are at the bottom.
    is_flame: bool,
    difference: Option<Basis>,
    origins: [&'a str; ORIGINS.len()],
    functions: Columns,
    nodes: Nodes,
    rows: Columns,
    notes: Vec<String>,
}

/// How two files are compared, and why so.
#[derive(Debug, Serialize)]
struct Basis {
    by: &'static str,
    why: &'static str,
    per_second: bool,
}

/// A thread state or a type of values.
#[derive(Debug, Serialize)]
struct View {
    name: Box<str>,
    unit: Box<str>,
    is_thread_time: bool,
}

/// Rows with a list for each column, which is shorter as JSON than objects.
#[derive(Debug, Default, Serialize)]
struct Columns(BTreeMap<&'static str, Vec<Value>>);

impl Columns {
    fn push<const COLUMNS: usize>(&mut self, row: [(&'static str, Value); COLUMNS]) {
        row.into_iter().for_each(|(name, value)| self.0.entry(name).or_default().push(value));
    }
}

/// Stacks: callers have smaller numbers. The first one is the root.
#[derive(Debug, Default, Serialize)]
struct Nodes {
    parent: Vec<u32>,
    function: Vec<u32>,
}

/// The stacks and functions of a page.
struct PageTree<'a> {
    stacks: &'a Stacks,
    lines: HashMap<u32, u32>,
    /// Stacks with a number of their own.
    kept: HashSet<Node>,
    numbers: HashMap<Node, u32>,
    /// The frames [`RARE`]: for each its own number, and the number of its caller.
    rare: HashMap<u32, u32>,
    function_numbers: HashMap<u32, u32>,
    nodes: Nodes,
    functions: Columns,
}

impl<'a> PageTree<'a> {
    fn new(stacks: &'a Stacks, lines: HashMap<u32, u32>) -> Self {
        let nodes = Nodes { parent: vec![0], function: vec![0] };
        let numbers = HashMap::from([(Node::ROOT, 0)]);
        let (kept, rare, function_numbers, functions) = Default::default();
        let mut tree = Self { stacks, lines, kept, numbers, rare, function_numbers, nodes, functions };
        tree.push_function(RARE, ["", "", ""], ORIGINS.len());
        tree
    }

    /// Gives the heaviest stacks numbers of their own. A caller is as heavy as what it calls, so callers are there too.
    fn keep(&mut self, weighed: impl Iterator<Item = (Node, u64)>, most: usize) {
        let mut totals: Vec<(Node, u64)> = self.stacks.totals(weighed).into_iter().collect();
        totals.sort_unstable_by_key(|&(node, weight)| (Reverse(weight), node));
        self.kept.extend(totals.into_iter().take(most).map(|(node, _)| node));
    }

    /// The number of a stack.
    fn number(&mut self, node: Node) -> u32 {
        let mut above = Vec::new();
        let mut at = node;
        let mut number = loop {
            if let Some(&number) = self.numbers.get(&at) {
                break number;
            }
            above.push(at);
            at = self.stacks.edge(at).map_or(Node::ROOT, |(caller, _)| caller);
        };
        for node in above.into_iter().rev() {
            number = match self.stacks.edge(node).filter(|_| self.kept.contains(&node)) {
                Some((_, function)) => {
                    let function = self.function(function);
                    self.push(number, function)
                }
                None => self.rare(number),
            };
            self.numbers.insert(node, number);
        }
        number
    }

    /// The number of the frame [`RARE`] that is called by a stack.
    fn rare(&mut self, caller: u32) -> u32 {
        if let Some(&known) = self.rare.get(&caller) {
            return known;
        }
        let number = self.push(caller, 0);
        self.rare.extend([(caller, number), (number, number)]);
        number
    }

    fn push(&mut self, parent: u32, function: u32) -> u32 {
        self.nodes.parent.push(parent);
        self.nodes.function.push(function);
        self.nodes.parent.len() as u32 - 1
    }

    fn function(&mut self, number: u32) -> u32 {
        let next = self.function_numbers.len() as u32 + 1;
        let known = *self.function_numbers.entry(number).or_insert(next);
        if known == next {
            let function = self.stacks.get(number);
            let label = self.stacks.label_of(number);
            let origin = ORIGINS.iter().position(|(origin, _)| *origin == function.origin);
            let origin = origin.filter(|_| !function.is_placeholder()).unwrap_or(ORIGINS.len());
            let file = if function.file.is_empty() { &function.module } else { &function.file };
            let whole = Some(function.explained()).filter(|whole| *whole != label).unwrap_or_default();
            let place = function.place_with(self.lines.get(&number).copied());
            self.push_function(label, [whole, &place, file], origin);
        }
        known
    }

    /// Adds a function: its name, the whole name if that is longer, file and hottest line, and the path of the file.
    /// `origin` is the position in `ORIGINS`; behind the last one for what is not code.
    fn push_function(&mut self, name: &str, [whole, place, file]: [&str; 3], origin: usize) {
        self.functions.push([
            ("name", name.into()),
            ("whole", whole.into()),
            ("place", place.into()),
            ("file", file.into()),
            ("origin", origin.into()),
        ]);
    }

    /// At most `most` rows, and those of which the stacks are not told apart, since they are the lightest ones.
    fn bound(&mut self, rows: Rows, most: usize) -> BTreeMap<Key, [u64; 2]> {
        let mut sorted: Vec<_> = rows.into_iter().collect();
        sorted.sort_unstable_by_key(|&(key, [before, after])| (Reverse(before.max(after)), key));
        let light = sorted.split_off(most.min(sorted.len()));
        let mut rows: BTreeMap<Key, [u64; 2]> = sorted.into_iter().collect();
        for (key, weights) in light {
            let rare = self.rare(0);
            let sum = rows.entry(Key { own: rare, raw: rare, at: 0, ..key }).or_default();
            *sum = [0, 1].map(|side| sum[side].saturating_add(weights[side]));
        }
        rows
    }

    /// Puts the tree and its rows into a page, and writes that.
    fn write(mut self, mut page: Page<'a>, rows: Rows, most: usize, out: &mut impl io::Write) -> io::Result<()> {
        let rows = self.bound(rows, most);
        if rows.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is not a single stack to draw"));
        }
        if !self.rare.is_empty() {
            page.notes.push(format!("Stacks that are too light for this page are summed up as {RARE}."));
        }
        for (Key { view, thread, span, slice, at, own, raw }, [before, after]) in rows {
            let [view, thread, span, slice, at] = [view, thread, span, slice, at].map(Value::from);
            let (own, raw, weight) = (own.into(), raw.into(), after.into());
            let of = [("view", view), ("thread", thread), ("span", span), ("slice", slice), ("at", at), ("own", own)];
            page.rows.push(of);
            page.rows.push([("raw", raw), ("weight", weight)]);
            if page.difference.is_some() {
                page.rows.push([("before", before.into())]);
            }
        }
        (page.functions, page.nodes, page.origins) = (self.functions, self.nodes, ORIGINS.map(|(_, name)| name));
        let data = serde_json::to_string(&page)?;
        let (head, tail) = PAGE.split_once("{data}").unwrap_or_default();
        let head = head.replace("{policy}", &policy()).replace("{style}", STYLE);
        out.write_all(head.as_bytes())?;
        // In JSON `<` stands within strings only, where this is the same character, and no name ends the element.
        out.write_all(data.replace('<', "\\u003c").as_bytes())?;
        out.write_all(tail.replace("{script}", SCRIPT).as_bytes())
    }
}

/// The content security policy: nothing is loaded, and only the page's own script runs.
pub(crate) fn policy() -> String {
    let hash = |text: &str| STANDARD.encode(hmac_sha256::Hash::hash(text.as_bytes()));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
}

fn unit(unit: &Unit) -> Box<str> {
    match unit {
        Unit::Nanoseconds => "ns".into(),
        Unit::Bytes => "bytes".into(),
        Unit::Count(of) => of.clone(),
    }
}

/// Writes a timeline as a page.
///
/// # Errors
///
/// If there is nothing to draw, or `out` cannot be written.
pub(crate) fn write(
    timeline: &mut Timeline,
    title: &str,
    style: GraphStyle,
    out: &mut impl io::Write,
) -> io::Result<()> {
    write_within(BOUNDS, timeline, title, style, out)
}

fn write_within(
    bounds: Bounds,
    timeline: &mut Timeline,
    title: &str,
    style: GraphStyle,
    out: &mut impl io::Write,
) -> io::Result<()> {
    timeline.sort();
    let mut raw: BTreeMap<State, HashMap<Node, u64>> = BTreeMap::new();
    for track in timeline.tracks() {
        let weights = raw.entry(track.state).or_default();
        for one in &track.observations {
            *weights.entry(one.node).or_default() += one.weight.unsigned_abs();
        }
    }
    let stacks = &mut timeline.reading.stacks;
    let mut fold = |state, node| stacks.fold(node, state == State::Waiting);
    let all = raw.iter().flat_map(|(&state, weights)| weights.keys().map(move |&node| (state, node)));
    let folded: HashMap<(State, Node), Node> = all.map(|(state, node)| ((state, node), fold(state, node))).collect();
    let timeline = &*timeline;
    let (reading, tracks) = (&timeline.reading, timeline.tracks());
    let mut tree = PageTree::new(&reading.stacks, timeline.lines.hottest(State::Running));
    for (&state, weights) in &raw {
        let most = bounds.nodes / raw.len();
        tree.keep(weights.iter().map(|(&node, &weight)| (node, weight)), most);
        tree.keep(weights.iter().map(|(&node, &weight)| (folded[&(state, node)], weight)), most);
    }
    let title = clean(title);
    let is_flame = style.layout == Some(Layout::Flame);
    let mut page = Page { title: &title, native: style.native, has_raw: true, is_flame, ..Page::default() };
    page.views = raw
        .keys()
        .map(|&state| View {
            name: reading.name(state),
            unit: unit(&reading.unit(state)),
            is_thread_time: !matches!(state, State::Type(_)),
        })
        .collect();
    let threads = threads(timeline, &tracks, bounds.threads, &mut page);
    let times = || tracks.iter().flat_map(|track| &track.observations).map(|one| one.time_unix_nano).filter(|&t| t > 0);
    let (first, last) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
    let spans = spans(timeline, &tracks, bounds.spans, first, &mut page);
    let views: HashMap<State, u32> = raw.keys().copied().zip(0..).collect();
    let mut slices = if first < last { bounds.slices.0 } else { 1 };
    let mut parts = PARTS;
    let rows = 'rows: loop {
        let mut rows = Rows::new();
        page.slice_ns = ((last - first) / slices).saturating_add(1);
        page.slices = (last - first) / page.slice_ns + 1;
        for track in &tracks {
            let (view, thread) = (views[&track.state], threads[&track.thread]);
            // Slice, stack and span of the observation before, and when in the slice it began.
            let mut before = ((u64::MAX, 0, 0), 0);
            for one in &track.observations {
                let own = tree.number(folded[&(track.state, one.node)]);
                let (span, raw) = (spans.get(&one.span).copied().unwrap_or_default(), tree.number(one.node));
                // An observation owns the time from its own on.
                let since = one.time_unix_nano.saturating_sub(first);
                let (mut slice, mut left) = (since / page.slice_ns, one.weight.unsigned_abs());
                let mut room = page.slice_ns - since % page.slice_ns;
                while left > 0 {
                    let is_last = matches!(track.state, State::Type(_)) || slice + 1 >= page.slices;
                    let part = if is_last { left } else { left.min(room) };
                    if before.0 != (slice, own, span) {
                        let offset = u128::from(page.slice_ns - room) * u128::from(parts) / u128::from(page.slice_ns);
                        before = ((slice, own, span), offset as u32);
                    }
                    let key = Key { view, thread, span, slice: slice as u32, at: before.1, own, raw };
                    rows.entry(key).or_default()[1] += part;
                    (slice, left, room) = (slice + 1, left - part, page.slice_ns);
                }
            }
            if rows.len() > bounds.rows && (parts > 1 || slices > bounds.slices.1) {
                if parts == 1 {
                    slices /= 2;
                }
                parts = 1;
                continue 'rows;
            }
        }
        break rows;
    };
    page.start_ms = first / 1_000_000;
    page.notes.extend(reading.losses.explanations());
    tree.write(page, rows, bounds.rows, out)
}

/// Numbers the threads: those that ran most come first. Beyond the limit, all are one.
fn threads<'a>(timeline: &'a Timeline, tracks: &[&Track], most: usize, page: &mut Page<'a>) -> HashMap<u32, u32> {
    let mut numbers = HashMap::new();
    let mut processes: HashMap<u32, usize> = HashMap::new();
    for track in tracks {
        if numbers.contains_key(&track.thread) {
            continue;
        }
        let number = page.threads.len().min(most);
        numbers.insert(track.thread, number as u32);
        if number < page.threads.len() {
            continue;
        }
        let (thread, process) = timeline.thread(track);
        let at = *processes.entry(thread.process).or_insert(page.processes.len());
        if at == page.processes.len() {
            page.processes.push(&process.label);
        }
        let is_further = number == most;
        page.threads.push((at, if is_further { "all further threads".to_owned() } else { thread_name(thread) }));
    }
    numbers
}

/// Numbers the spans: first what had none, then those with the most time. Beyond the limit, all are one. Times of spans
/// are relative to `first`.
fn spans(timeline: &Timeline, tracks: &[&Track], most: usize, first: u64, page: &mut Page<'_>) -> HashMap<u32, u32> {
    let mut weights: HashMap<u32, u64> = HashMap::new();
    for one in tracks.iter().flat_map(|track| &track.observations).filter(|one| one.span > 0) {
        *weights.entry(one.span).or_default() += one.weight.unsigned_abs();
    }
    let mut heaviest: Vec<(u32, u64)> = weights.into_iter().collect();
    heaviest.sort_unstable_by_key(|&(span, weight)| (Reverse(weight), span));
    let links: HashMap<u32, &Link> = timeline.spans.iter().map(|(link, &number)| (number, link)).collect();
    page.spans.push(("outside of spans".to_owned(), "".into()));
    let mut numbers = HashMap::new();
    let mut is_any_named = false;
    for (span, _) in heaviest {
        let number = page.spans.len().min(most + 1);
        numbers.insert(span, number as u32);
        if number == page.spans.len() {
            let named = links.get(&span).map(|link| timeline.span_name(link.span_id, first));
            is_any_named |= named.as_ref().is_some_and(|(_, request)| !request.is_empty());
            let further = || ("all further spans".to_owned(), "".into());
            page.spans.push(named.filter(|_| number <= most).unwrap_or_else(further));
        }
    }
    if page.spans.len() > 1 && !is_any_named {
        page.notes.push("Of spans this file has only ids: `profbridge view PROFILES TRACES` takes their names.".into());
    }
    numbers
}

/// Two files to compare.
pub(crate) struct Difference<'a> {
    /// The stacks of both.
    pub(crate) stacks: &'a Stacks,
    /// What is compared, such as `running`.
    pub(crate) name: &'a str,
    /// The unit of the weights.
    pub(crate) unit: &'a Unit,
    /// The lines of functions.
    pub(crate) lines: HashMap<u32, u32>,
    /// The weights of both files, each with what its weights are divided by.
    pub(crate) sides: [(&'a [(Node, u64)], f64); 2],
    /// How they are compared, and why so.
    pub(crate) by: By,
    pub(crate) why: &'static str,
}

/// Writes the difference of two files as a page.
///
/// # Errors
///
/// If there is nothing to draw, or `out` cannot be written.
pub(crate) fn write_difference(
    of: Difference<'_>,
    title: &str,
    style: GraphStyle,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let mut weights: HashMap<Node, [u64; 2]> = HashMap::new();
    // Parts of a whole or of a second are numbers below 1, of which the page gets billionths.
    let scale = if of.by == By::Total { 1.0 } else { 1e9 };
    for (at, (weighed, basis)) in of.sides.into_iter().enumerate() {
        for &(node, weight) in weighed {
            weights.entry(node).or_default()[at] += (weight as f64 * scale / basis) as u64;
        }
    }
    let mut tree = PageTree::new(of.stacks, of.lines);
    tree.keep(weights.iter().map(|(&node, &[before, after])| (node, before.max(after))), BOUNDS.nodes);
    let mut rows = Rows::new();
    for (node, [before, after]) in weights {
        let own = tree.number(node);
        let sum = rows.entry(Key { view: 0, thread: 0, span: 0, slice: 0, at: 0, own, raw: own }).or_default();
        *sum = [sum[0].saturating_add(before), sum[1].saturating_add(after)];
    }
    let view = View {
        name: of.name.into(),
        unit: if of.by == By::Share { "share".into() } else { unit(of.unit) },
        is_thread_time: false,
    };
    let by = match of.by {
        By::Total => "totals",
        By::Second => "values per second of wall time",
        By::Share => "shares of the whole",
    };
    let difference = Some(Basis { by, why: of.why, per_second: of.by == By::Second });
    let page = Page {
        title,
        views: vec![view],
        processes: vec![""],
        threads: vec![(0, String::new())],
        slices: 1,
        slice_ns: 1,
        is_flame: style.layout == Some(Layout::Flame),
        difference,
        ..Page::default()
    };
    tree.write(page, rows, BOUNDS.rows, out)
}
