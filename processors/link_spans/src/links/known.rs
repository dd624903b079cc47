//! Remembers the spans that samples may be linked with: their ids, their parents, and when they ran on which thread.
//!
//! A span describes its process and thread in the terms of its SDK, so spans with the same description form a group.
//! Which observed thread a group belongs to is only known once profiles of that thread arrive; then the group's spans
//! that overlap the profiles are looked up. Several profilers may observe one thread, each with its own description. If
//! samples name a span, its thread is known directly. Spans are forgotten in their order of arrival.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable};
use profbridge_identity::ProcessClaims;
use profbridge_model::Span;
use profbridge_model::dictionary::Link;

use super::timeline::{SpanInterval, SpanTimeline};
use crate::index::{Index, SampledSpan, SpanProcess, ThreadOwners};
use crate::observed_times::TimeRange;
use crate::thread::{ClaimedPid, ThreadHints};

/// Approximate bytes of a group or a thread beside its spans and texts: table entries, and some 150 bytes for names.
const GROUP: u64 = (size_of::<(u32, SpanGroup)>() + size_of::<((ProcessClaims, ThreadHints), u32)>()) as u64 + 150;
const THREAD: u64 = 100;

/// At most this many threads are remembered as running spans in turns.
const MOST_INTERLEAVED: usize = 1 << 16;

/// A span: its ids, its parent's id (zeros for the root of a trace), and its time in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
struct SpanNode {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    parent: [u8; 8],
    start: u64,
    end: u64,
}

/// Spans with the same description of their process and thread.
#[derive(Debug)]
struct SpanGroup {
    claims: ProcessClaims,
    hints: ThreadHints,
    spans: SpansByEnd,
}

/// Span numbers in the order in which the spans ended.
#[derive(Debug, Default)]
struct SpansByEnd {
    spans: Vec<u32>,
    /// The length of the sorted prefix of `spans`.
    sorted: usize,
    /// The latest-ending span of each of the two traces that ended last.
    latest: [Option<SpanNode>; 2],
    /// Whether spans of different traces have ever overlapped.
    overlapped: bool,
}

impl SpansByEnd {
    /// Appends a span and adds the memory this takes to `bytes`.
    fn push(&mut self, span: u32, nodes: &Nodes, bytes: &mut u64) {
        self.compare(nodes.get(span));
        let before = self.spans.capacity();
        if self.spans.len() == before {
            self.spans.reserve_exact((before / 4).max(4));
        }
        self.spans.push(span);
        *bytes += ((self.spans.capacity() - before) * size_of::<u32>()) as u64;
    }

    /// Checks whether a span overlaps earlier spans of other traces. Spans mostly arrive in the order of their ends.
    fn compare(&mut self, span: &SpanNode) {
        let overlaps = |of: &SpanNode| of.trace_id != span.trace_id && of.start < span.end && span.start < of.end;
        self.overlapped |= self.latest.iter().flatten().any(overlaps);
        let is_of_trace = |of: &&mut Option<SpanNode>| of.is_some_and(|of| of.trace_id == span.trace_id);
        let place = match self.latest.iter_mut().find(is_of_trace) {
            Some(known) => Some(known),
            None => self.latest.iter_mut().min_by_key(|of| of.map(|of| of.end)),
        };
        if let Some(place) = place.filter(|of| of.is_none_or(|of| of.end < span.end)) {
            *place = Some(*span);
        }
    }

    /// The spans that ran during a time range.
    fn during(&mut self, during: TimeRange, nodes: &Nodes) -> impl Iterator<Item = SpanInterval> {
        if self.sorted < self.spans.len() {
            // Mostly sorted already.
            self.spans.sort_by_key(|span| nodes.get(*span).end);
            self.sorted = self.spans.len();
        }
        let from = self.spans.partition_point(|span| nodes.get(*span).end <= during.start);
        let all = self.spans[from..].iter().map(|span| {
            let SpanNode { start, end, .. } = *nodes.get(*span);
            SpanInterval { start, end, span: *span }
        });
        all.filter(move |span| span.start <= during.end)
    }

    /// Drops forgotten spans. Returns the memory of the rest in bytes, or `None` if no span is left.
    fn keep(&mut self, is_known: impl Fn(u32) -> bool) -> Option<u64> {
        let was_sorted = self.sorted == self.spans.len();
        self.spans.retain(|span| is_known(*span));
        self.sorted = if was_sorted { self.spans.len() } else { 0 };
        self.spans.shrink_to(self.spans.len() * 2);
        (!self.spans.is_empty()).then_some((self.spans.capacity() * size_of::<u32>()) as u64)
    }
}

/// Spans by number, in their order of arrival.
#[derive(Debug, Default)]
struct Nodes {
    all: VecDeque<SpanNode>,
    /// The number of the first span. Numbers wrap around at 2^32.
    first: u32,
}

impl Nodes {
    fn get(&self, number: u32) -> &SpanNode {
        &self.all[number.wrapping_sub(self.first) as usize]
    }

    fn link(&self, number: u32) -> Link {
        let SpanNode { trace_id, span_id, .. } = *self.get(number);
        Link { trace_id, span_id }
    }
}

/// The spans of one process that samples name, by thread id.
type ByThread = HashMap<Box<str>, SpansByEnd>;

/// The remembered spans, numbered in their order of arrival.
#[derive(Debug, Default)]
pub(super) struct KnownSpans {
    nodes: Nodes,
    /// For each of `nodes`: whether samples named it.
    named: VecDeque<bool>,
    by_id: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// How many of the remembered spans arrived at which monotonic time.
    arrivals: VecDeque<(u64, u32)>,
    groups: HashMap<u32, SpanGroup>,
    next_group: u32,
    group_of: HashMap<(ProcessClaims, ThreadHints), u32>,
    by_name: HashMap<u128, Vec<u32>>,
    /// By the hash of the process's identity.
    sampled: HashMap<u128, ByThread>,
    /// Hashes of process and thread for threads that run spans in turns.
    interleaved_threads: HashSet<u64>,
    /// The memory of groups and threads, in bytes.
    bytes: u64,
}

impl KnownSpans {
    /// Approximate memory use in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let tables = self.nodes.all.capacity() * size_of::<SpanNode>()
            + self.named.capacity()
            + self.by_id.allocation_size()
            + self.arrivals.capacity() * size_of::<(u64, u32)>();
        self.bytes + tables as u64
    }

    /// Remembers a span that arrived at a monotonic time. `claims` describes its process, `hints` its thread. A span
    /// that is known already stays unchanged.
    pub(super) fn add(
        &mut self,
        span: &Span,
        claims: &ProcessClaims,
        hints: ThreadHints,
        main_thread: bool,
        index: &Index,
        now: u64,
    ) {
        let parent = span.parent_span_id.map_or([0; 8], |id| *id.bytes());
        let link = Link { trace_id: *span.trace_id.bytes(), span_id: *span.span_id.bytes() };
        if self.number(&link).is_some() {
            return;
        }
        let node = SpanNode {
            trace_id: link.trace_id,
            span_id: link.span_id,
            parent,
            start: span.start_unix_nano,
            end: span.end_unix_nano,
        };
        let number = self.nodes.first.wrapping_add(self.nodes.all.len() as u32);
        if self.nodes.all.len() == self.nodes.all.capacity() {
            // Grows by an eighth, so that less memory is spare than with doubling.
            let more = (self.nodes.all.len() / 8).max(64);
            self.nodes.all.reserve_exact(more);
            self.named.reserve_exact(more);
        }
        let Self { nodes, by_id, hasher, .. } = self;
        nodes.all.push_back(node);
        by_id.insert_unique(hash(hasher, &node), number, |number| hash(hasher, nodes.get(*number)));
        self.named.push_back(false);
        match self.arrivals.back_mut() {
            Some((time, count)) if *time == now => *count += 1,
            _ => self.arrivals.push_back((now, 1)),
        }
        // A span without duration cannot contain an observation.
        if node.start >= node.end {
            return;
        }
        self.assign_sampled(&link, index);
        if !hints.lead_to_a_thread(main_thread) || names(claims, &hints).next().is_none() {
            return;
        }
        let group = self.group(claims, hints);
        if let Some(group) = self.groups.get_mut(&group) {
            group.spans.push(number, &self.nodes, &mut self.bytes);
        }
    }

    /// Records where a span ran that samples name, if both the span and the place are known.
    pub(super) fn assign_sampled(&mut self, link: &Link, index: &Index) {
        let Some(number) = self.number(link) else { return };
        let SpanNode { start, end, .. } = *self.nodes.get(number);
        let Some(named) = self.named.get_mut(number.wrapping_sub(self.nodes.first) as usize) else { return };
        if *named || start >= end {
            return;
        }
        let Some(SampledSpan { found, thread: Some(thread), .. }) = index.sampled_span(link, TimeRange { start, end })
        else {
            return;
        };
        *named = true;
        let bytes = &mut self.bytes;
        let of_process = self.sampled.entry(found.identity()).or_default();
        let on_thread = of_process.entry(thread.id.into_boxed_str()).or_insert_with_key(|id| {
            *bytes += THREAD + id.len() as u64;
            SpansByEnd::default()
        });
        on_thread.push(number, &self.nodes, bytes);
    }

    /// The group for this description of process and thread.
    fn group(&mut self, claims: &ProcessClaims, hints: ThreadHints) -> u32 {
        let key = (*claims, hints);
        if let Some(known) = self.group_of.get(&key) {
            return *known;
        }
        let number = self.next_group;
        self.next_group = self.next_group.wrapping_add(1);
        for name in names(claims, &key.1) {
            self.by_name.entry(name).or_default().push(number);
        }
        self.bytes += group_bytes(&key.1);
        self.groups.insert(number, SpanGroup { claims: *claims, hints: key.1.clone(), spans: SpansByEnd::default() });
        self.group_of.insert(key, number);
        number
    }

    fn number(&self, link: &Link) -> Option<u32> {
        let is = |number: &u32| {
            let node = self.nodes.get(*number);
            (node.trace_id, node.span_id) == (link.trace_id, link.span_id)
        };
        self.by_id.find(self.hasher.hash_one((link.trace_id, link.span_id)), is).copied()
    }

    /// The link to a span, by its number.
    pub(super) fn link(&self, number: u32) -> Link {
        self.nodes.link(number)
    }

    /// The spans that ran on the threads of a process during a time range, by thread id.
    pub(super) fn on_threads(
        &mut self,
        index: &Index,
        process: u128,
        during: TimeRange,
        main_thread: bool,
    ) -> SpansOfThreads {
        let mut all = SpansOfThreads::default();
        let mut named = HashSet::<u32>::default();
        for (id, spans) in self.sampled.get_mut(&process).into_iter().flatten() {
            let overlapped = spans.overlapped;
            for span in spans.during(during, &self.nodes) {
                named.insert(span.span);
                all.add(id, span, overlapped);
            }
        }
        let mut seen = HashSet::<u32>::default();
        for name in index.names(process, during) {
            for number in self.by_name.get(&name).into_iter().flatten() {
                let Some(group) = self.groups.get_mut(number).filter(|_| seen.insert(*number)) else { continue };
                let SpanGroup { claims, hints, spans } = group;
                let (nodes, by_samples) = (&self.nodes, &self.named);
                // If samples place a span in another process, it is not of this one, whatever the span itself claims.
                let is_elsewhere = |span: &SpanInterval| {
                    by_samples.get(span.span.wrapping_sub(nodes.first) as usize) == Some(&true)
                        && !index
                            .sampled_span(&nodes.link(span.span), TimeRange { start: span.start, end: span.end })
                            .is_some_and(|sampled| sampled.found.may_be(process))
                };
                let not_placed = |span: &SpanInterval| !named.contains(&span.span) && !is_elsewhere(span);
                let overlapped = spans.overlapped;
                // Most groups have no span in this range; checking this first is cheap, whereas a group may match many
                // forked processes.
                let mut spans = spans.during(during, nodes).filter(not_placed).peekable();
                if spans.peek().is_none() {
                    continue;
                }
                let candidates = index.candidates_of(SpanProcess { claims, pointer: hints.pointer });
                let mut owners = ThreadOwners::default();
                let main = main_thread.then_some(ClaimedPid(claims.pid()));
                for span in spans {
                    let time = TimeRange { start: span.start, end: span.end };
                    let elsewhere = |id| candidates.elsewhere(process, time, id, &mut owners);
                    let thread = match candidates.get(process, time) {
                        Some(found) => hints.thread(&found, main),
                        None => hints.native_id().and_then(elsewhere).map(|thread| thread.id),
                    };
                    if let Some(thread) = thread {
                        all.add(&thread, span, overlapped);
                    }
                }
            }
        }
        all
    }

    /// Remembers that a thread of a process runs several traces in turns, like an event loop.
    pub(super) fn mark_interleaved(&mut self, process: u128, thread: &str) {
        if self.interleaved_threads.len() < MOST_INTERLEAVED {
            self.interleaved_threads.insert(self.hasher.hash_one((process, thread)));
        }
    }

    /// What a thread of a process ran, given its spans. If the thread runs spans in turns, as event loops do, or ever
    /// ran overlapping spans of different traces, it may also have run spans that were not sampled.
    pub(super) fn timeline(&mut self, process: u128, thread: &str, of: &SpansOfThread) -> SpanTimeline {
        let mut timeline = SpanTimeline::new(&of.spans, &self.nearest_ancestors(&of.spans));
        let is_interleaved = of.overlapped || self.have_overlapping_traces(&of.spans);
        if is_interleaved {
            self.mark_interleaved(process, thread);
        }
        if is_interleaved || self.interleaved_threads.contains(&self.hasher.hash_one((process, thread))) {
            timeline.mark_ambiguous();
        }
        timeline
    }

    /// Whether spans of different traces ran at the same time. Overlap within one trace proves nothing: spans between
    /// the two may be missing.
    fn have_overlapping_traces(&self, spans: &[SpanInterval]) -> bool {
        let mut in_order: Vec<&SpanInterval> = spans.iter().collect();
        in_order.sort_unstable_by_key(|span| span.start);
        // The trace of the previous span and the latest end in it: all other traces must have ended when the next span
        // begins.
        let mut last: Option<([u8; 16], u64)> = None;
        for span in in_order {
            let trace = self.nodes.get(span.span).trace_id;
            let end = match last {
                Some((of, end)) if of == trace => end.max(span.end),
                Some((_, end)) if end > span.start => return true,
                _ => span.end,
            };
            last = Some((trace, end));
        }
        false
    }

    /// For each given span the position of its nearest ancestor among them.
    fn nearest_ancestors(&self, spans: &[SpanInterval]) -> Vec<Option<u32>> {
        let positions: HashMap<u32, u32> = spans.iter().enumerate().map(|(at, span)| (span.span, at as u32)).collect();
        // The nearest ancestor of spans that are not among the given ones but were passed on the way up.
        let mut passed: HashMap<u32, Option<u32>> = HashMap::default();
        let mut path = Vec::new();
        let nearest = |span: &SpanInterval| {
            path.clear();
            let mut node = self.nodes.get(span.span);
            let found = loop {
                let above = Link { trace_id: node.trace_id, span_id: node.parent };
                let Some(parent) = self.number(&above) else { break None };
                if let Some(position) = positions.get(&parent) {
                    break Some(*position);
                }
                // In a cycle this reaches a span that was passed on the same way up.
                if let Some(known) = passed.insert(parent, None) {
                    passed.insert(parent, known);
                    break known;
                }
                path.push(parent);
                node = self.nodes.get(parent);
            };
            path.iter().for_each(|on_the_way| _ = passed.insert(*on_the_way, found));
            found
        };
        spans.iter().map(nearest).collect()
    }

    /// Forgets the spans that arrived before a time.
    pub(super) fn forget_before(&mut self, time: u64) {
        let old = self.arrivals.iter().take_while(|(at, _)| *at < time).map(|(_, count)| u64::from(*count)).sum();
        self.forget_first(old);
    }

    /// Forgets the oldest arrivals until at most `max_bytes` are used. Returns how many spans were forgotten.
    pub(super) fn shrink(&mut self, max_bytes: u64) -> u64 {
        let mut forgotten = 0;
        while self.bytes() > max_bytes && !self.nodes.all.is_empty() {
            let half = self.nodes.all.len().div_ceil(2) as u64;
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
        let Self { nodes, named, by_id, hasher, .. } = self;
        for number in (0..count as u32).map(|at| nodes.first.wrapping_add(at)) {
            if let Ok(found) = by_id.find_entry(hash(hasher, nodes.get(number)), |known| *known == number) {
                found.remove();
            }
        }
        nodes.all.drain(..count as usize);
        named.drain(..count as usize);
        nodes.first = nodes.first.wrapping_add(count as u32);
        nodes.all.shrink_to(nodes.all.len() * 2);
        named.shrink_to(named.len() * 2);
        self.arrivals.shrink_to(self.arrivals.len() * 2);
        by_id.shrink_to(nodes.all.len() * 2, |number| hash(hasher, nodes.get(*number)));
        self.drop_forgotten();
    }

    /// Drops the numbers of forgotten spans and recounts the memory of the rest.
    fn drop_forgotten(&mut self) {
        let (first, count) = (self.nodes.first, self.nodes.all.len() as u32);
        let is_known = |span: u32| span.wrapping_sub(first) < count;
        let mut bytes = 0;
        let mut keep = |spans: &mut SpansByEnd, own: u64| {
            let left = spans.keep(is_known);
            bytes += left.map_or(0, |left| left + own);
            left.is_some()
        };
        self.groups.retain(|_, group| keep(&mut group.spans, group_bytes(&group.hints)));
        self.sampled.retain(|_, threads| {
            threads.retain(|id, spans| keep(spans, THREAD + id.len() as u64));
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

/// The spans that ran on the threads of a process during a time range, by thread id.
#[derive(Debug, Default)]
pub(super) struct SpansOfThreads(HashMap<Box<str>, SpansOfThread>);

/// The spans that ran on one thread during a time range.
#[derive(Debug, Default)]
pub(super) struct SpansOfThread {
    spans: Vec<SpanInterval>,
    /// Whether spans of different traces have ever overlapped on this thread.
    overlapped: bool,
}

impl SpansOfThreads {
    fn add(&mut self, thread: &str, span: SpanInterval, overlapped: bool) {
        if !self.0.contains_key(thread) {
            self.0.insert(thread.into(), SpansOfThread::default());
        }
        let Some(of) = self.0.get_mut(thread) else { return };
        of.spans.push(span);
        of.overlapped |= overlapped;
    }

    /// The spans of a thread, if there are any.
    pub(super) fn get(&self, thread: &str) -> Option<&SpansOfThread> {
        self.0.get(thread)
    }
}

fn hash(hasher: &DefaultHashBuilder, node: &SpanNode) -> u64 {
    hasher.hash_one((node.trace_id, node.span_id))
}

/// Approximate bytes of a group beside its spans.
fn group_bytes(hints: &ThreadHints) -> u64 {
    GROUP + 2 * hints.bytes() as u64 + hints.native_id().map_or(0, |_| THREAD)
}

/// The names under which the process of a group is found: those from its claims, and those from one of its threads.
fn names(claims: &ProcessClaims, hints: &ThreadHints) -> impl Iterator<Item = u128> + use<> {
    let by_id = hints.native_id().map(|id| claims.names_of_thread(id));
    let by_pointer = hints.pointer.and_then(|pointer| claims.thread_name(pointer));
    claims.names().chain(by_pointer).chain(by_id.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a span on a thread takes at most 64 bytes: its ids, its time, its entry in the table of ids and its
    /// entry in the list of its thread.
    #[test]
    fn sizes() {
        assert_eq!(size_of::<SpanNode>(), 48);
        // A table entry holds a number and its control byte; tables are at most seven eighths full.
        let entry = (size_of::<u32>() + 1) * 8 / 7 + 1;
        assert!(size_of::<SpanNode>() + size_of::<bool>() + size_of::<u32>() + entry <= 64);
    }
}
