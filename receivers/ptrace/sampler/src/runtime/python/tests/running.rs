//! Threads that continue to run while their frames are read.

use super::*;

/// Reads the thread once for every read at which memory may change from `before` to `after`.
fn at_all_moments(before: &Recording, after: &Recording) -> Vec<Captured> {
    let mut all = Vec::new();
    Changing::at_all_moments(before, after, |changing| {
        let mut reader = Reader::new(&mut before.clone()).unwrap();
        // The reader already knows the address of the thread's state.
        reader.read(&mut before.clone(), true);
        let key = Reader::key(before);
        reader.instance.capture(key, MAX_FRAMES, reader.now, changing, &mut reader.captured);
        all.push(reader.captured);
    });
    all
}

/// The complete stack, the address of the first link of the chain on the native stack, and the offset of the frame in a
/// link.
fn whole(recording: &mut Recording) -> (Captured, u64, u64) {
    let mut reader = Reader::new(recording).unwrap();
    reader.read(recording, true);
    let Current::InChain { chain, frame, .. } = place(recording).layout.thread.current else { panic!() };
    let state = state(recording);
    (reader.captured, word(recording, state.address + u64::from(chain)).unwrap(), frame.into())
}

/// Guarantees: if the innermost function returns to its caller within the same native call while frames are read, all
/// frames belong to the native calls that execute them.
#[test]
fn functions_that_return() {
    for (name, before, _) in recorded(&["3.11", "3.11-static", "3.12"]) {
        let (whole, link, frame) = whole(&mut before.clone());
        let mut after = before.clone();
        after.add(link + frame, &whole.frames[1].address.to_le_bytes());
        let anchors = |captured: &Captured| -> Vec<_> {
            captured.segments.iter().map(|segment| (captured.frames.len() - segment.end, segment.anchor)).collect()
        };
        let mut returned = [0; 2];
        for (at, captured) in at_all_moments(&before, &after).iter().enumerate() {
            assert_eq!(anchors(captured), anchors(&whole), "{name}, at {at}");
            returned[whole.frames.len() - captured.frames.len()] += 1;
        }
        assert!(returned.iter().all(|count| *count > 0), "{name}: {returned:?}");
    }
}

/// Guarantees: if a generator, which then has no caller, is left while frames are read, the result is not marked as
/// complete, so that it is read again.
#[test]
fn generators_that_are_left() {
    for (name, mut before, mut reader) in recorded(&PYTHON) {
        let layout = place(&mut before).layout.frame;
        let owner = match layout.calls {
            Calls::Each => continue,
            Calls::Marked { owner, .. } => owner,
            Calls::Owned { at } => at,
        };
        reader.read(&mut before, true);
        let whole = reader.captured;
        let mut met = 0;
        for (index, frame) in whole.frames.iter().enumerate() {
            let mut kind = [0];
            assert!(before.read(frame.address + u64::from(owner), &mut kind));
            if kind != [1] {
                continue;
            }
            let mut after = before.clone();
            after.add(frame.address + u64::from(layout.previous), &[0; 8]);
            for (at, captured) in at_all_moments(&before, &after).iter().enumerate() {
                let is_whole = captured.frames.len() == whole.frames.len();
                assert!(is_whole || captured.cut && !captured.too_many, "{name}, at {at}: {captured:?}");
                met += usize::from(captured.cut && captured.frames.len() == index + 1);
            }
        }
        assert!(met > 0, "{name}");
    }
}

/// Guarantees: while a native call begins and its frame is not set yet, the frames of the outer calls are read,
/// whatever is stored in place of its frame.
#[test]
fn calls_that_begin() {
    for (name, mut recording, mut reader) in recorded(&["3.11", "3.11-static", "3.12"]) {
        let (whole, link, frame) = whole(&mut recording);
        let inner = whole.segments[0].end;
        if name == "3.12" {
            // Usually only the first link of the chain is needed and recorded.
            let outer = 0x7abc_0000_0000u64;
            recording.add(link + 8, &outer.to_le_bytes());
            recording.add(outer + frame, &whole.frames[inner].address.to_le_bytes());
        }
        for unset in [0, 8, 0x1_0000] {
            recording.add(link + frame, &u64::to_le_bytes(unset));
            reader.read(&mut recording, true);
            let anchors = |captured: &Captured| -> Vec<_> {
                captured.segments.iter().rev().map(|segment| segment.anchor).collect()
            };
            assert_eq!(reader.captured.frames, whole.frames[inner..], "{name}: {unset}");
            let outer = whole.segments.len() - 1;
            assert_eq!(anchors(&reader.captured), anchors(&whole)[..outer], "{name}: {unset}");
            assert!(!reader.captured.cut, "{name}");
        }
    }
}
