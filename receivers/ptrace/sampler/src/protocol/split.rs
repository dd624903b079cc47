//! Splits messages that are too long for one packet into parts that fit and are each self-contained.

use postcard::ser_flavors::Size;

use super::{MAX_PACKET, MAX_STACK, MAX_WEIGHT};
use crate::message::{Batch, Context, Function, Sample, Stack, Thread, Trust};

/// The maximum size of a batch, or of the functions in a packet, in bytes. The remaining bytes of a packet are for the
/// other fields.
const BUDGET: usize = MAX_PACKET - 512;

/// Splits a batch. The parts together have all samples in the original order. A stack of more than [`MAX_STACK`]
/// locations loses those farthest from the leaf and is marked as truncated. Samples and locations with an index out of
/// range are left out.
pub fn split(batch: &Batch) -> Vec<Batch> {
    let mut parts = Vec::new();
    let mut left = vec![batch.samples.as_slice()];
    while let Some(samples) = left.pop() {
        let part = part(batch, samples);
        let packets = size(&part).div_ceil(BUDGET);
        // A single sample always fits, even with the longest stack and the largest context: encoding cuts their texts.
        if samples.len() > 1 && packets > 1 {
            left.extend(samples.chunks(samples.len().div_ceil(packets)).rev());
        } else if !part.samples.is_empty() {
            parts.push(part);
        }
    }
    parts
}

/// The encoded size of a batch in bytes.
fn size(batch: &Batch) -> usize {
    postcard::serialize_with_flavor(batch, Size::default()).unwrap_or(usize::MAX)
}

/// A batch with some of the samples and the table entries to which they refer.
fn part(whole: &Batch, samples: &[Sample]) -> Batch {
    let mut part = whole.emptied();
    let lengths = [whole.threads.len(), whole.locations.len(), whole.stacks.len(), whole.contexts.len()];
    let [mut threads, mut locations, mut stacks, mut contexts] = lengths.map(|length| NewIndices(vec![0; length]));
    for sample in samples {
        let thread = threads.place(sample.thread, &whole.threads, &mut part.threads, Thread::clone);
        let stack = stacks.place(sample.stack, &whole.stacks, &mut part.stacks, |stack| {
            shortened(stack, |location| {
                locations.place(location, &whole.locations, &mut part.locations, |location| *location)
            })
        });
        let (Some(thread), Some(stack)) = (thread, stack) else { continue };
        let context = sample
            .context
            .and_then(|context| contexts.place(context, &whole.contexts, &mut part.contexts, Context::clone));
        let weight_nano = sample.weight_nano.min(MAX_WEIGHT);
        part.samples.push(Sample { thread, stack, context, weight_nano, ..*sample });
    }
    part
}

/// A stack of at most [`MAX_STACK`] locations, with new indices.
fn shortened(stack: &Stack, place: impl FnMut(u32) -> Option<u32>) -> Stack {
    let is_cut = stack.locations.len() > MAX_STACK && matches!(stack.trust, Trust::Complete | Trust::MissingCallers);
    let trust = if is_cut { Trust::Truncated } else { stack.trust };
    Stack { trust, locations: stack.locations.iter().take(MAX_STACK).copied().filter_map(place).collect() }
}

/// For each entry in a table of the whole batch: its index in the part's table plus 1, or 0 if the part does not have
/// it.
struct NewIndices(Vec<u32>);

impl NewIndices {
    /// The index of an entry in the part's table; adds the entry if it is not there yet.
    fn place<T>(&mut self, index: u32, whole: &[T], part: &mut Vec<T>, copy: impl FnOnce(&T) -> T) -> Option<u32> {
        let (entry, place) = (whole.get(index as usize)?, self.0.get_mut(index as usize)?);
        if *place == 0 {
            part.push(copy(entry));
            *place = u32::try_from(part.len()).unwrap_or(u32::MAX);
        }
        Some(*place - 1)
    }
}

/// The maximum size of a function without its texts: 1 byte for the kind, 5 for the line, and 3 for the length of each
/// text.
const FUNCTION: usize = 1 + 5 + 3 * 3;

/// Splits functions into lists that fit into one packet each, each with the number of its first function.
pub fn split_functions(first: u32, functions: Vec<Function>) -> Vec<(u32, Vec<Function>)> {
    let mut parts: Vec<(u32, Vec<Function>)> = Vec::new();
    let mut bytes = 0;
    for (number, function) in (first..).zip(functions) {
        let size = FUNCTION + function.text();
        match parts.last_mut().filter(|_| bytes + size <= BUDGET) {
            Some((_, part)) => part.push(function),
            None => {
                parts.push((number, vec![function]));
                bytes = 0;
            }
        }
        bytes += size;
    }
    parts
}
