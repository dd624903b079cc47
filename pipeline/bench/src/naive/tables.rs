//! Samples, stacks, frames and threads of one chunk, each stack and frame once.

use std::collections::HashMap;

use super::{
    Source,
    chunk::{Frame, Profile, Sample, ThreadMetadata},
    frames,
    images::Images,
    timeline::Entry,
};

/// The chunk's tables. Each location is converted once.
pub(super) fn tables(
    source: &Source<'_>,
    images: &Images,
    platform: &str,
    thread_names: &HashMap<String, String>,
    entries: Vec<Entry>,
) -> Profile {
    let mut profile = Profile::default();
    let mut interned =
        Interned { source, images, platform, frame_ids: HashMap::new(), by_location: vec![None; source.kinds.len()] };
    let mut stack_ids: HashMap<Vec<usize>, usize> = HashMap::new();
    let mut by_stack: HashMap<Option<i32>, usize> = HashMap::new();
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
        let timestamp = (entry.timestamp / 1000) as f64 / 1e6;
        profile.samples.push(Sample { timestamp, thread_id: entry.thread.to_string(), stack_id });
    }
    profile
}

/// The frames that are already in the chunk.
struct Interned<'a> {
    source: &'a Source<'a>,
    images: &'a Images,
    platform: &'a str,
    frame_ids: HashMap<Frame, usize>,
    by_location: Vec<Option<Vec<usize>>>,
}

impl Interned<'_> {
    fn location(&mut self, index: usize, frames: &mut Vec<Frame>) -> &[usize] {
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
