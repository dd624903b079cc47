//! Threads that reuse the memory of an ended thread.

use super::*;
use crate::arch::THREAD_IDS;
use crate::runtime::target::half;

/// Replaces the id that the C library stores at a thread pointer.
fn set_id(recording: &mut Recording, pointer: u64, id: u32) {
    for at in THREAD_IDS {
        if half(recording, pointer + at) == Some(recording.thread) {
            recording.add(pointer + at, &id.to_le_bytes());
        }
    }
}

/// Changes the recording: its thread has ended, and the C library has given the thread pointer to a new thread with
/// this id. The old thread state is still in memory, executes nothing and is in no list. Returns the new thread's key.
fn replace_thread(recording: &mut Recording, id: u32) -> ThreadKey {
    let (place, old) = (place(recording), state(recording));
    let thread = &place.layout.thread;
    // The new state differs only in the id.
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
    let (Current::Direct { frame: current }
    | Current::WithChain { frame: current, .. }
    | Current::InChain { chain: current, .. }) = thread.current;
    recording.add(old.address + u64::from(current), &[0; 8]);
    set_id(recording, old.thread_id, id);
    ThreadKey { id, pointer: old.thread_id }
}

/// Guarantees: a thread that reuses the thread pointer of an ended one gets its own frames at once, also if it is read
/// only while it is stopped: the data of the ended thread does not prevent a new walk through the lists.
#[test]
fn thread_pointers_used_again() {
    for (name, mut recording, mut reader) in recorded(&PYTHON) {
        let before = reader.read(&mut recording, true);
        let key = replace_thread(&mut recording, 4321);
        let Reader { instance, now, captured, .. } = &mut reader;
        // This is long enough for an unknown thread, but not for one that is known to execute nothing.
        let now = *now + Duration::from_millis(20);
        assert!(instance.capture(key, 64, now, &mut recording, captured), "{name}");
        assert_eq!(captured.frames.len(), before.len(), "{name}");
    }
}

/// Guarantees: up to 3.10, a thread is found by its thread pointer if the C library stores its id somewhere else.
#[test]
fn thread_pointers_without_ids() {
    for (name, mut recording, mut reader) in recorded(UP_TO_3_10) {
        let pointer = state(&mut recording).thread_id;
        set_id(&mut recording, pointer, 0xaaaa_aaaa);
        recording.pointer = pointer;
        for _ in 0..2 {
            assert!(reader.capture(&mut recording, 64).is_some(), "{name}");
        }
    }
}

/// Guarantees: a thread whose state now belongs to another thread has no frames.
#[test]
fn state_of_another_thread() {
    for (name, mut recording, mut reader) in recorded(&PYTHON) {
        assert_eq!(reader.read(&mut recording, true).len(), 10, "{name}");
        let (thread, state) = (place(&mut recording).layout.thread, state(&mut recording));
        for at in [thread.thread_id, thread.native_id.unwrap_or(thread.thread_id)] {
            recording.add(state.address + u64::from(at), &[0xaa; 8]);
        }
        assert_eq!(reader.read(&mut recording, true), [], "{name}");
    }
}
