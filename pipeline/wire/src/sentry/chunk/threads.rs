//! Assigns the samples of one window to threads.
//!
//! [`SampleThread`] identifies a sample's thread. Samples without one go to synthetic threads.

use hashbrown::HashMap;
use profbridge_model::thread::{SYNTHETIC_BASE, SampleThread};
use profbridge_model::{AttributeSetId, Dictionary, StringId, Value};

use super::report::Notes;
use super::stamped::Stamped;
use super::write::ObjectWriter;
use crate::json;

/// A thread of the window and its observations.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The id in the chunk.
    pub(super) id: String,
    pub(super) name: Option<StringId>,
    /// The priority of a thread in a preserved chunk.
    priority: Option<u32>,
    /// The keys of its observations, see [`timeline`](super::timeline).
    pub(super) keys: Vec<u64>,
    /// The number of keys from the front that are sorted and leave no time between them for values without timestamps.
    pub(super) timed: usize,
    /// The end of the values without timestamps placed so far, in ticks.
    pub(super) laid: u64,
}

impl Lane {
    /// Writes the thread's metadata under its id. Sentry's own name takes precedence.
    pub(super) fn write(
        &self,
        dictionary: &Dictionary,
        own_name: Option<&[u8]>,
        kept: bool,
        out: &mut Vec<u8>,
        notes: &mut Notes,
    ) {
        out.extend_from_slice(if out.is_empty() { b"\"" } else { b",\"" });
        json::escaped(out, self.id.as_bytes());
        out.extend_from_slice(b"\":");
        let mut object = ObjectWriter::open(out, kept, notes);
        object.text("name", own_name.or_else(|| self.name.map(|name| dictionary.string_bytes(Some(name)))));
        object.number("priority", self.priority.map(u64::from));
        object.close();
    }
}

/// Marks an attribute set without a thread.
const NO_LANE: u32 = u32::MAX;

/// All threads of the window. Lanes and their memory are reused between windows.
#[derive(Debug, Default)]
pub(super) struct Threads {
    lanes: Vec<Lane>,
    used: usize,
    by_set: Stamped,
    by_id: HashMap<String, u32>,
    synthetic: Vec<u32>,
    /// Whether the threads belong to a preserved chunk.
    kept: bool,
}

impl Threads {
    /// Heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let lane = |lane: &Lane| size_of::<Lane>() + lane.id.capacity() + lane.keys.capacity() * size_of::<u64>();
        self.lanes.iter().map(lane).sum::<usize>() + self.by_set.heap_bytes() + self.by_id.allocation_size()
    }

    /// Clears the preceding window. In a preserved chunk (`kept`) threads may have any ids.
    pub(super) fn begin(&mut self, dictionary: &Dictionary, kept: bool) {
        self.kept = kept;
        self.by_set.begin(dictionary.tables().attribute_sets.len());
        self.by_id.clear();
        self.synthetic.clear();
        self.used = 0;
    }

    /// The thread that the attribute sets name; the first set takes precedence.
    #[inline]
    pub(super) fn find(
        &mut self,
        dictionary: &Dictionary,
        sample: Option<AttributeSetId>,
        profile: Option<AttributeSetId>,
    ) -> Option<usize> {
        self.of_set(dictionary, sample).or_else(|| self.of_set(dictionary, profile))
    }

    #[inline]
    fn of_set(&mut self, dictionary: &Dictionary, set: Option<AttributeSetId>) -> Option<usize> {
        let set = set?;
        let lane = match self.by_set.get(set.index()) {
            Some(lane) => lane,
            None => {
                let lane = self.resolve(dictionary, set);
                self.by_set.set(set.index(), lane);
                lane
            }
        };
        (lane != NO_LANE).then_some(lane as usize)
    }

    fn resolve(&mut self, dictionary: &Dictionary, set: AttributeSetId) -> u32 {
        let found = match self.kept {
            true => kept_thread(dictionary, set),
            false => SampleThread::of(dictionary, Some(set)).map(|thread| (thread, None)),
        };
        let Some((SampleThread { id, name }, priority)) = found else { return NO_LANE };
        let lane = match self.by_id.get(&id) {
            Some(&lane) => lane,
            None => {
                let lane = self.open(id.clone());
                self.by_id.insert(id, lane);
                lane
            }
        };
        let known = &mut self.lanes[lane as usize];
        (known.name, known.priority) = (known.name.or(name), known.priority.or(priority));
        lane
    }

    fn open(&mut self, id: String) -> u32 {
        if self.used == self.lanes.len() {
            self.lanes.push(Lane::default());
        }
        let lane = &mut self.lanes[self.used];
        lane.id = id;
        (lane.name, lane.priority) = (None, None);
        lane.timed = 0;
        lane.laid = 0;
        lane.keys.clear();
        self.used += 1;
        (self.used - 1) as u32
    }

    /// Number of synthetic threads.
    pub(super) fn synthetic_len(&self) -> usize {
        self.synthetic.len()
    }

    /// The lane of the synthetic thread with this number. The lane gets its id in [`Threads::finish`].
    pub(super) fn synthetic(&mut self, number: usize) -> usize {
        while self.synthetic.len() <= number {
            let lane = self.open(String::new());
            self.synthetic.push(lane);
        }
        self.synthetic[number] as usize
    }

    /// Assigns the ids of synthetic threads: from 0 on if the window has no real threads, otherwise above all real ids.
    pub(super) fn finish(&mut self) {
        let base = if self.by_id.is_empty() { 0 } else { SYNTHETIC_BASE };
        for (number, &lane) in self.synthetic.iter().enumerate() {
            self.lanes[lane as usize].id = (base + number as u64).to_string();
        }
    }

    /// The lanes of the window.
    pub(super) fn lanes(&self) -> &[Lane] {
        &self.lanes[..self.used]
    }

    /// The lanes of the window.
    pub(super) fn lanes_mut(&mut self) -> &mut [Lane] {
        &mut self.lanes[..self.used]
    }
}

/// The thread and its priority from the attributes of a preserved chunk.
fn kept_thread(dictionary: &Dictionary, set: AttributeSetId) -> Option<(SampleThread, Option<u32>)> {
    let (mut id, mut name, mut priority) = (None, None, None);
    for attribute in dictionary.attributes(Some(set)) {
        match (dictionary.string_bytes(attribute.key), &attribute.value) {
            (b"thread.id", Value::Int(number)) => id = Some(number.to_string()),
            (b"thread.id", Value::String(text)) => id = Some(dictionary.string(*text).to_owned()),
            (b"thread.name", Value::String(text)) => name = *text,
            (b"sentry.thread.priority", Value::Int(number)) => priority = u32::try_from(*number).ok(),
            _ => {}
        }
    }
    Some((SampleThread { id: id?, name }, priority))
}
