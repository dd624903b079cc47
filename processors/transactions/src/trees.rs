//! The open trees, and the location of each span in them.
//!
//! A span is found by its own id, since its children may have arrived first and named the id as their parent's, and by
//! its parent's id. Two trees are merged as soon as a span connects them, so the order of arrival does not matter. A
//! merge moves the spans of the smaller tree, so each span is moved only a few times.

mod queue;
mod tree;

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use profbridge_model::spans::Segment;
use profbridge_model::{Span, SpanId, TraceId};

use self::queue::{DeadlineQueue, WaitKind};
pub(crate) use self::tree::{Tree, TreeTop};
use crate::sent::SentSpans;

/// The index of a parent that has not arrived.
const MISSING: u32 = u32::MAX;

/// The open trees. See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Trees {
    slots: Vec<Option<Box<Tree>>>,
    free: Vec<u32>,
    state: DefaultHashBuilder,
    places: HashTable<SpanPlace>,
    soon: DeadlineQueue,
    later: DeadlineQueue,
    spans: u64,
    /// The heap size of the trees themselves, in bytes.
    bytes: usize,
}

/// The location of a span: its tree, and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SpanPlace {
    /// The hash of the span's key. With it, no tree has to be read when the table compares entries or grows.
    hash: u32,
    tree: u32,
    at: u32,
}

/// Identifies a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SpanKey {
    resource: u32,
    trace_id: TraceId,
    span_id: SpanId,
}

/// A span to be added, with details of its origin.
#[derive(Debug)]
pub(crate) struct NewSpan<'a> {
    /// The span. Its `scope` is the index of its origin.
    pub(crate) span: Span,
    pub(crate) bytes: &'a [u8],
    /// The index of the span's resource, and hashes of its resource and its scope.
    pub(crate) resource: u32,
    pub(crate) resource_hash: u64,
    pub(crate) scope_hash: u64,
}

/// Deadlines for trees that start to wait now, in monotonic nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    /// For trees whose local root has arrived, or whose missing parent has been sent already.
    pub(crate) soon: u64,
    /// For all other trees.
    pub(crate) later: u64,
}

/// The result of adding a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddResult {
    /// Added to this tree.
    Added(u32),
    /// Added to this tree, although another span has the same id.
    WithEqualId(u32),
    /// A resend: the same span was added before.
    Resent,
}

impl Trees {
    /// Number of buffered spans.
    pub(crate) fn spans(&self) -> u64 {
        self.spans
    }

    /// Whether there are no trees.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans == 0
    }

    /// Heap size of the trees themselves, in bytes.
    pub(crate) fn tree_bytes(&self) -> usize {
        self.bytes
    }

    /// Total heap size in bytes. It is reproducible: the table is counted by its entries, since its free space depends
    /// on hashes.
    pub(crate) fn size(&self) -> usize {
        let slots = self.slots.capacity() * size_of::<Option<Box<Tree>>>() + self.free.capacity() * size_of::<u32>();
        // Until it is shrunk, at least 7 of a table's 16 slots are in use.
        self.bytes + slots + self.places.len() * (size_of::<SpanPlace>() + 1) * 16 / 7
    }

    /// An open tree.
    pub(crate) fn get(&self, tree: u32) -> Option<&Tree> {
        self.slots.get(tree as usize)?.as_deref()
    }

    /// The tree with the earliest deadline.
    pub(crate) fn first_due(&self) -> Option<u32> {
        let due = |at: Option<u32>| at.and_then(|at| Some((self.get(at)?.deadline, at)));
        let (soon, later) = (due(self.soon.first()), due(self.later.first()));
        let first = match (soon, later) {
            (Some(soon), Some(later)) => Some(if soon.0 <= later.0 { soon } else { later }),
            (soon, later) => soon.or(later),
        };
        first.map(|(_, at)| at)
    }

    /// The earliest deadline.
    pub(crate) fn due(&self) -> Option<u64> {
        self.get(self.first_due()?).map(|tree| tree.deadline)
    }

    pub(crate) fn add(&mut self, new: NewSpan<'_>, deadlines: Deadlines, sent: &SentSpans) -> AddResult {
        let NewSpan { mut span, bytes, resource, resource_hash, scope_hash } = new;
        let key = SpanKey { resource, trace_id: span.trace_id, span_id: span.span_id };
        let own = self.find(key);
        let is_root = span.is_local_root();
        span.segment = is_root.then_some(Segment { number: 0, is_root: true });
        match own {
            Some(place) if place.at != MISSING => return self.add_again(place, span, bytes),
            None if sent.has_equal((resource_hash, span.trace_id, span.span_id), scope_hash, bytes) => {
                return AddResult::Resent;
            }
            _ => {}
        }
        let parent = span.parent_span_id.filter(|_| !is_root);
        // A span that names itself as parent is its own ancestor.
        let above = match parent {
            Some(parent) if parent == span.span_id => None,
            Some(parent) => self.find(SpanKey { span_id: parent, ..key }),
            None => None,
        };
        let tree = match (own, above) {
            (Some(own), _) => own.tree,
            (None, Some(above)) => above.tree,
            (None, None) => self.open(resource, span.trace_id),
        };
        let span_id = span.span_id;
        let at = self.change(tree, |tree| tree.push(span, bytes)).unwrap_or_default();
        self.spans += 1;
        match own {
            Some(own) => self.move_place(own, tree, at),
            None => self.add_place(key, tree, at),
        }
        match (parent, above) {
            (None, _) => {
                self.set_top(tree, TreeTop::Root);
                self.wait(tree, WaitKind::Soon, deadlines.soon);
            }
            (Some(parent), None) if parent == span_id => self.set_circle(tree, own.is_none(), deadlines),
            (Some(parent), None) => {
                let has_left = sent.has((resource_hash, key.trace_id, parent));
                self.set_top(tree, TreeTop::Missing { parent, has_left });
                self.add_place(SpanKey { span_id: parent, ..key }, tree, MISSING);
                let waits_soon = own.is_some() && self.get(tree).is_some_and(|tree| tree.links.queue == WaitKind::Soon);
                if has_left && !waits_soon {
                    self.wait(tree, WaitKind::Soon, deadlines.soon);
                } else if own.is_none() {
                    self.wait(tree, WaitKind::Later, deadlines.later);
                }
            }
            (Some(_), Some(above)) if own.is_some() && above.tree == tree => self.set_circle(tree, false, deadlines),
            (Some(_), Some(above)) if own.is_some() => return AddResult::Added(self.merge(tree, above.tree)),
            (Some(_), Some(_)) => {}
        }
        AddResult::Added(tree)
    }

    /// Removes a tree, so that no span is added to it any more.
    pub(crate) fn close(&mut self, tree: u32) -> Option<Tree> {
        self.unlink(tree);
        let closed = self.take(tree)?;
        for (at, held) in closed.spans.iter().enumerate() {
            self.remove_place(closed.key(held.span_id), tree, at as u32);
        }
        if let Some(missing) = closed.missing() {
            self.remove_place(closed.key(missing), tree, MISSING);
        }
        self.spans -= closed.spans.len() as u64;
        self.give_back();
        Some(closed)
    }

    /// Adds a span with a known id to the tree of the first span with that id, regardless of its parent.
    fn add_again(&mut self, place: SpanPlace, span: Span, bytes: &[u8]) -> AddResult {
        let first = self.get(place.tree).and_then(|tree| tree.spans.get(place.at as usize));
        if first.is_some_and(|first| first.scope == span.scope && *first.bytes == *bytes) {
            return AddResult::Resent;
        }
        self.change(place.tree, |tree| tree.push(Span { segment: None, ..span }, bytes));
        self.spans += 1;
        AddResult::WithEqualId(place.tree)
    }

    fn set_top(&mut self, tree: u32, top: TreeTop) {
        if let Some(tree) = self.slots.get_mut(tree as usize).and_then(Option::as_deref_mut) {
            tree.top = top;
        }
    }

    /// Marks a tree that has a cycle: no parent is missing, and there is no root.
    fn set_circle(&mut self, tree: u32, is_new: bool, deadlines: Deadlines) {
        self.set_top(tree, TreeTop::Circle);
        if is_new {
            self.wait(tree, WaitKind::Later, deadlines.later);
        }
    }

    /// Merges a tree whose top has arrived with the tree that contains the parent. Returns the index of the merged
    /// tree, which is that of the larger one.
    fn merge(&mut self, lower: u32, upper: u32) -> u32 {
        let of = |at: u32| self.get(at).map(|tree| (tree.size(), tree.links.queue, tree.deadline, tree.top));
        let (Some((lower_size, lower_queue, lower_deadline, _)), Some((upper_size, upper_queue, upper_deadline, top))) =
            (of(lower), of(upper))
        else {
            return upper;
        };
        let (kept, gone) = if upper_size >= lower_size { (upper, lower) } else { (lower, upper) };
        // A tree without a root waits from the arrival of its first span.
        let both_wait = lower_queue == WaitKind::Later && upper_queue == WaitKind::Later;
        let (first, deadline) = if both_wait && lower_deadline < upper_deadline {
            (lower, lower_deadline)
        } else {
            (upper, upper_deadline)
        };
        if first == kept {
            self.unlink(gone);
        } else {
            self.unlink(kept);
            let queue = if upper_queue == WaitKind::Soon { &mut self.soon } else { &mut self.later };
            queue.replace(&mut self.slots, gone, kept);
        }
        let Some(moved) = self.take(gone) else { return kept };
        let base = self.get(kept).map_or(0, |tree| tree.spans.len()) as u32;
        for (at, held) in moved.spans.iter().enumerate() {
            let (hash, at) = (self.hash(moved.key(held.span_id)), at as u32);
            self.move_place(SpanPlace { hash, tree: gone, at }, kept, base + at);
        }
        if let (true, Some(missing)) = (gone == upper, moved.missing()) {
            let hash = self.hash(moved.key(missing));
            self.move_place(SpanPlace { hash, tree: gone, at: MISSING }, kept, MISSING);
        }
        self.change(kept, |tree| {
            tree.append(moved);
            (tree.top, tree.deadline) = (top, deadline);
        });
        kept
    }

    fn open(&mut self, resource: u32, trace_id: TraceId) -> u32 {
        let tree = Box::new(Tree::new(resource, trace_id));
        self.bytes += tree.size();
        match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = Some(tree);
                at
            }
            None => {
                self.slots.push(Some(tree));
                // A tree takes more than a hundred bytes, so 2^32 trees never fit into memory.
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// Removes a tree from its slot.
    fn take(&mut self, at: u32) -> Option<Tree> {
        let tree = self.slots.get_mut(at as usize)?.take()?;
        self.free.push(at);
        self.bytes -= tree.size();
        Some(*tree)
    }

    fn change<R>(&mut self, at: u32, change: impl FnOnce(&mut Tree) -> R) -> Option<R> {
        let tree = self.slots.get_mut(at as usize)?.as_deref_mut()?;
        let before = tree.size();
        let changed = change(tree);
        self.bytes = self.bytes - before + tree.size();
        Some(changed)
    }

    /// Starts the waiting time of a tree.
    fn wait(&mut self, at: u32, kind: WaitKind, deadline: u64) {
        if self.get(at).is_some_and(|tree| tree.deadline > 0) {
            self.unlink(at);
        }
        if let Some(tree) = self.slots.get_mut(at as usize).and_then(Option::as_deref_mut) {
            // 0 means no deadline. Monotonic time starts at 0, so `max` changes no real deadline.
            tree.deadline = deadline.max(1);
        }
        let queue = if kind == WaitKind::Soon { &mut self.soon } else { &mut self.later };
        queue.push(&mut self.slots, at, kind);
    }

    fn unlink(&mut self, at: u32) {
        match self.get(at).map(|tree| tree.links.queue) {
            Some(WaitKind::Soon) => self.soon.remove(&mut self.slots, at),
            Some(WaitKind::Later) => self.later.remove(&mut self.slots, at),
            None => {}
        }
    }

    /// Shrinks tables after a burst of spans.
    fn give_back(&mut self) {
        if self.is_empty() {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
        if self.places.len() < self.places.capacity() / 4 {
            self.places.shrink_to(self.places.len() * 2, |place| spread(place.hash));
        }
    }

    fn hash(&self, key: SpanKey) -> u32 {
        self.state.hash_one(key) as u32
    }

    fn find(&self, key: SpanKey) -> Option<SpanPlace> {
        let hash = self.hash(key);
        let is_it = |place: &SpanPlace| place.hash == hash && self.key_at(place) == Some(key);
        self.places.find(spread(hash), is_it).copied()
    }

    fn key_at(&self, place: &SpanPlace) -> Option<SpanKey> {
        let tree = self.get(place.tree)?;
        let span_id = match place.at {
            MISSING => tree.missing()?,
            at => tree.spans.get(at as usize)?.span_id,
        };
        Some(tree.key(span_id))
    }

    fn add_place(&mut self, key: SpanKey, tree: u32, at: u32) {
        let hash = self.hash(key);
        self.places.insert_unique(spread(hash), SpanPlace { hash, tree, at }, |place| spread(place.hash));
    }

    /// Does nothing if another span with the same id is registered.
    fn move_place(&mut self, old: SpanPlace, tree: u32, at: u32) {
        if let Some(place) = self.places.find_mut(spread(old.hash), |place| *place == old) {
            (place.tree, place.at) = (tree, at);
        }
    }

    fn remove_place(&mut self, key: SpanKey, tree: u32, at: u32) {
        let hash = self.hash(key);
        if let Ok(entry) = self.places.find_entry(spread(hash), |place| *place == SpanPlace { hash, tree, at }) {
            entry.remove();
        }
    }
}

/// Spreads a hash over 64 bits: the table uses the low bits for the slot, and the highest seven to compare entries.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl Tree {
    fn key(&self, span_id: SpanId) -> SpanKey {
        SpanKey { resource: self.resource, trace_id: self.trace_id, span_id }
    }
}
