//! Code objects that are freed, replaced or do not match a frame, possibly while they are read; and threads' copies of
//! instructions in builds without the global lock.

use super::*;
use crate::runtime::UNKNOWN_FUNCTION;
use crate::runtime::recording::{check_code_replaced_during_reads, check_replaced_code};

/// Guarantees: see [`check_replaced_code`]. The innermost function gets the name of its caller's caller.
#[test]
fn replaced_code() {
    check_replaced_code(&PYTHON, (0, 2), |recording, code| code + u64::from(place(recording).layout.code.name));
}

/// Guarantees: see [`check_code_replaced_during_reads`]. The code object of `wait` is replaced by that of the text
/// passed to `eval`, which has another file.
#[test]
fn code_replaced_during_reads() {
    check_code_replaced_during_reads(&PYTHON, 0, Some(1), |reader, recording| {
        let mut other = vec![0; place(recording).layout.code.size()];
        assert!(recording.read(reader.captured.frames[1].code, &mut other));
        recording.add(reader.captured.frames[0].code, &other);
    });
}

/// Guarantees: a freed code object yields an unknown function, whether it was known before or not. Its reference count
/// is 0, or was overwritten with the address of another free block. Without the global lock, addresses in its
/// instructions find no function either, since the memory of its copies may belong to another function by now.
#[test]
fn freed_code() {
    for (name, whole, _) in recorded(&PYTHON) {
        for head in [0, 0x7f12_3456_7890, 0x5566_7788_9900u64] {
            for (is_known, has_not_run) in [(false, false), (true, false), (true, true)] {
                let mut recording = whole.clone();
                let mut reader = Reader::new(&mut recording).unwrap();
                let before = reader.read(&mut recording, true);
                let frame = reader.captured.frames[0];
                if !is_known {
                    reader = Reader::new(&mut recording).unwrap();
                }
                recording.add(frame.code, &head.to_le_bytes());
                let references = place(&mut recording).layout.object.references;
                if let Some((own, others)) = references {
                    // The owning thread holds no references, and the shared count has only its flag.
                    recording.add(frame.code + u64::from(own), &[0; 4]);
                    recording.add(frame.code + u64::from(others), &3u64.to_le_bytes());
                }
                let now = reader.read(&mut recording, has_not_run);
                assert_eq!((now[0].0.as_str(), &now[1..]), (UNKNOWN_FUNCTION, &before[1..]), "{name}, {head:#x}");
                let executed = reader.executed(frame.instruction + 2, &mut recording);
                assert!(references.is_none() || executed.is_none(), "{name}");
            }
        }
    }
}

/// Guarantees: a frame has an unknown function if its instruction is outside of the function's code and of threads'
/// copies of the code.
#[test]
fn foreign_instruction() {
    for (name, mut recording, mut reader) in recorded(&["3.12", "3.13t", "3.14t", "3.14t-thread"]) {
        reader.read(&mut recording, true);
        let (frame, code) = (reader.captured.frames[0].address, reader.resolved[0].code.clone());
        for foreign in [0x1234, code.start - 4, code.end] {
            recording.add(frame + 56, &foreign.to_le_bytes());
            let read = reader.read(&mut recording, true);
            assert_eq!((read[0].0.as_str(), read[0].2), (UNKNOWN_FUNCTION, 0), "{name}: {foreign:#x}");
        }
    }
}

/// A recording of a thread that executes a copy of the instructions, its reader, the address of the pointer to the list
/// of the innermost function's copies, and the offset of a function's own instructions.
fn with_copies() -> (Recording, Reader, u64, u64) {
    let mut recording = recording("3.14t-thread");
    let mut reader = Reader::new(&mut recording).unwrap();
    reader.read(&mut recording, true);
    let Instructions::Inside { at, copies: Some(copies) } = place(&mut recording).layout.code.instructions else {
        panic!()
    };
    let pointer = reader.captured.frames[0].code + u64::from(copies);
    (recording, reader, pointer, at.into())
}

/// Guarantees: a thread's copies are looked up through the function's current list: addresses in a copy that was freed
/// or moved find nothing, those in the new copy find the function, and those in memory reused by another function find
/// the latter.
#[test]
fn copies_that_move() {
    let (mut recording, mut reader, pointer, at) = with_copies();
    let before = reader.read(&mut recording, true);
    let (frame, copy) = (reader.captured.frames[0], reader.resolved[0].code.clone());
    assert!(!copy.contains(&(frame.code + at)), "this thread executes a copy");
    // The address of the next instruction; the preceding one is being executed.
    let next = frame.instruction + 2;
    let expected = Some((before[0].clone(), false));
    assert_eq!(reader.executed(next, &mut recording), expected);
    // The list of copies moves, and so does this function's copy.
    let (list, moved) = (0x7000_0000, 0x7100_0000u64);
    recording.add(pointer, &u64::to_le_bytes(list));
    recording.add(list, &[2u64, frame.code + at, moved].map(u64::to_le_bytes).concat());
    let instruction = frame.instruction - copy.start + moved;
    recording.add(frame.address + 56, &instruction.to_le_bytes());
    assert_eq!(reader.read(&mut recording, true), before);
    assert_eq!(reader.executed(next, &mut recording), None);
    assert_eq!(reader.executed(instruction + 2, &mut recording), expected);
    // The memory of the copy is reused by the caller's caller, which has at least as many instructions.
    recording.add(list + 16, &[0; 8]);
    let other = reader.captured.frames[2];
    recording.add(other.code + (pointer - frame.code), &u64::to_le_bytes(list + 64));
    recording.add(list + 64, &[2, other.code + at, moved].map(u64::to_le_bytes).concat());
    recording.add(other.address + 56, &(moved + 2).to_le_bytes());
    let now = reader.read(&mut recording, true);
    assert_eq!((now[0].0.as_str(), &now[2].0), (UNKNOWN_FUNCTION, &before[2].0));
    assert_eq!(reader.executed(moved + 4, &mut recording).unwrap().0.0, before[2].0);
}

/// Guarantees: a list of copies that claims to be huge, is circular or points nowhere costs a bounded read and the
/// name of the function, no more.
#[test]
fn attack_lists_of_copies() {
    let list = 0x7000_0000u64;
    for (length, entry) in [(u64::MAX, 1), (1 << 40, list), (8193, 0), (0, 0), (1, u64::MAX), (1, list)] {
        let (mut recording, mut reader, pointer, _) = with_copies();
        let before = reader.read(&mut recording, true);
        recording.add(pointer, &list.to_le_bytes());
        recording.add(list, &[length, entry].map(u64::to_le_bytes).concat());
        recording.add(list + 16, &[0xff; 8192 * 8]);
        let now = reader.read(&mut recording, true);
        assert_eq!((now[0].0.as_str(), &now[1..]), (UNKNOWN_FUNCTION, &before[1..]), "{length} {entry:#x}");
    }
}
