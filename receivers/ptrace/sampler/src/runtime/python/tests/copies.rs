//! Threads' copies of instructions, without the global lock.

use super::*;

/// The code object of the innermost frame of a thread that executes copies, and the address of the pointer to their
/// list.
fn copied(reader: &Reader, recording: &mut Recording) -> (u64, u64) {
    let code = reader.captured.frames[0].code;
    let place = Place::at(recording.runtime, recording.version, recording).unwrap();
    let Instructions::Inside { copies: Some(at), .. } = place.layout.code.instructions else { unreachable!() };
    (code, code + u64::from(at))
}

/// Guarantees: a thread's copy of a function's instructions is looked for where the function points to now: a copy
/// that was freed or moved finds nothing, the new one finds the function, and memory reused by another function finds
/// that one.
#[test]
fn copies_that_move() {
    let mut recording = recording("3.14t-thread");
    let mut reader = Reader::new(&mut recording).unwrap();
    let before = reader.read(&mut recording, true);
    let (_, pointer) = copied(&reader, &mut recording);
    let (frame, copy) = (reader.captured.frames[0], reader.resolved[0].code.clone());
    let place = Place::at(recording.runtime, recording.version, &mut recording).unwrap();
    let Instructions::Inside { at, .. } = place.layout.code.instructions else { unreachable!() };
    assert!(!copy.contains(&(frame.code + u64::from(at))), "this thread executes a copy");
    let executed = |reader: &mut Reader, recording: &mut Recording, address: u64| {
        let hit = reader.instance.executed(address, recording, &mut reader.functions)?;
        assert!(!hit.shared);
        let Location::Interpreted { function, line } = hit.resolved.location? else { return None };
        Some((reader.told[function as usize].name.clone(), line))
    };
    // The address of the next instruction; the one before it is being executed.
    let next = frame.instruction + 2;
    let expected = Some((before[0].0.clone(), before[0].2));
    assert_eq!(executed(&mut reader, &mut recording, next), expected);
    // The list moves, and this function's copy in it.
    let (list, moved) = (0x7000_0000, 0x7100_0000u64);
    recording.add(pointer, &u64::to_le_bytes(list));
    recording.add(list, &[2u64, frame.code + u64::from(at), moved].map(u64::to_le_bytes).concat());
    let instruction = frame.instruction - copy.start + moved;
    recording.add(frame.address + 56, &instruction.to_le_bytes());
    assert_eq!(reader.read(&mut recording, true), before);
    assert_eq!(executed(&mut reader, &mut recording, next), None);
    assert_eq!(executed(&mut reader, &mut recording, instruction + 2), expected);
    // The memory of the copy is reused by the caller's caller, which has at least as many instructions.
    recording.add(list + 16, &[0; 8]);
    let other = reader.captured.frames[2];
    let (_, offset) = (other.code, pointer - frame.code);
    recording.add(other.code + offset, &u64::to_le_bytes(list + 64));
    recording.add(list + 64, &[2, other.code + u64::from(at), moved].map(u64::to_le_bytes).concat());
    recording.add(other.address + 56, &(moved + 2).to_le_bytes());
    let now = reader.read(&mut recording, true);
    assert_eq!((now[0].0.as_str(), now[2].0.as_str()), ("[unknown function]", before[2].0.as_str()));
    assert_eq!(executed(&mut reader, &mut recording, moved + 4).unwrap().0, before[2].0);
}

/// Guarantees: a list of copies that claims to be huge, is circular or points nowhere costs a bounded read and the
/// name of the function, no more.
#[test]
fn attack_lists_of_copies() {
    let list = 0x7000_0000u64;
    for (length, entry) in [(u64::MAX, 1), (1 << 40, list), (8193, 0), (0, 0), (1, u64::MAX), (1, list)] {
        let mut recording = recording("3.14t-thread");
        let mut reader = Reader::new(&mut recording).unwrap();
        let before = reader.read(&mut recording, true);
        let (_, pointer) = copied(&reader, &mut recording);
        recording.add(pointer, &list.to_le_bytes());
        recording.add(list, &[length, entry].map(u64::to_le_bytes).concat());
        recording.add(list + 16, &[0xff; 8192 * 8]);
        let now = reader.read(&mut recording, true);
        assert_eq!((now[0].0.as_str(), &now[1..]), ("[unknown function]", &before[1..]), "{length} {entry:#x}");
    }
}
