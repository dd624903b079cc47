//! Threads that continue to run while their frames are read.

use super::*;

/// Memory that changes before one of the reads.
struct Changing {
    before: Recording,
    after: Recording,
    reads: usize,
    at: usize,
}

impl Target for Changing {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.reads += 1;
        if self.reads > self.at { &mut self.after } else { &mut self.before }.read(address, bytes)
    }
}

/// Reads the thread once for every read at which memory may change from `before` to `after`.
fn at_all_moments(before: &Recording, after: &Recording) -> Vec<Captured> {
    let mut all = Vec::new();
    for at in 0.. {
        let mut reader = Reader::new(&mut before.clone()).unwrap();
        let key = ThreadKey { id: before.thread, pointer: before.pointer };
        // The address of its state is known already.
        reader.read(&mut before.clone(), true);
        let mut changing = Changing { before: before.clone(), after: after.clone(), reads: 0, at };
        reader.instance.capture(key, MAX_FRAMES, reader.now, &mut changing, &mut reader.captured);
        all.push(reader.captured.clone());
        if changing.reads < at {
            return all;
        }
    }
    unreachable!("reading ends");
}

fn layout_of(recording: &mut Recording) -> layout::Layout {
    Place::at(recording.runtime, recording.version, recording).unwrap().layout
}

/// The whole stack, the address of the first link of the chain on the native stack, and the offset of the frame in it.
fn whole(recording: &mut Recording) -> (Captured, Option<(u64, u32)>) {
    let mut reader = Reader::new(recording).unwrap();
    reader.read(recording, true);
    let place = Place::at(recording.runtime, recording.version, recording).unwrap();
    let mut states = States::default();
    states.walk(&place, recording);
    let state = states.of(&place, ThreadKey { id: recording.thread, pointer: 0 }).next().unwrap();
    let chain = match place.layout.thread.current {
        layout::Current::InChain { chain, frame, .. } => {
            let link = crate::runtime::target::word(recording, state.address + u64::from(chain)).unwrap();
            Some((link, frame))
        }
        layout::Current::Direct { .. } | layout::Current::WithChain { .. } => None,
    };
    (reader.captured, chain)
}

/// Guarantees: if the innermost function returns to its caller within the same native call while frames are read, all
/// frames belong to the native calls that execute them.
#[test]
fn functions_that_return() {
    for name in ["3.11", "3.11-static", "3.12"] {
        let before = recording(name);
        let (whole, chain) = whole(&mut before.clone());
        let (link, frame) = chain.unwrap();
        let mut after = before.clone();
        after.add(link + u64::from(frame), &whole.frames[1].address.to_le_bytes());
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

/// Guarantees: if a generator, which then has no caller, is left while frames are read, the result is not taken for a
/// complete stack, so that it is read again.
#[test]
fn generators_that_are_left() {
    for (name, bytes) in RECORDINGS {
        let before = Recording::parse(bytes).unwrap();
        let layout = layout_of(&mut before.clone());
        let owner = match layout.frame.calls {
            layout::Calls::Each => continue,
            layout::Calls::Marked { owner, .. } => owner,
            layout::Calls::Owned { at } => at,
        };
        let (whole, _) = whole(&mut before.clone());
        let mut met = 0;
        for (index, frame) in whole.frames.iter().enumerate() {
            let mut kind = [0];
            assert!(before.clone().read(frame.address + u64::from(owner), &mut kind));
            if kind != [1] {
                continue;
            }
            let mut after = before.clone();
            after.add(frame.address + u64::from(layout.frame.previous), &[0; 8]);
            for (at, captured) in at_all_moments(&before, &after).iter().enumerate() {
                let is_whole = captured.frames.len() == whole.frames.len();
                assert!(is_whole || captured.cut && !captured.too_many, "{name}, at {at}: {captured:?}");
                met += usize::from(captured.cut && captured.frames.len() == index + 1);
            }
        }
        assert!(met > 0, "{name}");
    }
}

/// Guarantees: while a native call begins and its frame is not set yet, the frames of the calls around it are read,
/// whatever is stored in place of its frame.
#[test]
fn calls_that_begin() {
    for name in ["3.11", "3.11-static", "3.12"] {
        let mut recording = recording(name);
        let (whole, chain) = whole(&mut recording);
        let (link, frame) = chain.unwrap();
        let inner = whole.segments[0].end;
        if name == "3.12" {
            // Usually only the first link of its chain is needed and recorded.
            let outer = 0x7abc_0000_0000u64;
            recording.add(link + 8, &outer.to_le_bytes());
            recording.add(outer + u64::from(frame), &whole.frames[inner].address.to_le_bytes());
        }
        for unset in [0, 8, 0x1_0000] {
            let mut recording = recording.clone();
            recording.add(link + u64::from(frame), &u64::to_le_bytes(unset));
            let mut reader = Reader::new(&mut recording).unwrap();
            reader.read(&mut recording, true);
            assert_eq!(reader.captured.frames, whole.frames[inner..], "{name}: {unset}");
            let anchors: Vec<_> = reader.captured.segments.iter().map(|segment| segment.anchor).collect();
            let expected: Vec<_> = whole.segments[1..].iter().map(|segment| segment.anchor).collect();
            assert_eq!(anchors, expected, "{name}: {unset}");
            assert!(!reader.captured.cut, "{name}");
        }
    }
}
