//! Trees ordered by deadline.
//!
//! All trees in a queue wait equally long, so they are appended in the order of their deadlines. A tree links to its
//! neighbours, so it can be removed or replaced anywhere in the queue.

use super::tree::Tree;

/// Marks the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// The queue in which a tree waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum WaitKind {
    /// For trees whose local root has arrived, or whose missing parent has been sent already.
    Soon,
    /// For all other trees.
    #[default]
    Later,
}

/// A tree's neighbours in its queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    pub(super) queue: WaitKind,
    before: u32,
    after: u32,
}

impl Default for Links {
    fn default() -> Self {
        Self { queue: WaitKind::default(), before: NONE, after: NONE }
    }
}

/// The first and the last tree of a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeadlineQueue {
    first: u32,
    last: u32,
}

impl Default for DeadlineQueue {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

type Slots = [Option<Box<Tree>>];

fn links(slots: &mut Slots, at: u32) -> Option<&mut Links> {
    slots.get_mut(at as usize)?.as_deref_mut().map(|tree| &mut tree.links)
}

impl DeadlineQueue {
    /// The tree with the earliest deadline.
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Appends a tree that is in no queue.
    pub(super) fn push(&mut self, slots: &mut Slots, at: u32, kind: WaitKind) {
        if let Some(own) = links(slots, at) {
            *own = Links { queue: kind, before: self.last, after: NONE };
        }
        match links(slots, self.last) {
            Some(last) => last.after = at,
            None => self.first = at,
        }
        self.last = at;
    }

    /// Removes a tree from this queue.
    pub(super) fn remove(&mut self, slots: &mut Slots, at: u32) {
        let Some(own) = links(slots, at).map(std::mem::take) else { return };
        self.join(slots, own.before, own.after);
    }

    /// Replaces a tree of this queue by one that is in no queue.
    pub(super) fn replace(&mut self, slots: &mut Slots, old: u32, new: u32) {
        let Some(own) = links(slots, old).map(std::mem::take) else { return };
        if let Some(new) = links(slots, new) {
            *new = own;
        }
        match links(slots, own.before) {
            Some(before) => before.after = new,
            None => self.first = new,
        }
        match links(slots, own.after) {
            Some(after) => after.before = new,
            None => self.last = new,
        }
    }

    fn join(&mut self, slots: &mut Slots, before: u32, after: u32) {
        match links(slots, before) {
            Some(links) => links.after = after,
            None => self.first = after,
        }
        match links(slots, after) {
            Some(links) => links.before = before,
            None => self.last = before,
        }
    }
}
