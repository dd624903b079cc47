//! The threads and samples of a profile.
//!
//! The values are the times that Sentry shows: a sample owns the time until the next one of its thread, the last owns
//! nothing (getsentry/vroom). A sample with an empty stack is idle time. It is kept, as a sample without a stack, so
//! that the chunk can be restored. Its value is 0, since nothing else would distinguish it from sampled time.

use hashbrown::HashMap;
use profbridge_model::builder::Any;
use profbridge_model::{AttributeSetId, Builder, LinkId, StackId};

use super::model::ThreadJson;
use super::text::{Entries, Text};
use super::{MAX_ENTRIES, ProfileError, ProfileStacks};

/// The ids of a profile's threads; each thread is represented by its index.
#[derive(Debug, Default)]
pub(in crate::sentry) struct ThreadIds<'a> {
    ids: Vec<Text<'a>>,
    index: HashMap<Text<'a>, u32>,
}

impl<'a> ThreadIds<'a> {
    /// The index of a thread. Samples mostly come thread by thread, or from few threads.
    #[inline]
    pub(in crate::sentry) fn number(&mut self, id: Text<'a>) -> u32 {
        if let Some(known) = self.ids.iter().take(4).position(|known| *known == id) {
            return known as u32;
        }
        if let Some(&known) = self.index.get(&id) {
            return known;
        }
        let number = self.ids.len() as u32;
        self.ids.push(id.clone());
        self.index.insert(id, number);
        number
    }

    /// Whether any sample is from this thread.
    fn knows(&self, id: &Text<'_>) -> bool {
        self.index.contains_key(id)
    }

    /// Number of threads.
    pub(in crate::sentry) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The attributes of each thread's samples.
    fn attributes(
        &self,
        builder: &mut Builder,
        metadata: &Entries<'_, ThreadJson<'_>, MAX_ENTRIES>,
    ) -> Vec<Option<AttributeSetId>> {
        let metadata: HashMap<&str, &ThreadJson<'_>> =
            metadata.0.iter().map(|(id, thread)| (id.as_str(), thread)).collect();
        let attributes = self.ids.iter().map(Text::as_str).map(|id| {
            let thread = metadata.get(id);
            // The conventions have an integer, Sentry a string: an integer is used if it converts back to the same
            // string.
            let number = id.parse::<i64>().ok().filter(|number| number.to_string() == id);
            let mut attributes = vec![("thread.id", number.map_or(Any::Str(id), Any::Int))];
            if let Some(name) = thread.and_then(|thread| thread.name.as_ref()) {
                attributes.push(("thread.name", Text::as_str(name).into()));
            }
            if let Some(priority) = thread.and_then(|thread| thread.priority) {
                attributes.push(("sentry.thread.priority", i64::from(priority).into()));
            }
            builder.attributes(&attributes)
        });
        attributes.collect()
    }
}

/// A sample of a profile.
#[derive(Debug, Clone, Copy)]
pub(in crate::sentry) struct TimedSample {
    /// The sample's time, in nanoseconds since the Unix epoch; before 2262.
    pub(in crate::sentry) time: u64,
    /// The index of its stack.
    pub(in crate::sentry) stack: u32,
    /// The index of its thread.
    pub(in crate::sentry) thread: u32,
}

/// The samples of a profile, in order of time.
pub(in crate::sentry) struct Samples {
    all: Vec<TimedSample>,
}

/// How far a time may be moved so that no two samples of a thread have equal times, in nanoseconds. Their order decides
/// which of them owns the time, and OTLP keeps no order among samples with different stacks. Half a microsecond is the
/// precision of a time in seconds as a double, and disappears when the time is written in microseconds.
const MOST_MOVED: u64 = 499;

impl Samples {
    /// Sorts the samples. Samples of one thread with equal times are moved apart as far as allowed.
    ///
    /// # Errors
    ///
    /// A sample refers to a missing stack.
    pub(in crate::sentry) fn new(
        mut all: Vec<TimedSample>,
        stacks: usize,
        threads: &ThreadIds<'_>,
    ) -> Result<Self, ProfileError> {
        if let Some(at) = all.iter().position(|sample| sample.stack as usize >= stacks) {
            let rule = format!("index {} is out of range, there are {stacks} stacks", all[at].stack);
            return Err(ProfileError::rule(format!("profile.samples[{at}].stack_id"), rule));
        }
        all.sort_by_key(|sample| sample.time);
        let mut last: Vec<Option<u64>> = vec![None; threads.len()];
        for sample in &mut all {
            let last = &mut last[sample.thread as usize];
            if let Some(before) = last.filter(|before| (sample.time..sample.time + MOST_MOVED).contains(before)) {
                sample.time = before + 1;
            }
            *last = Some(sample.time);
        }
        Ok(Self { all })
    }

    /// Number of samples.
    pub(in crate::sentry) fn len(&self) -> usize {
        self.all.len()
    }

    /// The first and the last time, in nanoseconds since the Unix epoch; 0 if there are no samples.
    pub(in crate::sentry) fn range(&self) -> (u64, u64) {
        let times = || self.all.iter().map(|sample| sample.time);
        (times().min().unwrap_or_default(), times().max().unwrap_or_default())
    }

    /// Writes one OTLP sample with all its times for each stack of each thread. `link` is a thread's number and the
    /// link of its samples. Returns the number of stacks, frames and threads with metadata that no sample uses.
    pub(in crate::sentry) fn write<const MAX: usize, const NULLS: bool>(
        &self,
        builder: &mut Builder,
        stacks: &mut ProfileStacks<'_, '_, MAX, NULLS>,
        threads: &ThreadIds<'_>,
        metadata: &Entries<'_, ThreadJson<'_>, MAX_ENTRIES>,
        link: Option<(u32, Option<LinkId>)>,
    ) -> u64 {
        let attributes = threads.attributes(builder, metadata);
        // Backwards in time, because the next sample of a thread must be known.
        let mut next: Vec<Option<u64>> = vec![None; threads.len()];
        let mut values = vec![0; self.all.len()];
        for (sample, value) in self.all.iter().zip(&mut values).rev() {
            let after = next[sample.thread as usize].replace(sample.time).unwrap_or(sample.time);
            *value = i64::try_from(after.saturating_sub(sample.time)).unwrap_or(i64::MAX);
        }
        let mut index: HashMap<(Option<StackId>, u32), u32> = HashMap::default();
        let mut rows: Vec<ThreadStack> = Vec::new();
        let mut row_of = Vec::with_capacity(self.all.len());
        for sample in &self.all {
            let stack = stacks.get(builder, sample.stack as usize);
            let row = *index.entry((stack, sample.thread)).or_insert_with(|| {
                rows.push(ThreadStack { stack, thread: sample.thread, end: 0 });
                (rows.len() - 1) as u32
            });
            rows[row as usize].end += 1;
            row_of.push(row);
        }
        // Each row's start in the list of times, which is filled row by row.
        let mut start = 0;
        for row in &mut rows {
            (row.end, start) = (start, start + row.end);
        }
        let (mut times, mut owned) = (vec![0; self.all.len()], vec![0; self.all.len()]);
        for ((sample, &value), &row) in self.all.iter().zip(&values).zip(&row_of) {
            let row = &mut rows[row as usize];
            (times[row.end], owned[row.end]) = (sample.time, row.stack.map_or(0, |_| value));
            row.end += 1;
        }
        let mut start = 0;
        for row in &rows {
            let link = link.and_then(|(thread, link)| link.filter(|_| thread == row.thread));
            builder.sample(
                row.stack,
                attributes[row.thread as usize],
                link,
                &times[start..row.end],
                &owned[start..row.end],
            );
            start = row.end;
        }
        let is_unused = |(id, _): &&(Text<'_>, ThreadJson<'_>)| !threads.knows(id);
        stacks.unused() + metadata.0.iter().filter(is_unused).count() as u64
    }
}

/// All samples of one thread with one stack.
struct ThreadStack {
    stack: Option<StackId>,
    thread: u32,
    /// First the number of its samples, then their start and finally their end in the list of times.
    end: usize,
}

impl<const MAX: usize, const NULLS: bool> ProfileStacks<'_, '_, MAX, NULLS> {
    /// Validates and sorts samples of these stacks.
    pub(in crate::sentry) fn samples(
        &self,
        all: Vec<TimedSample>,
        threads: &ThreadIds<'_>,
    ) -> Result<Samples, ProfileError> {
        Samples::new(all, self.len(), threads)
    }
}
