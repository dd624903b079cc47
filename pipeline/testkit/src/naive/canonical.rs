//! Compares chunks by content: tables may be in any order, and equal samples may be swapped.

use std::collections::{BTreeMap, BTreeSet};

use super::chunk::{NaiveChunk, NaiveFrame};

/// A sample without indices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CanonicalSample {
    /// Microseconds since the epoch.
    pub timestamp_us: i64,
    /// The thread.
    pub thread_id: String,
    /// The frames, leaf first; empty for an idle thread.
    pub stack: Vec<NaiveFrame>,
}

/// The properties of a frame that a reader sees: all except its address and its language.
fn identifying(frame: &NaiveFrame) -> NaiveFrame {
    NaiveFrame { instruction_addr: None, platform: None, ..frame.clone() }
}

/// The debug ids of the images of `chunk`.
pub fn debug_ids(chunk: &NaiveChunk) -> BTreeSet<&str> {
    chunk.debug_meta.images.iter().map(|image| &*image.debug_id).collect()
}

/// The samples of `chunk` as a sorted multiset. An invalid index becomes an empty stack or a missing frame.
pub fn canonical(chunk: &NaiveChunk) -> Vec<CanonicalSample> {
    let stack = |id: usize| -> Vec<NaiveFrame> {
        let indices = chunk.profile.stacks.get(id).map_or(&[][..], Vec::as_slice);
        indices.iter().filter_map(|&frame| chunk.profile.frames.get(frame)).map(identifying).collect()
    };
    let mut samples: Vec<_> = chunk
        .profile
        .samples
        .iter()
        .map(|sample| CanonicalSample {
            timestamp_us: (sample.timestamp * 1e6).round() as i64,
            thread_id: sample.thread_id.clone(),
            stack: stack(sample.stack_id),
        })
        .collect();
    samples.sort();
    samples
}

/// The first difference between the samples and images of two chunks as text; `None` if they are equal.
pub fn difference(left: &NaiveChunk, right: &NaiveChunk) -> Option<String> {
    if debug_ids(left) != debug_ids(right) {
        return Some(format!("images:\n  left  {:?}\n  right {:?}", debug_ids(left), debug_ids(right)));
    }
    let (left, right) = (canonical(left), canonical(right));
    if let Some((left, right)) = left.iter().zip(&right).find(|(left, right)| left != right) {
        return Some(format!("first difference:\n  left  {left:?}\n  right {right:?}"));
    }
    (left.len() != right.len()).then(|| format!("{} samples on the left, {} on the right", left.len(), right.len()))
}

/// The microseconds that Sentry attributes to each thread's stacks: a non-idle sample lasts until the next sample of
/// its thread, and the last one has no duration.
pub fn attributed_us(chunk: &NaiveChunk) -> BTreeMap<String, i64> {
    let mut threads: BTreeMap<String, Vec<(i64, bool)>> = BTreeMap::new();
    for sample in &chunk.profile.samples {
        let busy = chunk.profile.stacks.get(sample.stack_id).is_some_and(|stack| !stack.is_empty());
        let timestamp = (sample.timestamp * 1e6).round() as i64;
        threads.entry(sample.thread_id.clone()).or_default().push((timestamp, busy));
    }
    let owned = |mut samples: Vec<(i64, bool)>| -> i64 {
        samples.sort_by_key(|&(timestamp, _)| timestamp);
        samples.windows(2).filter(|pair| pair[0].1).map(|pair| pair[1].0 - pair[0].0).sum()
    };
    threads.into_iter().map(|(thread, samples)| (thread, owned(samples))).collect()
}
