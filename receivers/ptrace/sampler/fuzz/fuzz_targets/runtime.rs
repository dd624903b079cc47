//! The memory of an interpreter: a recording, of which some words are changed.
//!
//! The input is a recording, followed by changes: an index into its bytes (4 bytes) and a word (8 bytes) each, of which
//! the number is the last byte. Promises: no panic; no more frames than the limit; bounded texts.
#![no_main]

use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use profbridge_sampler::runtime::{
    Captured, Found, Functions, MAX_FILE, MAX_FRAMES, MAX_NAME, Recording, ThreadKey,
};

fuzz_target!(|data: &[u8]| {
    let Some((&count, rest)) = data.split_last() else { return };
    let Some((bytes, changes)) = rest.split_at_checked(rest.len().saturating_sub(usize::from(count % 16) * 12)) else {
        return;
    };
    let Some(mut recording) = Recording::parse(bytes).or_else(|| Recording::parse(data)) else { return };
    let places: Vec<u64> = recording
        .parts
        .iter()
        .flat_map(|(start, part)| (0..part.len() as u64).step_by(8).map(move |at| start.wrapping_add(at)))
        .collect();
    for change in changes.chunks_exact(12) {
        let (index, word) = change.split_at(4);
        let index = u32::from_le_bytes(index.try_into().unwrap()) as usize;
        if let Some(place) = places.get(index % places.len().max(1)).filter(|place| **place < u64::MAX - 8) {
            recording.add(*place, word);
        }
    }
    let Ok(found) = Found::python(recording.runtime, recording.version, &mut recording) else { return };
    let mut instance = found.instance();
    let key = ThreadKey { id: recording.thread, pointer: recording.pointer };
    let (mut captured, mut resolved, mut functions) = (Captured::default(), Vec::new(), Functions::default());
    for stands in [true, false] {
        if !instance.capture(key, MAX_FRAMES, Instant::now(), &mut recording, &mut captured) {
            return;
        }
        assert!(captured.frames.len() <= MAX_FRAMES && captured.segments.len() <= captured.frames.len());
        instance.resolve(&captured, stands, &mut recording, &mut functions, &mut resolved);
        assert_eq!(resolved.len(), captured.frames.len());
        let told = functions.take_fresh().map(|(_, told)| told).unwrap_or_default();
        assert!(told.iter().all(|one| one.name.len() <= MAX_NAME && one.file.len() <= MAX_FILE));
    }
});
