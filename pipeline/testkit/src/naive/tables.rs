//! The tables of one chunk (samples, stacks, frames and threads), with each stack and frame once.

use std::{collections::HashMap, rc::Rc};

use super::{
    Source,
    chunk::{NaiveFrame, NaiveProfile, NaiveSample, ThreadMetadata},
    frames,
    images::NaiveImages,
    timeline::Entry,
};

/// The chunk's tables. Each location is converted once.
pub(super) fn tables(
    source: &Source<'_>,
    images: &NaiveImages,
    platform: &str,
    thread_names: &HashMap<String, String>,
    entries: Vec<Entry>,
) -> NaiveProfile {
    let mut profile = NaiveProfile::default();
    let mut interned =
        Interned { source, images, platform, frame_ids: HashMap::new(), by_location: vec![None; source.kinds.len()] };
    let mut stack_ids: HashMap<Vec<usize>, usize> = HashMap::new();
    let mut by_stack: HashMap<Option<i32>, usize> = HashMap::new();
    let mut samples: Vec<(u64, Rc<str>, usize)> = Vec::new();
    for entry in entries {
        let stack_id = *by_stack.entry(entry.stack).or_insert_with(|| {
            let mut stack = Vec::new();
            for (index, _) in entry.stack.into_iter().flat_map(|stack| source.locations(stack)) {
                stack.extend_from_slice(interned.location(index, &mut profile.frames));
            }
            *stack_ids.entry(stack.clone()).or_insert_with(|| {
                profile.stacks.push(stack);
                profile.stacks.len() - 1
            })
        });
        if !profile.thread_metadata.contains_key(&*entry.thread) {
            let name = thread_names.get(&*entry.thread).cloned();
            profile.thread_metadata.insert(entry.thread.to_string(), ThreadMetadata { name });
        }
        samples.push((entry.timestamp, entry.thread, stack_id));
    }
    halve_unlisted(&profile, &mut samples);
    let sample = |(timestamp, thread, stack_id): (u64, Rc<str>, usize)| NaiveSample {
        timestamp: (timestamp / 1000) as f64 / 1e6,
        thread_id: thread.to_string(),
        stack_id,
    };
    profile.samples = samples.into_iter().map(sample).collect();
    profile
}

/// Sentry lists a function only if at least two samples of a chunk count for it (observed with `vroomrs` 0.1.24), so
/// the only sample of a function is written as two that share its time.
fn halve_unlisted(profile: &NaiveProfile, samples: &mut Vec<(u64, Rc<str>, usize)>) {
    let owner = |stack: usize| owner(profile, stack);
    let mut counts: HashMap<(&str, &str), usize> = HashMap::new();
    for key in samples.iter().filter_map(|&(_, _, stack)| owner(stack)) {
        *counts.entry(key).or_default() += 1;
    }
    let mut halves = Vec::new();
    for (position, (at, thread, stack)) in samples.iter().enumerate() {
        if owner(*stack).is_none_or(|key| counts[&key] != 1) {
            continue;
        }
        let next = samples[position + 1..].iter().find(|(_, other, _)| other == thread);
        if let Some((next, ..)) = next.filter(|(next, ..)| next - at >= 2) {
            halves.push((at + (next - at) / 2, Rc::clone(thread), *stack));
        }
    }
    samples.extend(halves);
    samples.sort_by_key(|&(timestamp, ..)| timestamp);
}

/// The function of a stack's innermost in-app frame, as Sentry groups functions; `None` if that is the root frame.
fn owner(profile: &NaiveProfile, stack: usize) -> Option<(&str, &str)> {
    let frames: Vec<&NaiveFrame> = profile.stacks[stack].iter().map(|&frame| &profile.frames[frame]).collect();
    let own = |frame: &&&NaiveFrame| frame.in_app == Some(true) && frame.platform.is_none();
    let frame = frames.split_last()?.1.iter().find(own)?;
    let file = || frame.package.as_deref().map_or("", |package| super::basename(package));
    Some((frame.module.as_deref().unwrap_or_else(file), frame.function.as_deref().unwrap_or("")))
}

/// The frames that are already in the chunk.
struct Interned<'a> {
    source: &'a Source<'a>,
    images: &'a NaiveImages,
    platform: &'a str,
    frame_ids: HashMap<NaiveFrame, usize>,
    by_location: Vec<Option<Vec<usize>>>,
}

impl Interned<'_> {
    fn location(&mut self, index: usize, frames: &mut Vec<NaiveFrame>) -> &[usize] {
        let frame_ids = &mut self.frame_ids;
        self.by_location[index].get_or_insert_with(|| {
            let location = &self.source.dictionary.location_table[index];
            let kind = &self.source.kinds[index].frame_type;
            frames::frames(self.source.dictionary, self.images, location, kind, self.platform)
                .into_iter()
                .map(|frame| {
                    *frame_ids.entry(frame.clone()).or_insert_with(|| {
                        frames.push(frame);
                        frames.len() - 1
                    })
                })
                .collect()
        })
    }
}
