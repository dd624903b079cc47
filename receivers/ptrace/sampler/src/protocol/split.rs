//! Splits a batch into batches that fit into one packet each and refer to nothing outside of it.

use super::encode::cut;
use super::{MAX_PACKET, MAX_STACK, MAX_THREAD_NAME, MAX_WEIGHT};
use crate::context::{MAX_ALLOWED, MAX_ATTRIBUTES, MAX_VALUE};
use crate::message::{Batch, Context, Function, Sample, Stack, Trust};

/// How many bytes a packet may have for the tables of a batch. The rest is for what a batch has once: the lengths of
/// its tables, and its own numbers.
const BUDGET: usize = MAX_PACKET - 512;

/// The most bytes of a thread: ids of 5 bytes, a pointer of 10, the name with its length.
const THREAD: usize = 5 + 5 + 10 + 2 + MAX_THREAD_NAME;

/// The most bytes of a location: 1 for its kind, 6 for its mapping, 10 for its address.
const LOCATION: usize = 17;

/// The most bytes of a stack without its locations: 1 for its trust, 2 for its length.
const STACK: usize = 3;

/// The most bytes of an index of a location in a stack: at most 65,536 locations fit into a packet.
const PLACE: usize = 3;

/// The most bytes of a sample: thread and stack 3 each, time 10, weight 7 (a day in nanoseconds), observations 5,
/// blocked 1, context 4.
const SAMPLE: usize = 33;

/// The most bytes of a context without its attributes: 25 for its ids, and 1 for the number of attributes.
const CONTEXT: usize = 26;

/// The most bytes of an attribute besides its value: 1 for its key, 2 for the length of the value.
const ATTRIBUTE: usize = 3;

/// The most bytes of a context with attributes.
const LARGEST_CONTEXT: usize = CONTEXT + MAX_ALLOWED * ATTRIBUTE + MAX_ATTRIBUTES;

// The longest stack fits into an empty packet together with its thread, its context and its sample.
const _: () = assert!(MAX_STACK * (LOCATION + PLACE) + STACK + THREAD + LARGEST_CONTEXT + SAMPLE <= BUDGET);

/// Splits a batch. The parts have all samples in their order. A stack of more than [`MAX_STACK`] locations loses those
/// farthest from the leaf and is truncated. Samples and locations with an index out of range are left out.
pub fn split(batch: &Batch) -> Vec<Batch> {
    let mut parts = Vec::new();
    let mut part = Part::new(batch);
    for sample in &batch.samples {
        if !part.add(sample) {
            parts.extend(part.finish());
            // An empty part takes any sample, by the assertion above.
            part.add(sample);
        }
    }
    parts.extend(part.finish());
    parts
}

/// The most bytes of a function besides its texts: 1 for its kind, 5 for its line, and the length of each text.
const FUNCTION: usize = 1 + 5 + 3 * 3;

/// Splits functions into lists that fit into one packet each, with the number of the first one in each.
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

/// One part, as it grows.
struct Part<'a> {
    whole: &'a Batch,
    part: Batch,
    bytes: usize,
    /// For each thread, location, stack and context of the whole batch: its index in this part plus 1, or 0 if it is
    /// not in it.
    threads: Vec<u32>,
    locations: Vec<u32>,
    stacks: Vec<u32>,
    contexts: Vec<u32>,
}

impl<'a> Part<'a> {
    fn new(whole: &'a Batch) -> Self {
        Self {
            whole,
            part: whole.emptied(),
            bytes: 0,
            threads: vec![0; whole.threads.len()],
            locations: vec![0; whole.locations.len()],
            stacks: vec![0; whole.stacks.len()],
            contexts: vec![0; whole.contexts.len()],
        }
    }

    /// Adds a sample; `false` if there is no room.
    fn add(&mut self, sample: &Sample) -> bool {
        let (thread, stack) = (sample.thread as usize, sample.stack as usize);
        let (Some(whole_thread), Some(whole_stack)) = (self.whole.threads.get(thread), self.whole.stacks.get(stack))
        else {
            return true;
        };
        let length = whole_stack.locations.len().min(MAX_STACK);
        let mut bytes = SAMPLE;
        if self.threads[thread] == 0 {
            bytes += THREAD;
        }
        if self.stacks[stack] == 0 {
            // Counted as if every location were new: so a packet may be closed earlier than necessary, but never too
            // late.
            bytes += STACK + length * (LOCATION + PLACE);
        }
        let context = sample.context.map(|context| context as usize);
        let context = context.and_then(|at| Some((at, self.whole.contexts.get(at)?)));
        if let Some((at, context)) = context
            && self.contexts[at] == 0
        {
            bytes += context_size(context);
        }
        if self.bytes + bytes > BUDGET {
            return false;
        }
        if self.threads[thread] == 0 {
            let mut whole_thread = whole_thread.clone();
            cut(&mut whole_thread.name, MAX_THREAD_NAME);
            self.part.threads.push(whole_thread);
            self.threads[thread] = count(self.part.threads.len());
            self.bytes += THREAD;
        }
        if self.stacks[stack] == 0 {
            self.add_stack(whole_stack, length);
            self.stacks[stack] = count(self.part.stacks.len());
        }
        if let Some((at, context)) = context
            && self.contexts[at] == 0
        {
            let mut context = context.clone();
            context.attributes.iter_mut().for_each(|(_, value)| cut(value, MAX_VALUE));
            self.bytes += context_size(&context);
            self.part.contexts.push(context);
            self.contexts[at] = count(self.part.contexts.len());
        }
        self.bytes += SAMPLE;
        self.part.samples.push(Sample {
            thread: self.threads[thread] - 1,
            stack: self.stacks[stack] - 1,
            context: context.map(|(at, _)| self.contexts[at] - 1),
            weight_nano: sample.weight_nano.min(MAX_WEIGHT),
            ..*sample
        });
        true
    }

    fn add_stack(&mut self, stack: &Stack, length: usize) {
        let mut trust = stack.trust;
        let mut locations = Vec::with_capacity(length);
        for location in &stack.locations[..length] {
            let place = *location as usize;
            let Some(whole) = self.whole.locations.get(place) else { continue };
            if self.locations[place] == 0 {
                self.part.locations.push(*whole);
                self.locations[place] = count(self.part.locations.len());
                self.bytes += LOCATION;
            }
            locations.push(self.locations[place] - 1);
        }
        if length < stack.locations.len() && matches!(trust, Trust::Complete | Trust::MissingCallers) {
            trust = Trust::Truncated;
        }
        self.bytes += STACK + locations.len() * PLACE;
        self.part.stacks.push(Stack { trust, locations });
    }

    /// Takes the part, if it has samples, and begins a new one.
    fn finish(&mut self) -> Option<Batch> {
        let next = self.whole.emptied();
        self.bytes = 0;
        for table in [&mut self.threads, &mut self.locations, &mut self.stacks, &mut self.contexts] {
            table.fill(0);
        }
        let part = std::mem::replace(&mut self.part, next);
        (!part.samples.is_empty()).then_some(part)
    }
}

/// The most bytes of this context.
fn context_size(context: &Context) -> usize {
    CONTEXT + context.attributes.iter().map(|(_, value)| ATTRIBUTE + value.len()).sum::<usize>()
}

/// A number of entries, which fit into a packet and so into 32 bits.
fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
