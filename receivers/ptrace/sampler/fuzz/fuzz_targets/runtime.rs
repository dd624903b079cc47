//! Reads the frames of an interpreter from a recording of its memory in which some words are changed.
//!
//! The input is a recording of any interpreter, followed by changes: an index into its bytes (4 bytes) and a word (8
//! bytes) each. The last byte is the number of changes. Guarantees: no panic; no more frames than the limit; bounded
//! texts; bounded reads for the frames of a native stack.
#![no_main]

use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use profbridge_sampler::runtime::{
    Captured, Found, Functions, MAX_FILE, MAX_FRAMES, MAX_NAME, NativeStack, NativelyNamed, Recording, TargetMemory,
    ThreadKey,
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
    let Ok(found) = recording.found() else { return };
    native(&found, &mut recording);
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
        let words: Vec<u64> = captured.frames.iter().map(|frame| frame.address).collect();
        for frame in captured.frames.iter().take(8) {
            found.instance().find_by_frames(frame.instruction, &words, &mut recording, &mut Functions::default());
            instance.executed(frame.instruction, &mut recording, &mut functions);
        }
        let fresh = functions.take_fresh().map(|(_, fresh)| fresh).unwrap_or_default();
        assert!(fresh.iter().all(|one| one.name.len() <= MAX_NAME && one.file.len() <= MAX_FILE));
    }
});

/// The maximum number of reads for one stack.
const MAX_READS: u32 = 8192;

struct CountingRecording<'a>(&'a mut Recording, u32);

impl TargetMemory for CountingRecording<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.1 += 1;
        self.0.read(address, bytes)
    }
}

/// Names the native frames of a recording, starting at each of the inner frames in turn.
fn native(found: &Found, recording: &mut Recording) {
    let (mut instance, mut functions) = (found.instance(), Functions::default());
    if !instance.is_native() {
        return;
    }
    let (whole, mut words) = (recording.native(), recording.clone());
    for inner in (0..whole.frames.len().min(16)).chain([0]) {
        let stack = whole.without(inner);
        let place = |address| stack.place(address);
        let (mut named, mut target) = (NativelyNamed::default(), CountingRecording(recording, 0));
        let native = NativeStack { frames: &stack.frames, place: &place };
        instance.name_native(native, &mut words, &mut target, &mut functions, &mut named);
        assert!(target.1 <= MAX_READS);
        assert!(named.locations.is_sorted_by_key(|(index, _)| *index));
        let fresh = functions.take_fresh().map(|(_, fresh)| fresh).unwrap_or_default();
        assert!(fresh.iter().all(|one| one.name.len() <= MAX_NAME && one.file.len() <= MAX_FILE));
    }
}
