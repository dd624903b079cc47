//! Threads that reuse the memory of an ended thread.

use super::*;
use crate::arch::THREAD_IDS;
use crate::runtime::target::{half, word};

/// A recording in which the thread of the state has ended, and the C library has given its thread pointer to a new
/// one, with this id. The old state is still in memory, executes nothing and is in no list. Returns the new thread's
/// key.
fn replace_thread(recording: &mut Recording, id: u32) -> ThreadKey {
    let place = Place::at(recording.runtime, recording.version, recording).unwrap();
    let thread = &place.layout.thread;
    let mut states = States::default();
    states.walk(&place, recording);
    let old = states.of(&place, ThreadKey { id: recording.thread, pointer: 0 }).next().unwrap();
    // The new state is the same except for the id.
    let mut bytes = vec![0; thread.size()];
    assert!(recording.read(old.address, &mut bytes));
    let new = 0x7abc_0000_0000;
    recording.add(new, &bytes);
    if let Some(at) = thread.native_id {
        recording.add(new + u64::from(at), &u64::from(id).to_le_bytes());
    }
    let interpreter = word(recording, place.runtime + u64::from(place.layout.interpreters)).unwrap();
    recording.add(interpreter + u64::from(place.layout.threads), &new.to_le_bytes());
    recording.add(new + u64::from(thread.next), &[0; 8]);
    let (layout::Current::Direct { frame: current }
    | layout::Current::WithChain { frame: current, .. }
    | layout::Current::InChain { chain: current, .. }) = thread.current;
    recording.add(old.address + u64::from(current), &[0; 8]);
    for at in THREAD_IDS {
        if half(recording, old.thread_id + at) == Some(recording.thread) {
            recording.add(old.thread_id + at, &id.to_le_bytes());
        }
    }
    ThreadKey { id, pointer: old.thread_id }
}

/// Guarantees: a thread that reuses the thread pointer of an ended one gets its own frames at once, also if it is read
/// only while it is stopped: the data of the ended thread does not prevent a new walk through the lists.
#[test]
fn thread_pointers_used_again() {
    for (name, bytes) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        let before = reader.read(&mut recording, true);
        let key = replace_thread(&mut recording, 4321);
        let Reader { instance, now, captured, .. } = &mut reader;
        // Enough time for an unknown thread, but not for one that is known to execute nothing.
        let now = *now + Duration::from_millis(20);
        assert!(instance.capture(key, 64, now, &mut recording, captured), "{name}");
        assert_eq!(captured.frames.len(), before.len(), "{name}");
    }
}

/// Guarantees: up to 3.10, a thread is found by its thread pointer if the C library stores its id somewhere else.
#[test]
fn thread_pointers_without_ids() {
    for name in ["3.8", "3.9", "3.10"] {
        let mut recording = recording(name);
        let place = Place::at(recording.runtime, recording.version, &mut recording).unwrap();
        let mut states = States::default();
        states.walk(&place, &mut recording);
        let pointer = states.of(&place, ThreadKey { id: recording.thread, pointer: 0 }).next().unwrap().thread_id;
        for at in THREAD_IDS {
            if half(&mut recording, pointer + at) == Some(recording.thread) {
                recording.add(pointer + at, &[0xaa; 4]);
            }
        }
        let mut reader = Reader::new(&mut recording).unwrap();
        let key = ThreadKey { id: recording.thread, pointer };
        for _ in 0..2 {
            let Reader { instance, now, captured, .. } = &mut reader;
            assert!(instance.capture(key, 64, *now, &mut recording, captured), "{name}");
        }
    }
}
