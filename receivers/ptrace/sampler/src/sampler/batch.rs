//! Builds batches. Threads, stacks and locations that samples share are stored once per batch.

use hashbrown::HashMap;

use crate::message::{Batch, Context, Location, Mode, ProcessId, Sample, Stack, Thread, Trust};

type Map<K> = HashMap<K, u32, foldhash::fast::FixedState>;

/// A batch is sent early if it has this many samples, which are about 3 MB.
const MOST_SAMPLES: usize = 64 << 10;

/// A batch is also sent early if the attributes of its contexts have this many bytes in total.
const MOST_ATTRIBUTES: usize = 2 << 20;

/// Builds the current batch of a process.
#[derive(Debug)]
pub(super) struct BatchBuilder {
    batch: Batch,
    locations: Map<Location>,
    stacks: Map<Stack>,
    contexts: Map<Context>,
    /// The total size of the attributes of all contexts, in bytes.
    attributes: usize,
    /// The number of this batch, counted from 1 for each process.
    number: u64,
}

/// A reference to a thread, stack or sample in one batch of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchEntry {
    batch: u64,
    index: u32,
}

impl BatchBuilder {
    pub(super) fn new(process: ProcessId, period_nano: u64, mode: Mode) -> Self {
        Self {
            batch: Batch { process, period_nano, mode, ..Batch::default() },
            locations: Map::default(),
            stacks: Map::default(),
            contexts: Map::default(),
            attributes: 0,
            number: 1,
        }
    }

    /// A reference to the entry of this batch with this index.
    pub(super) fn entry(&self, index: u32) -> BatchEntry {
        BatchEntry { batch: self.number, index }
    }

    /// The index of an entry; `None` if the entry belongs to an earlier batch.
    pub(super) fn present(&self, entry: Option<BatchEntry>) -> Option<u32> {
        entry.filter(|entry| entry.batch == self.number).map(|entry| entry.index)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batch.samples.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.batch.samples.len() >= MOST_SAMPLES || self.attributes >= MOST_ATTRIBUTES
    }

    pub(super) fn add_thread(&mut self, thread: Thread) -> u32 {
        self.batch.threads.push(thread);
        index(self.batch.threads.len() - 1)
    }

    /// A thread of this batch, to correct it.
    pub(super) fn thread(&mut self, index: u32) -> Option<&mut Thread> {
        self.batch.threads.get_mut(index as usize)
    }

    pub(super) fn add_stack(&mut self, trust: Trust, locations: &[Location]) -> u32 {
        let list = &mut self.batch.locations;
        let locations = locations
            .iter()
            .map(|location| {
                *self.locations.entry(*location).or_insert_with(|| {
                    list.push(*location);
                    index(list.len() - 1)
                })
            })
            .collect();
        let list = &mut self.batch.stacks;
        let stack = Stack { trust, locations };
        *self.stacks.entry_ref(&stack).or_insert_with(|| {
            list.push(stack.clone());
            index(list.len() - 1)
        })
    }

    /// Adds the trace context of a thread. Returns its index.
    pub(super) fn add_context(&mut self, context: &Context) -> u32 {
        let list = &mut self.batch.contexts;
        *self.contexts.entry_ref(context).or_insert_with(|| {
            self.attributes += context.attributes.iter().map(|(_, value)| value.len()).sum::<usize>();
            list.push(context.clone());
            index(list.len() - 1)
        })
    }

    /// Adds a sample. Returns its index, for [`BatchBuilder::extend`].
    pub(super) fn add_sample(&mut self, sample: Sample) -> u32 {
        self.batch.samples.push(sample);
        index(self.batch.samples.len() - 1)
    }

    /// Counts one more observation of a sample, because the same stack was found again.
    pub(super) fn extend(&mut self, sample: u32) {
        if let Some(sample) = self.batch.samples.get_mut(sample as usize) {
            sample.observations += 1;
        }
    }

    /// Sets when the time that a sample covers begins, and its length.
    pub(super) fn weigh(&mut self, sample: u32, time_unix_nano: u64, weight_nano: u64) {
        if let Some(sample) = self.batch.samples.get_mut(sample as usize) {
            sample.time_unix_nano = time_unix_nano;
            sample.weight_nano = weight_nano;
        }
    }

    /// The index of a sample's stack.
    pub(super) fn stack_of(&self, sample: u32) -> Option<u32> {
        self.batch.samples.get(sample as usize).map(|sample| sample.stack)
    }

    /// Replaces the stack of a sample by a better one.
    pub(super) fn replace_stack(&mut self, sample: u32, stack: u32) {
        if let Some(sample) = self.batch.samples.get_mut(sample as usize) {
            sample.stack = stack;
        }
    }

    /// Takes the batch, and leaves an empty one.
    pub(super) fn take(&mut self) -> Batch {
        self.locations.clear();
        self.stacks.clear();
        self.contexts.clear();
        self.attributes = 0;
        self.number += 1;
        // Samples without weight are dropped: they cover no time.
        self.batch.samples.retain(|sample| sample.weight_nano > 0);
        self.batch.samples.sort_by_key(|sample| sample.time_unix_nano);
        let next = self.batch.emptied();
        std::mem::replace(&mut self.batch, next)
    }
}

/// An index as `u32`: a batch is sent long before it has 2^32 entries of any kind.
fn index(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: equal stacks and locations are stored once per batch, stacks of different trust are kept apart, and
    /// the next batch starts empty.
    #[test]
    fn interning() {
        let mut builder = BatchBuilder::new(ProcessId(3), 10, Mode::Wall);
        let location = |address| Location::Native { mapping: Some(1), address };
        let first = builder.add_stack(Trust::Complete, &[location(1), location(2)]);
        let second = builder.add_stack(Trust::Complete, &[location(2)]);
        assert_eq!(builder.add_stack(Trust::Complete, &[location(1), location(2)]), first);
        assert_ne!(builder.add_stack(Trust::Truncated, &[location(2)]), second);
        let sample = builder.add_sample(Sample { weight_nano: 10, observations: 1, ..Sample::default() });
        builder.extend(sample);
        builder.weigh(sample, 7, 30);
        let entry = builder.entry(7);
        assert_eq!(builder.present(Some(entry)), Some(7));
        let batch = builder.take();
        assert_eq!((batch.locations.len(), batch.stacks.len()), (2, 3));
        assert_eq!(batch.samples[0].weight_nano, 30);
        assert_eq!(batch.samples[0].observations, 2);
        assert!(builder.is_empty());
        assert_eq!(builder.present(Some(entry)), None);
        assert_eq!(builder.add_stack(Trust::Complete, &[location(2)]), 0);
        assert_eq!(builder.take().process, ProcessId(3));
    }
}
