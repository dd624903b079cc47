//! Remembers spans that have left, to know those that come again and the children that come behind them.
//!
//! Of each there are two hashes, of what it is called and of what it says. So many are remembered as there may be, the
//! last ones.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap};
use profbridge_model::{SpanId, TraceId};

/// How a span is called in its process: whose it is, by a hash of the resource, and its ids.
pub(crate) type Name = (u64, TraceId, SpanId);

/// The spans that left last.
#[derive(Debug, Default)]
pub(crate) struct Left {
    max: usize,
    state: DefaultHashBuilder,
    /// What each said, by how it was called.
    known: HashMap<u64, u64>,
    /// In the order in which they left.
    order: VecDeque<u64>,
}

impl Left {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, ..Self::default() }
    }

    /// The memory of it, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let entry = size_of::<(u64, u64)>() + 1;
        self.known.capacity() * entry * 8 / 7 + self.order.capacity() * size_of::<u64>()
    }

    /// Whether a span of this name has left.
    pub(crate) fn has(&self, name: Name) -> bool {
        !self.known.is_empty() && self.known.contains_key(&self.state.hash_one(name))
    }

    /// Whether a span of this name has left that said the same. `scope` is a hash of what made it.
    pub(crate) fn has_equal(&self, name: Name, scope: u64, bytes: &[u8]) -> bool {
        let said = (!self.known.is_empty()).then(|| self.known.get(&self.state.hash_one(name))).flatten();
        said.is_some_and(|said| *said == self.state.hash_one((scope, bytes)))
    }

    /// Remembers a span from now on.
    pub(crate) fn remember(&mut self, name: Name, scope: u64, bytes: &[u8]) {
        if self.max == 0 {
            return;
        }
        let name = self.state.hash_one(name);
        if self.known.insert(name, self.state.hash_one((scope, bytes))).is_none() {
            if self.order.len() >= self.max
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
            self.order.push_back(name);
        }
    }
}
