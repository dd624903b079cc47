//! Stores which spans were sent, to recognize resends and late children.
//!
//! There are two hashes per span: of its identity and of its content. Only the most recent spans are stored.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap};
use profbridge_model::{SpanId, TraceId};

/// Identifies a span in its process: a hash of the resource, the trace id and the span id.
pub(crate) type SpanIdentity = (u64, TraceId, SpanId);

/// The most recently sent spans.
#[derive(Debug, Default)]
pub(crate) struct SentSpans {
    max: usize,
    state: DefaultHashBuilder,
    /// Hash of each span's content, by the hash of its identity.
    known: HashMap<u64, u64>,
    /// Spans in the order in which they were sent.
    order: VecDeque<u64>,
}

impl SentSpans {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, ..Self::default() }
    }

    /// The approximate heap size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let entry = size_of::<(u64, u64)>() + 1;
        self.known.capacity() * entry * 8 / 7 + self.order.capacity() * size_of::<u64>()
    }

    /// Whether a span with this identity was sent.
    pub(crate) fn has(&self, name: SpanIdentity) -> bool {
        !self.known.is_empty() && self.known.contains_key(&self.state.hash_one(name))
    }

    /// Whether a span with this identity and equal content was sent. `scope` is a hash of its scope.
    pub(crate) fn has_equal(&self, name: SpanIdentity, scope: u64, bytes: &[u8]) -> bool {
        let content = (!self.known.is_empty()).then(|| self.known.get(&self.state.hash_one(name))).flatten();
        content.is_some_and(|known| *known == self.state.hash_one((scope, bytes)))
    }

    /// Adds a sent span.
    pub(crate) fn remember(&mut self, name: SpanIdentity, scope: u64, bytes: &[u8]) {
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
