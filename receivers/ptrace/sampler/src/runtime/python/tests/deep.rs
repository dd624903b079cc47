//! Stacks with more frames than are read.

use super::*;

/// Adds `count` callers of the same function to the outermost frame of a recording.
fn with_callers(recording: &mut Recording, count: u64) {
    const MORE: u64 = 0x7abc_0000_0000;
    let mut reader = Reader::new(recording).unwrap();
    reader.read(recording, true);
    let outermost = reader.captured.frames.last().unwrap().address;
    let layout = Place::at(recording.runtime, recording.version, recording).unwrap().layout.frame;
    let mut frame = vec![0; layout.size as usize];
    assert!(recording.read(outermost, &mut frame));
    let at = layout.previous as usize;
    let mut bytes = Vec::new();
    for index in 0..count {
        let mut frame = frame.clone();
        let next = MORE + (index + 1) * u64::from(layout.size);
        if index + 1 < count {
            frame[at..at + 8].copy_from_slice(&next.to_le_bytes());
        }
        bytes.extend(frame);
    }
    recording.add(MORE, &bytes);
    recording.add(outermost + at as u64, &MORE.to_le_bytes());
}

/// Guarantees: of a stack with more frames than may be read, the innermost are returned, it is marked as having more,
/// and nothing is read twice; chains that are circular or lead nowhere are not mistaken for many frames.
#[test]
fn too_many_frames() {
    for (name, bytes) in RECORDINGS {
        let key = |recording: &Recording| ThreadKey { id: recording.thread, pointer: recording.pointer };
        let capture = |recording: &mut Recording, limit: usize| {
            let mut reader = Reader::new(recording).unwrap();
            let key = key(recording);
            let mut counted = Counted { recording, reads: 0 };
            assert!(reader.instance.capture(key, limit, reader.now, &mut counted, &mut reader.captured));
            (reader.captured.clone(), counted.reads as usize)
        };
        let mut recording = Recording::parse(bytes).unwrap();
        let (whole, _) = capture(&mut recording, MAX_FRAMES);
        assert!(!whole.cut && !whole.too_many, "{name}");
        with_callers(&mut recording, 1100);
        // From 3.11 on adjacent frames are read at once, and each of the others by itself.
        for (limit, most) in [(MAX_FRAMES, MAX_FRAMES), (64, 10 + 64 + 32)] {
            let (deep, reads) = capture(&mut recording, limit);
            assert!(deep.cut && deep.too_many, "{name}");
            assert!((limit.min(64)..=most).contains(&deep.frames.len()), "{name}: {}", deep.frames.len());
            assert!(reads <= most + 100, "{name}: {reads}");
            assert_eq!(deep.frames[..9], whole.frames[..9], "{name}");
        }
        // The last of them leads back to the first.
        let layout = Place::at(recording.runtime, recording.version, &mut recording).unwrap().layout.frame;
        let (first, second) = (whole.frames[8].address, whole.frames[9].address);
        for previous in [first, second, 0x1000, 0x7abc_0000_0004] {
            let mut recording = recording.clone();
            recording.add(second + u64::from(layout.previous), &previous.to_le_bytes());
            let (cut, _) = capture(&mut recording, MAX_FRAMES);
            assert!(cut.cut && !cut.too_many, "{name}: {previous:#x}");
        }
    }
}
