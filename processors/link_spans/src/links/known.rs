//! The spans that samples may be linked with: their ids, which is above which, and when they ran on which thread.
//!
//! A span names its process and thread in its own words. Which thread of which profiler that is can be said once
//! profiles of it have come, so until then it waits among all that say the same, and is looked at when profiles of a
//! process come that it may be of. Spans are remembered in the order in which they came and forgotten in that order.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet, HashTable};
use profbridge_identity::Side;
use profbridge_model::Span;
use profbridge_model::dictionary::Link;

use super::course::{Course, Interval};
use super::hints::Hints;
use crate::covered::Stretch;
use crate::index::{Index, Wanted};

/// What those that say the same of their thread take beside their spans and texts, and a thread beside its spans, in
/// bytes, about: entries of tables, and some 150 for names.
const GROUP: u64 = (size_of::<(u32, Group)>() + size_of::<((Side, Hints), u32)>()) as u64 + 150;
const THREAD: u64 = 100;

/// The ids of a span, and of that in which it was made: zeros where it is the first of its trace.
#[derive(Debug, Clone, Copy)]
struct Node {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    parent: [u8; 8],
}

/// Spans that say the same of their process and thread, and whose thread is not known yet.
#[derive(Debug)]
struct Group {
    side: Side,
    hints: Hints,
    spans: Vec<Interval>,
}

/// Spans of one thread.
#[derive(Debug, Default)]
struct OnThread {
    /// By their ends, where `is_sorted`.
    spans: Vec<Interval>,
    is_sorted: bool,
}

/// The spans. A span is numbered in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct KnownSpans {
    nodes: VecDeque<Node>,
    /// The number of the first of `nodes`. Numbers begin anew at 2^32.
    first: u32,
    by_id: HashTable<u32>,
    hasher: RandomState,
    /// How many came at a time of the steady clock, and are still there.
    arrivals: VecDeque<(u64, u32)>,
    groups: HashMap<u32, Group, RandomState>,
    next_group: u32,
    group_of: HashMap<(Side, Hints), u32, RandomState>,
    by_name: HashMap<u128, Vec<u32>, RandomState>,
    /// By the hash of a process's identity and the thread's id.
    threads: HashMap<u128, HashMap<Box<str>, OnThread, RandomState>, RandomState>,
    /// The memory of groups and threads, in bytes.
    bytes: u64,
}

impl KnownSpans {
    /// The memory of it, in bytes, about.
    pub(super) fn bytes(&self) -> u64 {
        let tables = self.nodes.capacity() * size_of::<Node>()
            + self.by_id.allocation_size()
            + self.arrivals.capacity() * size_of::<(u64, u32)>();
        self.bytes + tables as u64
    }

    /// Remembers a span, which came at a time of the steady clock. `side` is what it says of its process, `hints` what
    /// of its thread. One that is known already stays what it was.
    pub(super) fn add(&mut self, span: &Span, side: &Side, hints: Hints, main_thread: bool, now: u64) {
        let parent = span.parent_span_id.map_or([0; 8], |id| *id.bytes());
        let node = Node { trace_id: *span.trace_id.bytes(), span_id: *span.span_id.bytes(), parent };
        if self.number(&node.trace_id, &node.span_id).is_some() {
            return;
        }
        let number = self.first.wrapping_add(self.nodes.len() as u32);
        let Self { nodes, first, by_id, hasher, .. } = self;
        let hash = hasher.hash_one((node.trace_id, node.span_id));
        nodes.push_back(node);
        by_id.insert_unique(hash, number, |number| {
            let node = &nodes[number.wrapping_sub(*first) as usize];
            hasher.hash_one((node.trace_id, node.span_id))
        });
        match self.arrivals.back_mut() {
            Some((time, count)) if *time == now => *count += 1,
            _ => self.arrivals.push_back((now, 1)),
        }
        // What takes no time has no observation in it.
        if span.start_unix_nano >= span.end_unix_nano
            || !hints.lead_to_a_thread(main_thread)
            || names(side, &hints).next().is_none()
        {
            return;
        }
        let interval = Interval { start: span.start_unix_nano, end: span.end_unix_nano, span: number };
        let group = self.group(side, hints);
        if let Some(group) = self.groups.get_mut(&group) {
            push(&mut group.spans, interval, &mut self.bytes);
        }
    }

    /// The group of all that say the same.
    fn group(&mut self, side: &Side, hints: Hints) -> u32 {
        let key = (*side, hints);
        if let Some(known) = self.group_of.get(&key) {
            return *known;
        }
        let number = self.next_group;
        self.next_group = self.next_group.wrapping_add(1);
        for name in names(side, &key.1) {
            self.by_name.entry(name).or_default().push(number);
        }
        self.bytes += GROUP + 2 * key.1.bytes() as u64;
        self.groups.insert(number, Group { side: *side, hints: key.1.clone(), spans: Vec::new() });
        self.group_of.insert(key, number);
        number
    }

    fn number(&self, trace_id: &[u8; 16], span_id: &[u8; 8]) -> Option<u32> {
        let is = |number: &u32| {
            let node = self.node(*number);
            (&node.trace_id, &node.span_id) == (trace_id, span_id)
        };
        self.by_id.find(self.hasher.hash_one((trace_id, span_id)), is).copied()
    }

    fn node(&self, number: u32) -> &Node {
        &self.nodes[number.wrapping_sub(self.first) as usize]
    }

    /// The link to a span, by its number.
    pub(super) fn link(&self, number: u32) -> Link {
        let Node { trace_id, span_id, parent: _ } = *self.node(number);
        Link { trace_id, span_id }
    }

    /// Finds out on which threads of a process those spans ran that it may have run during some time.
    pub(super) fn find_threads(&mut self, index: &Index, process: u128, during: Stretch, main_thread: bool) {
        let mut seen = HashSet::<u32, RandomState>::default();
        for name in index.names(process) {
            for number in self.by_name.get(&name).into_iter().flatten() {
                let Some(group) = self.groups.get_mut(number).filter(|_| seen.insert(*number)) else { continue };
                let (threads, bytes) = (&mut self.threads, &mut self.bytes);
                let Group { side, hints, spans } = group;
                let wanted = Wanted { side, pointer: hints.pointer() };
                let main = main_thread.then_some(side.pid()).flatten();
                spans.retain(|span| {
                    let ran = Stretch { start: span.start, end: span.end };
                    if !ran.overlaps(during) {
                        return true;
                    }
                    let Ok(found) = index.find(wanted, ran, true) else { return true };
                    let Some(thread) = hints.thread(&found, main) else { return true };
                    let of_process = threads.entry(found.identity()).or_default();
                    if !of_process.contains_key(thread) {
                        *bytes += THREAD + thread.len() as u64;
                        of_process.insert(thread.into(), OnThread::default());
                    }
                    let Some(on_thread) = of_process.get_mut(thread) else { return true };
                    let is_last = on_thread.spans.last().is_none_or(|last| last.end <= span.end);
                    on_thread.is_sorted = is_last && (on_thread.is_sorted || on_thread.spans.is_empty());
                    push(&mut on_thread.spans, *span, bytes);
                    false
                });
                // What is known is no longer held here.
                if spans.capacity() / 4 > spans.len() {
                    *bytes -= ((spans.capacity() - spans.len()) * size_of::<Interval>()) as u64;
                    spans.shrink_to_fit();
                }
            }
        }
    }

    /// What a thread ran during some time; `None` where no span of it is known.
    pub(super) fn course(&mut self, process: u128, thread: &str, during: Stretch) -> Option<Course> {
        let on_thread = self.threads.get_mut(&process)?.get_mut(thread)?;
        if !on_thread.is_sorted {
            on_thread.spans.sort_by_key(|span| span.end);
            on_thread.is_sorted = true;
        }
        let from = on_thread.spans.partition_point(|span| span.end <= during.start);
        let then = on_thread.spans[from..].iter().filter(|span| span.start <= during.end);
        let spans: Vec<Interval> = then.copied().collect();
        let above = self.above(&spans);
        (!spans.is_empty()).then(|| Course::new(&spans, &above))
    }

    /// For each of some spans the position of the nearest one of them above it.
    fn above(&self, spans: &[Interval]) -> Vec<Option<u32>> {
        let positions: HashMap<u32, u32, RandomState> =
            spans.iter().enumerate().map(|(at, span)| (span.span, at as u32)).collect();
        // Of spans that are not among them, and were passed on the way up.
        let mut passed: HashMap<u32, Option<u32>, RandomState> = HashMap::default();
        let mut path = Vec::new();
        let nearest = |span: &Interval| {
            path.clear();
            let mut node = self.node(span.span);
            let found = loop {
                let Some(parent) = self.number(&node.trace_id, &node.parent) else { break None };
                if let Some(position) = positions.get(&parent) {
                    break Some(*position);
                }
                // In a circle one comes to what was passed on this way.
                if let Some(known) = passed.insert(parent, None) {
                    passed.insert(parent, known);
                    break known;
                }
                path.push(parent);
                node = self.node(parent);
            };
            path.iter().for_each(|on_the_way| _ = passed.insert(*on_the_way, found));
            found
        };
        spans.iter().map(nearest).collect()
    }

    /// Forgets the spans that came before a time.
    pub(super) fn forget_before(&mut self, time: u64) {
        let old = self.arrivals.iter().take_while(|(at, _)| *at < time).map(|(_, count)| u64::from(*count)).sum();
        self.forget_first(old);
    }

    /// Forgets the spans that came first, until so many bytes are left. How many.
    pub(super) fn shrink(&mut self, max_bytes: u64) -> u64 {
        let mut forgotten = 0;
        while self.bytes() > max_bytes && !self.nodes.is_empty() {
            let half = self.nodes.len().div_ceil(2) as u64;
            self.forget_first(half);
            forgotten += half;
        }
        forgotten
    }

    fn forget_first(&mut self, count: u64) {
        if count == 0 {
            return;
        }
        let mut left = count as u32;
        while let Some((_, arrived)) = self.arrivals.front_mut().filter(|_| left > 0) {
            let taken = left.min(*arrived);
            (*arrived, left) = (*arrived - taken, left - taken);
            if *arrived == 0 {
                self.arrivals.pop_front();
            }
        }
        for number in (0..count as u32).map(|at| self.first.wrapping_add(at)) {
            let node = *self.node(number);
            let hash = self.hasher.hash_one((node.trace_id, node.span_id));
            if let Ok(found) = self.by_id.find_entry(hash, |known| *known == number) {
                found.remove();
            }
        }
        self.nodes.drain(..count as usize);
        self.first = self.first.wrapping_add(count as u32);
        self.nodes.shrink_to(self.nodes.len() * 2);
        self.arrivals.shrink_to(self.arrivals.len() * 2);
        let Self { nodes, by_id, hasher, first, .. } = self;
        by_id.shrink_to(nodes.len() * 2, |number| {
            let node = &nodes[number.wrapping_sub(*first) as usize];
            hasher.hash_one((node.trace_id, node.span_id))
        });
        self.drop_intervals();
    }

    /// Drops the intervals of spans that are forgotten, and counts the memory of the others anew.
    fn drop_intervals(&mut self) {
        let (first, count) = (self.first, self.nodes.len() as u32);
        let mut bytes = 0;
        let mut keep = |spans: &mut Vec<Interval>, own: u64| {
            spans.retain(|span| span.span.wrapping_sub(first) < count);
            spans.shrink_to(spans.len() * 2);
            bytes += if spans.is_empty() { 0 } else { own + (spans.capacity() * size_of::<Interval>()) as u64 };
            !spans.is_empty()
        };
        self.groups.retain(|_, group| keep(&mut group.spans, GROUP + 2 * group.hints.bytes() as u64));
        self.threads.retain(|_, threads| {
            threads.retain(|id, on_thread| keep(&mut on_thread.spans, THREAD + id.len() as u64));
            !threads.is_empty()
        });
        let groups = &self.groups;
        self.group_of.retain(|_, number| groups.contains_key(number));
        self.by_name.retain(|_, numbers| {
            numbers.retain(|number| groups.contains_key(number));
            !numbers.is_empty()
        });
        self.bytes = bytes;
    }
}

/// The names under which the process of spans is found: what is said of it, or of one of its threads.
fn names(side: &Side, hints: &Hints) -> impl Iterator<Item = u128> + use<> {
    side.names().chain(hints.pointer().and_then(|pointer| side.thread_name(pointer)))
}

/// Appends, and counts the memory that it takes.
fn push(spans: &mut Vec<Interval>, span: Interval, bytes: &mut u64) {
    let before = spans.capacity();
    spans.push(span);
    *bytes += ((spans.capacity() - before) * size_of::<Interval>()) as u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a span on a thread takes at most 64 bytes: its ids, its time, and its place in the table of ids.
    #[test]
    fn sizes() {
        assert_eq!((size_of::<Node>(), size_of::<Interval>()), (32, 24));
        // An entry of a table of numbers, and its control byte, at a load of seven eighths.
        let entry = (size_of::<u32>() + 1) * 8 / 7 + 1;
        assert!(size_of::<Node>() + size_of::<Interval>() + entry <= 64);
    }
}
