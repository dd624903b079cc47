//! Closed transactions that wait to be sent.
//!
//! Transactions of one resource are sent together, so that a large resource is not copied for each of them.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use profbridge_engine::component::Outbox;
use profbridge_model::spans::{Assembly, Origin, Origins};
use profbridge_model::{Quantities, Reason, Span, Spans};

use crate::trees::Tree;

/// The size of its spans, in bytes, at which a batch is sent.
const BATCH: usize = 1 << 20;

/// Approximate overhead per span, in bytes.
const SPAN: usize = size_of::<Span>();

#[derive(Debug, Default)]
pub(crate) struct ClosedTransactions {
    /// Transactions by resource index. The indexes are assigned here, so an attacker cannot choose colliding keys.
    by_resource: HashMap<u32, VecDeque<Tree>, FixedState>,
    /// Indexes of the resources that have transactions.
    order: VecDeque<u32>,
    spans: u64,
    bytes: usize,
}

impl ClosedTransactions {
    /// The number of spans.
    pub(crate) fn spans(&self) -> u64 {
        self.spans
    }

    /// Heap size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are no transactions.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Whether there are enough spans for a batch.
    pub(crate) fn are_enough(&self) -> bool {
        self.bytes >= BATCH
    }

    /// Appends a transaction to those of its resource.
    pub(crate) fn push(&mut self, tree: Tree) {
        self.spans += tree.spans.len() as u64;
        self.bytes += tree.size();
        let (order, resource) = (&mut self.order, tree.resource);
        let of_resource = self.by_resource.entry(resource).or_insert_with(|| {
            order.push_back(resource);
            VecDeque::new()
        });
        of_resource.push_back(tree);
    }

    /// Removes as many transactions as fit into a batch. `None` if there are none, or if they do not form a valid
    /// batch.
    pub(crate) fn batch(&mut self, origins: &mut Origins, out: &mut Outbox) -> Option<Spans> {
        let mut batch = OutputBatch::default();
        let mut last = None;
        while let Some(&resource) = self.order.front() {
            // A second large resource starts a separate batch.
            let is_other = last.is_some_and(|last| last != resource);
            if is_other && batch.assembly.bytes() + origins.resource_len(resource) > BATCH {
                break;
            }
            last = Some(resource);
            let trees = self.by_resource.get_mut(&resource);
            let Some(tree) = trees.and_then(VecDeque::pop_front) else {
                self.by_resource.remove(&resource);
                self.order.pop_front();
                continue;
            };
            self.spans -= tree.spans.len() as u64;
            self.bytes -= tree.size();
            batch.add(tree, origins, out);
            if batch.taken >= BATCH {
                break;
            }
        }
        // Removes resources without transactions from the front.
        while self.order.front().is_some_and(|resource| self.by_resource.get(resource).is_none_or(VecDeque::is_empty)) {
            if let Some(resource) = self.order.pop_front() {
                self.by_resource.remove(&resource);
            }
        }
        (!batch.assembly.is_empty()).then(|| batch.assembly.finish())
    }
}

/// A batch that is being built.
#[derive(Debug, Default)]
struct OutputBatch {
    assembly: Assembly,
    /// The index of the next transaction.
    number: u32,
    /// The size of the batch's spans in bytes, without their origins.
    taken: usize,
}

impl OutputBatch {
    /// Appends a transaction, and releases the origins of its spans.
    fn add(&mut self, mut tree: Tree, origins: &mut Origins, out: &mut Outbox) {
        tree.sort();
        self.assembly.reserve(tree.spans.len(), tree.encoded_bytes);
        self.taken += tree.spans.len() * SPAN + tree.encoded_bytes;
        for held in tree.spans {
            let origin = Origin::of(held.scope);
            let (span, bytes) = held.leave(tree.trace_id, self.number);
            if self.assembly.push(origins, span, &bytes).is_err() {
                out.drop(Reason::LimitExceeded, Quantities::spans(1));
            }
            origins.release(origin);
        }
        self.number += 1;
    }
}
